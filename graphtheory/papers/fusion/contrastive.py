"""Contrastive learning as Lightning modules: SimCLR with any head, and DGI as PyG has it."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader
from torch_geometric.nn import DeepGraphInfomax

from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import take_rows
from graphtheory.lab.train import AdamOptions, Source, Task
from graphtheory.lab.train.contract import check_each, digest, lines, shapes
from graphtheory.papers.fusion.views import Loaded

_check_above_0 = partial(check_each, "a number above 0", lambda value: 0 < value < math.inf)


def nt_xent(
    first: Tensor,
    second: Tensor,
    temperature: float = 0.2,
    *,
    every: Tensor | None = None,
    rank: int = 0,
) -> Tensor:
    r"""Normalized temperature-scaled cross-entropy between two views, mean over all 2 N of them.

    .. math:: -\frac{1}{2N} \sum_i \log \frac{\exp(\cos(z_i, z_{i'}) / \tau)}
        {\sum_{k \ne i} \exp(\cos(z_i, z_k) / \tau)}

    with i' the other view of the same sample. One sample alone has loss 0.

    Args:
        first: Projections of the first view.
        second: Projections of the second view, of the same samples in the same order.
        temperature: tau, above 0.
        every: Unit projections of all processes, [processes, 2 N, D], of which `rank` holds those
            of this one; None is this process alone.
        rank: Number of this process.

    Shapes:
        first, second [N, D] -> scalar.

    Raises:
        ValueError: Shapes that differ, no sample, or a temperature out of range.

    Source: Chen et al. (2020), eq. (1).

    Example:
        >>> one = torch.eye(2)
        >>> round(float(nt_xent(one, one, 1.0)), 4)  # log(1 + 2 / e)
        0.5514
    """
    if first.shape != second.shape or first.dim() != 2 or not len(first):
        raise ValueError(
            f"second: shape {tuple(second.shape)}, expected [N, D] as first {tuple(first.shape)}, "
            "with a sample or more"
        )
    _check_above_0(temperature=temperature)
    own = normalize(torch.cat([first, second]), dim=1)
    rows = len(own)
    keys = own if every is None else every.flatten(0, 1)
    place = torch.arange(rows, device=own.device)
    itself, positive = place + rank * rows, (place + rows // 2) % rows + rank * rows
    logits = (own @ keys.t() / temperature).scatter(1, itself[:, None], -torch.inf)
    return cross_entropy(logits, positive, reduction="sum") / rows


@dataclass(frozen=True)
class SGDOptions:
    """SGD with momentum and decay, as in the paper.

    Raises:
        ValueError: A number outside its range.
    """

    lr: float = 0.1  #: Step size at the beginning, above 0.
    momentum: float = 0.9  #: In [0, 1).
    weight_decay: float = 1e-3  #: L2 coefficient, 0 or more.

    def __post_init__(self) -> None:
        if not self.lr > 0 or not 0 <= self.momentum < 1 or self.weight_decay < 0:
            raise ValueError(
                f"lr, momentum, weight_decay: got {self.lr}, {self.momentum}, {self.weight_decay}, "
                "expected above 0, in [0, 1), 0 or more"
            )

    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        """Make an optimizer for the parameters of `module` that learn."""
        learning = [p for p in module.parameters() if p.requires_grad]
        return torch.optim.SGD(
            learning, self.lr, momentum=self.momentum, weight_decay=self.weight_decay
        )


Optimizer = AdamOptions | SGDOptions


class Pretraining(Task):
    """A task that learns without labels; its step size falls to 0 over half a cosine.

    `fit` trains it for all epochs and keeps the last parameters; nothing is scored on the way. It
    takes `Unlabeled` samples, or a `DataLoader` of torch; see `Loaded`.

    Args:
        optimizer: What takes the steps.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        super().__init__()
        self.options = optimizer

    def source(self, data: Any) -> Source:
        return Loaded(data) if isinstance(data, DataLoader) else super().source(data)

    def evaluate(self, batch: Any) -> None:
        pass

    def describe(self, epochs: int) -> dict[str, Any]:
        kept = self.state_dict()
        fixed = {n: digest([b]) for n, b in self.named_buffers() if n not in kept}
        return {
            "task": type(self).__name__,
            "parameters": shapes(kept),
            "layers": lines(self),
            "temperature": str(getattr(self, "temperature", None)),
            "optimizer": str(self.options),
            "buffers": fixed,
            "epochs": epochs,
        }

    def configure_optimizers(self) -> Any:
        optimizer = self.options.build(self)
        return [optimizer], [CosineAnnealingLR(optimizer, self.trainer.max_epochs or 1)]


class SimCLR(Pretraining):
    """Features of two views, a head on both side by side, and NT-Xent.

    Head and loss see both views of the batch in one call, so that a transformer head has them in
    one clique. Under DDP the loss compares with the projections of all processes, whose gradients
    flow back; the batch of a head stays that of its process.

    Args:
        features: A batch to the features of its first and second views [2 N, F], as `ImageViews`.
        head: Features to projections [2 N, D]; `torch.nn.Identity()` is no head.
        temperature: tau of the loss.
        optimizer: Default `SGDOptions()`.

    Source: Chen et al. (2020); with a transformer head Li and Pimentel-Alarcon (2024).
    """

    def __init__(
        self,
        features: nn.Module,
        head: nn.Module,
        *,
        temperature: float = 0.2,
        optimizer: Optimizer = SGDOptions(),
    ) -> None:
        super().__init__(optimizer)
        _check_above_0(temperature=temperature)
        self.features, self.head = features, head
        self.temperature = temperature

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        first, second = self.head(self.features(batch)).chunk(2)
        every, rank = None, 0
        if self.trainer.world_size > 1:
            own = normalize(torch.cat([first, second]), dim=1)
            gathered = self.all_gather(own, sync_grads=True)  # [processes, 2 N, D]
            assert isinstance(gathered, Tensor)
            every, rank = gathered, self.global_rank
        return nt_xent(first, second, self.temperature, every=every, rank=rank)


_ADAM = AdamOptions(0.001, 0.0)


class Infomax(Pretraining):
    """Deep graph infomax: nodes against the mean of the graph, and against shuffled features.

    PyG's `DeepGraphInfomax` on an encoder of ours. A batch only says that a step is due.

    Args:
        encoder: `encoder(x, neighborhood)` to features [N, F].
        channels: F.
        x: Features of all nodes, dense or sparse CSR.
        neighborhood: Who aggregates from whom.
        optimizer: Default Adam with steps of 0.001.

    Source: Velickovic et al. (2019), Deep graph infomax.
    """

    model: DeepGraphInfomax
    x: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        channels: int,
        x: Tensor,
        neighborhood: Neighborhood,
        *,
        optimizer: Optimizer = _ADAM,
    ) -> None:
        super().__init__(optimizer)
        self.register_buffer("x", x, persistent=False)
        self.neighborhood = neighborhood
        self.model = DeepGraphInfomax(
            channels, encoder, lambda z, *_: z.mean(0).sigmoid(), _shuffled
        )

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.model.loss(*self.model(self.x, self.neighborhood.to(self.x.device)))


def _shuffled(x: Tensor, neighborhood: Neighborhood) -> tuple[Tensor, Neighborhood]:
    """Give the nodes of the same graph the features of other nodes."""
    return take_rows(x, torch.randperm(x.size(0), device=x.device)), neighborhood
