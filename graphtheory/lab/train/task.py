"""Classes and labels of nodes as a Lightning module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from graphtheory.lab.train.batch import NodeBatch
from graphtheory.lab.train.contract import Evaluation, Task
from graphtheory.lab.train.losses import LOSSES
from graphtheory.lab.train.score import SCORES, Score, ogb_score

METRICS = {"multiclass": ("accuracy", "rocauc"), "multilabel": ("rocauc", "ap")}
"""Scores of one graph's nodes."""


@dataclass(frozen=True)
class AdamOptions:
    """Adam with decay, and a step size of its own for distance biases.

    Args:
        lr: Step size, above 0.
        weight_decay: L2 coefficient, 0 or more, of every parameter but the bucket biases.
        bias_lr: Step size of the bucket biases; None is `lr`. They are never decayed.
        decoupled: Decay as AdamW does instead of adding it to the gradient.
        average: Share of itself that a running average of the parameters keeps at each step, above
            0 and below 1; evaluation is then with the average. None: with the parameters.

    Raises:
        ValueError: A number outside its range.
    """

    lr: float = 0.01
    weight_decay: float = 5e-4
    bias_lr: float | None = None
    decoupled: bool = False
    average: float | None = None

    def __post_init__(self) -> None:
        for name in ("lr", "bias_lr"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name}: got {value}, expected a step size above 0")
        if not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"weight_decay: got {self.weight_decay}, expected 0 or more")
        if self.average is not None and not 0 < self.average < 1:
            raise ValueError(f"average: got {self.average}, expected a share between 0 and 1")

    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        """An optimizer for the parameters of `module` that learn."""
        biases = {id(p) for p in _bucket_biases(module)}
        learning = [p for p in module.parameters() if p.requires_grad]
        groups: list[dict[str, Any]] = [{"params": [p for p in learning if id(p) not in biases]}]
        if own := [p for p in learning if id(p) in biases]:
            lr = self.lr if self.bias_lr is None else self.bias_lr
            groups.append({"params": own, "lr": lr, "weight_decay": 0.0})
        kind = torch.optim.AdamW if self.decoupled else torch.optim.Adam
        return kind(groups, lr=self.lr, weight_decay=self.weight_decay)


def _bucket_biases(module: nn.Module) -> list[nn.Parameter]:
    marked = (m for m in module.modules() if getattr(m, "is_bucket_bias", False))
    return [p for m in marked for p in m.parameters()]


class AdamTask(Task):
    """A task whose model learns by Adam, and is evaluated as its running average where it has one.

    Args:
        model: What is trained.
        optimizer: Step sizes, decay, and the average.
    """

    def __init__(self, model: nn.Module, optimizer: AdamOptions) -> None:
        super().__init__()
        self.model, self.options = model, optimizer
        self.average: AveragedModel | None = None
        if (share := optimizer.average) is not None:
            self.average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(share))

    @property
    def evaluated(self) -> nn.Module:
        """The model that evaluation runs: the average where there is one."""
        return self.model if self.average is None else self.average.module

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Let the average follow."""
        if self.average is not None:
            self.average.update_parameters(self.model)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimizer that the options describe."""
        return self.options.build(self.model)


class NodeTask(AdamTask):
    r"""Classes or labels of the nodes of one graph: the mean loss over the masked nodes.

    ==============  =========================  ===============================================
    kind            y of a node                loss
    ==============  =========================  ===============================================
    multiclass      int64                      cross-entropy,
                                               :math:`-\frac1{|M|}\sum_{n \in M} \log p_{y_n}(n)`
    multilabel      float [T], 0, 1 or NaN     binary cross-entropy of each label that is not NaN
    ==============  =========================  ===============================================

    Works under `fit` and under any Lightning Trainer, for which it logs `val_loss`, `val` and
    `test` where it evaluates. Edge of the domain: a batch without masked nodes has no loss and is
    refused by the data modules.

    Args:
        model: `model(x, neighborhood) -> logits [num_dst, num_classes]`; for batches with `layers`
            a model that takes a sequence of them.
        num_classes: C, at least 2; of several labels T, at least 1.
        metric: "accuracy", or "rocauc" for two classes; of several labels "rocauc" or "ap", the
            mean over the labels.
        optimizer: Step sizes and decay.
        kind: "multiclass" or "multilabel".
        evaluator: Name of the set whose `Evaluator` of ogb computes the score in the metric's
            place, such as "ogbn-arxiv".

    Raises:
        ValueError: Unknown kind or metric, too few classes, "rocauc" with more than two, or a set
            that ogb does not know.
    """

    num_classes: int

    def __init__(
        self,
        model: nn.Module,
        *,
        num_classes: int,
        metric: str = "accuracy",
        optimizer: AdamOptions = AdamOptions(),
        kind: str = "multiclass",
        evaluator: str | None = None,
    ) -> None:
        super().__init__(model, optimizer)
        if kind not in METRICS:
            raise ValueError(f"kind: got {kind!r}, expected one of {sorted(METRICS)}")
        if metric not in METRICS[kind]:
            raise ValueError(f"metric: got {metric!r}, expected one of {sorted(METRICS[kind])}")
        least = 1 if kind == "multilabel" else 2
        two = kind == "multiclass" and metric == "rocauc"
        if num_classes < least or (two and num_classes != 2):
            expected = "2" if two else f"{least} or more"
            raise ValueError(f"num_classes: got {num_classes}, expected {expected} for {metric!r}")
        self.num_classes, self.metric, self.kind = num_classes, metric, kind
        self.loss = LOSSES[kind]
        self.score: Score = SCORES[metric] if evaluator is None else ogb_score(evaluator)

    def forward(self, batch: NodeBatch) -> Tensor:
        """Logits [num_dst, num_classes]."""
        graph = batch.neighborhood if batch.layers is None else batch.layers
        logits = (self.model if self.training else self.evaluated)(batch.x, graph)
        expected = (batch.neighborhood.num_dst, self.num_classes)
        if logits.shape != expected:
            raise ValueError(
                f"model: logits of shape {tuple(logits.shape)}, expected {expected}: nodes and "
                "classes"
            )
        return logits

    def training_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        """Loss on `batch.mask`."""
        return self.loss(self(batch)[batch.mask], batch.y[batch.mask])

    @torch.no_grad()
    def evaluate(self, batch: NodeBatch) -> Evaluation:
        """Loss and scores of one forward pass in evaluation mode; the mode before comes back."""
        was_training = self.training
        self.eval()
        logits = self(batch)
        self.train(was_training)
        val, y = logits[batch.mask], batch.y[batch.mask]
        test = batch.test_mask
        return Evaluation(
            float(self.loss(val, y)),
            self._score(val, y),
            None if test is None else self._score(logits[test], batch.y[test]),
        )

    def _score(self, logits: Tensor, y: Tensor) -> float:
        if not bool(torch.isfinite(logits).all()):
            return self.score.worst  # the loss is not finite either, which `fit` reports
        return self.score(logits, y)

    def validation_step(self, batch: NodeBatch, batch_idx: int) -> None:
        """Log what `evaluate` finds, for a Trainer of your own."""
        found = self.evaluate(batch)._asdict()
        self.log_dict({k: v for k, v in found.items() if v is not None}, batch_size=1)

    test_step = validation_step
