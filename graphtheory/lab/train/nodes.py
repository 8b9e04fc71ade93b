"""Labeled nodes of one graph: the task, the whole graph as one batch an epoch, and refusals."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch.trainer.states import TrainerStatus
from torch import Tensor
from torch_geometric.data import Data

from graphtheory.graph import Neighborhood
from graphtheory.graph.content import PerTensorCache
from graphtheory.lab.train import contract
from graphtheory.lab.train.predict import by_layers
from graphtheory.lab.train.score import METRICS, SCORES, Metrics
from graphtheory.modes import evaluating
from graphtheory.patterns import Compose, Pattern
from graphtheory.patterns.base import apply_fixed
from graphtheory.patterns.draw import generator_of
from graphtheory.recording import Recording, recorded

nodes_of: PerTensorCache[Tensor] = PerTensorCache(lambda mask: mask.nonzero().flatten())
MASKS = ("train_mask", "val_mask", "test_mask")
_EVALUATION, _TRAINING, _ORDER = 0, 1, 2  # streams of randomness


@dataclass(frozen=True)
class NodeBatch:
    """Features, who aggregates from whom, and the nodes whose labels count."""

    x: Tensor  #: Features [num_src, F], dense or sparse CSR.
    neighborhood: Neighborhood  #: Who aggregates from whom, num_dst rows.
    y: Tensor  #: Class of each target, int64 [num_dst], or its labels, float [num_dst, T].
    mask: Tensor  #: Bool [num_dst], the nodes that the loss or the score is computed on.
    #: Bool [num_dst] or None; the test's nodes, which are scored too and choose nothing.
    test_mask: Tensor | None = None
    #: A neighborhood for each layer, which the model gets instead, or None.
    layers: tuple[Neighborhood, ...] | None = None
    #: Rows of a layer that are computed together, of a batch that stays on the CPU; None is all.
    at_once: int | None = None

    @property
    def count(self) -> int:
        """The number of nodes whose labels count."""
        return int(self.mask.sum())

    def to(self, device: torch.device | str) -> "NodeBatch":
        """Move the batch to `device`; nothing is copied where it is there already."""
        there = self.at_once is not None or self.y.device == torch.device(device)
        return self if there else NodeBatch(**move_data_to_device(vars(self), device))


class NodeTask(contract.LabelTask):
    r"""Classes or labels of the nodes of one graph: the mean loss over the masked nodes.

    Classes, y int64, have cross-entropy, :math:`-\frac1{|M|}\sum_{n \in M} \log p_{y_n}(n)`,
    and several labels, y float [T] of 0, 1 or NaN, binary cross-entropy of each that is not NaN.
    Works under `fit` and under any Lightning Trainer, for which it logs `val_loss`, `val` and
    `test`. A batch without masked nodes has no loss and is refused by the data modules.

    Args:
        model: `model(x, neighborhood) -> logits [num_dst, num_classes]`; for batches with `layers`
            a model that takes a sequence of them.
        num_classes: C, at least 2; of several labels T, at least 1.
        metric: "accuracy", or "rocauc" for two classes; of several labels mean "rocauc" or "ap".
        optimizer: Step sizes and decay.
        kind: "multiclass" or "multilabel".

    Raises:
        ValueError: Unknown kind or metric, too few classes, "rocauc" with over two.
    """

    _replayed: tuple[Callable[..., Tensor], Recording] | None = None  # steps, scores of training
    metrics: ClassVar[Metrics] = {
        "multiclass": ("accuracy", "rocauc"),
        "multilabel": METRICS["multilabel"],
    }

    def forward(self, batch: NodeBatch) -> Tensor:
        """Compute logits of the targets, [num_dst, num_classes]."""
        graph = batch.neighborhood if batch.layers is None else batch.layers
        given = batch.neighborhood.num_dst, batch.x, graph
        if batch.at_once is None:
            return self.outputs(*given)
        trainer = self._trainer
        shared = trainer if trainer and trainer.state.status == TrainerStatus.RUNNING else None
        run = partial(by_layers, rows=batch.at_once, device=self.device, trainer=shared)
        return self.outputs(*given, run=run)

    def pairs(self, batch: NodeBatch) -> list[contract.Pair]:
        logits, masks = self(batch), (batch.mask, batch.test_mask)
        places = [m if m.is_cpu else nodes_of(m) for m in masks if m is not None]
        return [(logits[place], batch.y[place]) for place in places]

    def on_train_start(self) -> None:
        """Let a GPU record steps and scores if all epochs have one batch, and that the same."""
        trainer, own = self.trainer, type(self).training_step
        data = getattr(trainer, "datamodule", None)
        options = trainer.accumulate_grad_batches, trainer.gradient_clip_val, trainer.precision
        one = trainer.world_size == len(trainer.optimizers) == 1
        usual = one and options == (1, None, "32-true") and self.options.clip is None
        usual = usual and not trainer.lr_scheduler_configs  # Lightning's own steps move them
        same = type(data) is FullGraph and data.is_fixed and own is NodeTask.training_step
        same = same and self.kind == "multiclass"  # other losses choose the labels that are known
        self._replayed = None
        if usual and same and self.device.type == "cuda":
            step = recorded(super().training_step, trainer.optimizers[0])
            self._replayed = step, Recording(self._scores, self._scores)
        self.automatic_optimization = self._replayed is None

    def on_train_end(self) -> None:
        self._replayed, self.automatic_optimization = None, True

    def training_step(self, batch: NodeBatch, batch_idx: int) -> Tensor:
        step = super().training_step if self._replayed is None else self._replayed[0]
        return step(batch, batch_idx)

    def evaluate(self, batch: NodeBatch) -> contract.Evaluation:
        if self._replayed is None or self.score is not SCORES["accuracy"]:
            return super().evaluate(batch)
        return contract.Evaluation(*self._replayed[1](batch).tolist())

    @torch.no_grad()
    def _scores(self, batch: NodeBatch) -> Tensor:
        """Compute what `evaluate` tells of accuracy, on the device alone."""
        with evaluating(self):
            pairs = self.pairs(batch)
            found = [self.loss(*pairs[0])]
        for outputs, y in pairs:
            score = (outputs.argmax(1) == y).float().mean()
            found.append(score.masked_fill(~outputs.isfinite().all(), self.score.worst))
        return torch.stack(found)


def apply(pattern: Pattern | None, graph: Neighborhood, *seed: int) -> Neighborhood:
    """Apply the pattern with draws that follow from the seeds; None leaves the graph as it is."""
    if pattern is None:
        return graph
    return pattern(graph, generator=generator_of(*seed))


class FullGraph(contract.Source):
    """Train and evaluate on all nodes at once.

    A deterministic pattern, or the beginning of one, is applied once. A random one is drawn in each
    training step, as a function of (seed, epoch); evaluation always sees the same draw.

    Args:
        data: A graph with x [N, F], y int64 [N] (of several labels float [N, T]: 0, 1 or NaN),
            edge_index [2, E] (sources first), train_mask and val_mask, and where there is a test
            test_mask, Bool [N] and disjoint. Nodes outside the masks may be of any class.
        pattern: Who aggregates from whom, given the graph; None is the graph itself.
        seed: Of the random pattern, 0 or more.
        evaluation: What evaluation sees in place of a random pattern, such as `patterns.Effective`
            of it; None is the same pattern.

    Raises:
        TypeError: A tensor is missing or of the wrong dtype.
        ValueError: Features that are not finite, labels out of range, masks that do not fit.
        IndexError: An edge to a node that does not exist.

    Example:
        >>> from graphtheory.lab.datasets import graphs
        >>> FullGraph(graphs.load("karate")).train_batch(epoch=0).neighborhood
        Neighborhood(num_dst=34, num_src=34, num_edges=156)
    """

    train: Tensor  # the nodes to train on, as `val` and `test` are those of the other masks
    batch_size: int | None = None  # labeled nodes of a step; None is all of them
    evaluation_rows: int | None = None  # of a layer, computed together; None is all of them

    def __init__(
        self,
        data: Data,
        pattern: Pattern | None = None,
        *,
        seed: int = 0,
        evaluation: Pattern | None = None,
    ) -> None:
        super().__init__()
        check_data(data)
        for name, given in (("pattern", pattern), ("evaluation", evaluation)):
            if not isinstance(given, Pattern | None):
                raise TypeError(f"{name}: got {given!r}, expected a Pattern or None")
        if evaluation is not None and (pattern is None or not pattern.is_random):
            raise ValueError(f"evaluation: got {evaluation}, expected None beside {pattern}")
        contract.check_at_least(0, seed=seed)
        self.graph = Neighborhood.from_edge_index(data.edge_index, data.x.size(0))
        self.data, self.pattern, self.evaluation, self.seed = data, pattern, evaluation, seed
        for name, mask in _masks_of(data).items():
            setattr(self, name.removesuffix("_mask"), mask.nonzero().flatten())
        self._evaluation: NodeBatch | None = None
        self._training: NodeBatch | None = None  # of a random pattern without its draw

    @property
    def device(self) -> torch.device:
        """Where the batches lie: on the Trainer's device, of which there is none at first."""
        return torch.device("cpu") if self.trainer is None else self.trainer.strategy.root_device

    def check_classes(self, num_classes: int) -> None:
        check_classes(self.data, num_classes)

    def describe(self) -> dict[str, Any]:
        masks = _masks_of(self.data).values()
        sha256 = contract.digest([self.data.x, self.data.y, self.data.edge_index, *masks])
        found: dict[str, Any] = {"name": str(self.data.get("name") or "unnamed"), "sha256": sha256}
        found |= {"pattern": repr(self.pattern), "seed": self.seed}
        return found if self.evaluation is None else found | {"evaluation": repr(self.evaluation)}

    def order(self, epoch: int) -> list[Tensor]:
        if self.batch_size is None:
            return [self.train]
        return list(contract.shuffled(self.train, self.seed, _ORDER, epoch).split(self.batch_size))

    def train_batch(self, epoch: int, step: int = 0) -> NodeBatch:
        """Make one batch of an epoch; the same for the same epoch and step."""
        whole, known = self.evaluation_batch(), self._training
        if known is None or known.y is not whole.y:
            mask = self.data.train_mask.to(self.device)
            self._training = known = replace(whole, mask=mask, test_mask=None)
        if self.is_fixed:
            return known
        return replace(known, neighborhood=self._draw(_TRAINING, epoch).to(self.device))

    @property
    def is_fixed(self) -> bool:
        """Whether every epoch trains on the same edges."""
        return self.pattern is None or not self.pattern.is_random

    def train_batches(self, epoch: int) -> Iterator[NodeBatch]:
        return (self.train_batch(epoch, step) for step in self.share(range(self.num_batches())))

    def evaluation_batch(self) -> NodeBatch:
        with torch.inference_mode(False):  # training may follow an evaluation under Lightning
            if self._evaluation is None:
                data, other = self.data, self.evaluation
                seen = self._draw(_EVALUATION) if other is None else other(self.graph)
                masks = data.val_mask, data.get("test_mask")
                batch = NodeBatch(data.x, seen, data.y, *masks, at_once=self.evaluation_rows)
                self._evaluation = batch
            self._evaluation = self._evaluation.to(self.device)
        return self._evaluation

    def every_batch(self) -> list[NodeBatch]:
        whole = self.evaluation_batch()
        return [replace(whole, mask=torch.ones_like(whole.mask), test_mask=None)]

    def _draw(self, *position: int) -> Neighborhood:
        graph, sampler = self.begun
        return apply(sampler, graph, self.seed, *position)

    @cached_property
    def begun(self) -> tuple[Neighborhood, Pattern | None]:
        """The graph after the parts of the pattern before the first random one, and the others."""
        return apply_fixed(self.pattern or Compose(), self.graph)


def _masks_of(data: Data) -> dict[str, Tensor]:
    return {name: data[name] for name in MASKS if data.get(name) is not None}


def check_data(data: Data) -> None:
    """Refuse features that are not finite, labels out of range and masks that overlap."""
    if not isinstance(data, Data):
        raise TypeError(f"data: got {type(data).__name__}, expected a Data of PyG")
    for name in ("x", "y", "edge_index", "train_mask", "val_mask"):
        if not isinstance(data.get(name), Tensor):
            kind = type(data.get(name)).__name__
            raise TypeError(f"data.{name}: got {kind}, expected a tensor")
    x, y, nodes = data.x, data.y, data.x.size(0)
    if not x.is_floating_point():
        raise TypeError(f"data.x: dtype {x.dtype}, expected a floating type")
    sparse = x.layout == torch.sparse_csr
    bad = ~torch.isfinite(x.values() if sparse else x)
    if bool(bad.any()):
        positions = x.to_sparse_coo().indices()[:, bad] if sparse else bad.nonzero().t()
        count, first = positions.size(1), positions[:, 0].tolist()
        told = f"{count} entries are NaN or infinite, the first at {first}"
        raise ValueError(f"data.x: {told}; expected finite features")
    check_masks(_masks_of(data), nodes)
    several = y.is_floating_point() and y.dim() == 2
    if not (several or (y.dtype == torch.int64 and y.dim() == 1)) or len(y) != nodes:
        told = f"{y.dtype} of shape {tuple(y.shape)}, expected int64 [{nodes}]"
        raise ValueError(f"data.y: {told}, or float [{nodes}, T] of several labels")
    check_classes(data, None)


def check_masks(masks: dict[str, Tensor], nodes: int) -> None:
    """Refuse masks that are not Bool [nodes] or have no node, and nodes in two of them."""
    for name, mask in masks.items():
        if mask.dtype != torch.bool or mask.shape != (nodes,):
            told = f"{mask.dtype} of shape {tuple(mask.shape)}, expected bool [{nodes}]"
            raise ValueError(f"data.{name}: {told}; of several splits give one column")
        if not bool(mask.any()):
            raise ValueError(f"data.{name}: no node, expected at least one")
    twice = torch.stack(list(masks.values())).sum(0) > 1
    said = f"data: {{count}} nodes are in more than one of {', '.join(masks)}, the first is node "
    contract.refuse_any(twice, said + "{first}; expected disjoint masks")


def check_classes(data: Data, num_classes: int | None) -> None:
    """Refuse labels of masked nodes outside 0..num_classes-1, and labels other than 0, 1, NaN."""
    y = data.y
    if y.dim() == 2:
        if num_classes not in (None, y.size(1)):
            raise ValueError(f"data.y: {y.size(1)} labels of each node, expected {num_classes}")
        said = "labels are neither 0, 1 nor NaN, the first at {first} with {value:g}"
        contract.refuse_any(~((y == 0) | (y == 1) | y.isnan()), f"data.y: {{count}} {said}", y)
        return
    used = torch.stack(list(_masks_of(data).values())).any(0)
    limit = "0 or more" if num_classes is None else f"0..{num_classes - 1}"
    said = "{count} nodes of the masks have a label out of range, the first is node {first} with "
    bad = used & ((y < 0) | (y >= (math.inf if num_classes is None else num_classes)))
    contract.refuse_any(bad, f"data.y: {said}{{value}}; expected {limit}", y)
