"""Whole graphs: batches with about the same number of nodes each, and the task on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from lightning.fabric.utilities import move_data_to_device
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from graphtheory.lab.train.contract import (
    AdamOptions,
    LabelTask,
    Pair,
    Source,
    check_at_least,
    check_parts,
    digest,
    shuffled,
)
from graphtheory.lab.train.score import Kind, Loss

_ORDER = 0  # stream of randomness


class Parts(NamedTuple):
    """What `GraphTask.evaluate` takes: the batches of validation and of the test, in order."""

    val: list[Batch]
    test: list[Batch]


@dataclass(eq=False, repr=False)
class GraphSets(Source):
    """Train on batches of graphs, drawn afresh in every epoch; evaluate on two other parts.

    An epoch's graphs are shuffled as a function of (seed, epoch) and cut into consecutive batches
    at equal shares of their nodes, so that batches differ by less than one graph in size.

    Args:
        graphs: PyG graphs with x, edge_index and y: int64 [1] for classes, or float [1, T] for
            labels and values, NaN where one is missing; of a task on nodes one row a node, -1 for a
            node without a class.
        train: Positions of the graphs to train on, int64.
        val: Positions of those that choose the epoch.
        test: Positions of those that are scored beside them and decide nothing; may be empty.
        nodes_per_batch: About so many nodes make a batch.
        name: Of the data set, for a run that is resumed.
        seed: Of the order, 0 or more.

    Raises:
        TypeError: A graph without x, edge_index or y.
        ValueError: A part without graphs, positions out of range or in two parts, a graph without
            nodes or without any label, features that are not finite, or graphs that differ in their
            features; the message names the first such graph.

    Example:
        >>> ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> graphs = [Data(x=torch.ones(3, 1), edge_index=ring, y=torch.tensor([0]))] * 4
        >>> data = GraphSets(graphs, torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3]))
        >>> [batch.num_graphs for batch in data.train_batches(epoch=0)]
        [2]
    """

    graphs: Sequence[Data]
    train: Tensor
    val: Tensor
    test: Tensor
    _: KW_ONLY
    nodes_per_batch: int = 4096
    name: str = "unnamed"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        check_at_least(1, nodes_per_batch=self.nodes_per_batch)
        check_at_least(0, seed=self.seed)
        self.graphs = list(self.graphs)
        check_parts("graph", len(self.graphs), self.train, self.val, self.test)
        for position in self._chosen():
            _check_graph(position, self.graphs[position], self.graphs[int(self.train[0])])

    def _chosen(self) -> list[int]:
        return torch.cat([self.train, self.val, self.test]).tolist()

    def check_classes(self, num_classes: int) -> None:
        """Refuse classes outside 0..num_classes-1, and rows of labels of another length."""
        for position in self._chosen():
            y = self.graphs[position].y
            floating, expected = y.is_floating_point(), "[1], a class, or [num_nodes]"
            if floating:
                expected = f"[1, {num_classes}], an entry for each output"
            if not y.dim() or list(y.shape[1:]) != [num_classes] * floating:
                raise ValueError(
                    f"graph {position}: y of shape {tuple(y.shape)}, expected {expected}"
                )
            if not floating and len(wrong := y[(y < -1) | (y >= num_classes)]):
                raise ValueError(
                    f"graph {position}: label {int(wrong[0])}, expected 0..{num_classes - 1}, "
                    "or -1 for none"
                )

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Compute mean and standard deviation of the known training targets, [T] each.

        Raises:
            ValueError: A target that is NaN in every training graph.
        """
        y = torch.cat([self.graphs[i].y for i in self.train.tolist()]).double()
        mean = y.nanmean(0)
        if bool(mean.isnan().any()):
            column = int(mean.isnan().nonzero()[0])
            raise ValueError(
                f"y[:, {column}] is NaN in all {len(y)} training graphs, expected a value in some; "
                "take the column out"
            )
        return mean.float(), (y - mean).square().nanmean(0).sqrt().float()

    def describe(self) -> dict[str, Any]:
        values = (v for graph in self.graphs for _, v in sorted(graph.to_dict().items()))
        tensors = (value for value in values if isinstance(value, Tensor))
        found = {"name": self.name, "sha256": digest([*tensors, self.train, self.val, self.test])}
        return found | {"nodes_per_batch": self.nodes_per_batch, "seed": self.seed}

    def order(self, epoch: int) -> list[Tensor]:
        """Draw the positions of each batch of an epoch."""
        return self._cut(shuffled(self.train, self.seed, _ORDER, epoch))

    def train_batches(self, epoch: int) -> Iterator[Batch]:
        return map(self._batch, self.order(epoch))

    def num_batches(self) -> int:
        return self._count(self._nodes(self.train))

    def evaluation_batch(self) -> Parts:
        return self._parts

    @cached_property
    def _parts(self) -> Parts:
        val, test = ([self._batch(p) for p in self._cut(part)] for part in (self.val, self.test))
        return Parts(val, test)

    def _cut(self, positions: Tensor) -> list[Tensor]:
        """Cut into consecutive batches with equal shares of the nodes."""
        if not len(positions):
            return []
        nodes = self._nodes(positions)
        share = (nodes.cumsum(0) - 1) * self._count(nodes) // nodes.sum()  # of a graph's last node
        return list(positions.split(share.unique_consecutive(return_counts=True)[1].tolist()))

    def _nodes(self, positions: Tensor) -> Tensor:
        return torch.tensor([self.graphs[i].num_nodes for i in positions.tolist()])

    def _count(self, nodes: Tensor) -> int:
        """Into how many batches graphs of so many nodes are cut."""
        return min(len(nodes), -(-int(nodes.sum()) // self.nodes_per_batch))

    def _batch(self, positions: Tensor) -> Batch:
        batch = Batch.from_data_list([self.graphs[i] for i in positions.tolist()])
        batch.count = int(_known(batch.y).sum())
        return batch


def _known(y: Tensor) -> Tensor:
    """Labels that are there: no NaN, or no class of -1."""
    return ~y.isnan() if y.is_floating_point() else y >= 0


def _check_graph(position: int, graph: Data, first: Data) -> None:
    for name in ("x", "edge_index", "y"):
        if not isinstance(graph.get(name), Tensor):
            kind = type(graph.get(name)).__name__
            raise TypeError(f"graph {position}: {name} is {kind}, expected a tensor")
    if not graph.num_nodes:
        raise ValueError(f"graph {position}: no nodes, expected at least one")
    for name in ("x", "edge_attr", "y"):
        here, there = _width(graph.get(name)), _width(first.get(name))
        if here != there:
            raise ValueError(
                f"graph {position}: {name} is {here}, but {there} in the first graph of the "
                "training part"
            )
        values = graph.get(name)
        if name != "y" and values is not None and not bool(torch.isfinite(values).all()):
            raise ValueError(f"graph {position}: {name} has NaN or infinite entries")
    y = graph.y
    if bool(y.isinf().any()) or not bool(_known(y).any()):
        raise ValueError(f"graph {position}: y is {y.tolist()}, expected a finite label or more")


def _width(value: Tensor | None) -> str:
    """Tell type and shape without the first axis, in words."""
    if value is None:
        return "missing"
    kind = "float" if value.is_floating_point() else "integer"
    return f"{kind} [{', '.join(['.', *map(str, value.shape[1:])])}]"


class GraphTask(LabelTask):
    r"""What `fit` trains on a `GraphSets`: a model of batches of graphs.

    ==============  ==========================  ===============================================
    kind            y of a graph                loss, the mean over all labels that are there
    ==============  ==========================  ===============================================
    multiclass      int64 [1], -1 for none      cross-entropy
    multilabel      float [1, T], 0, 1 or NaN   binary cross-entropy of each label
    regression      float [1, T], NaN allowed   squared error, absolute error with ``metric="mae"``
    ==============  ==========================  ===============================================

    Values are learned in units of their standard deviation over the training graphs and predicted
    in their own. A label that is NaN, or a class of -1 (where some nodes of a task on nodes have
    none), counts neither in the loss nor in the score.

    Args:
        model: ``model(batch) -> [num_graphs, num_outputs]`` of a PyG `Batch`; of a task on nodes
            ``[num_nodes, num_outputs]``.
        kind: Which of the three.
        num_outputs: Classes, labels or values; at least 2 classes, at least 1 of the others.
        metric: Name of the score; None is the first that the kind has: accuracy, rocauc, rmse.
        evaluator: Name of the set whose `Evaluator` of ogb computes the score in its place.
        statistics: Mean and standard deviation of the targets, as `GraphSets.statistics` gives
            them; of a regression only. None is 0 and 1.
        loss: (outputs, y) -> mean loss, in the place of the table's.
        optimizer: Step sizes and decay.

    Raises:
        ValueError: If kind, number of outputs and metric do not go together, or ogb does not know
            the evaluator.

    Example:
        >>> from torch_geometric.nn import global_mean_pool
        >>> class Mean(nn.Linear):
        ...     def forward(self, batch):
        ...         return super().forward(global_mean_pool(batch.x, batch.batch))
        >>> GraphTask(Mean(8, 3), kind="multiclass", num_outputs=3).metric
        'accuracy'
    """

    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        kind: Kind,
        num_outputs: int,
        metric: str | None = None,
        evaluator: str | None = None,
        statistics: tuple[Tensor, Tensor] | None = None,
        loss: Loss | None = None,
        optimizer: AdamOptions = AdamOptions(),
    ) -> None:
        super().__init__(
            model, num_outputs, optimizer, kind=kind, metric=metric, evaluator=evaluator
        )
        if num_outputs < (2 if kind == "multiclass" else 1):
            raise ValueError(f"num_outputs: got {num_outputs}, too few for {kind}")
        if statistics is not None and kind != "regression":
            raise ValueError(f"statistics: got some, expected None of {kind} labels")
        shift, scale = statistics or (torch.zeros(num_outputs), torch.ones(num_outputs))
        self.register_buffer("shift", shift)
        self.register_buffer("scale", torch.where(scale > 0, scale, 1.0))
        self.loss = loss or self.loss

    def forward(self, batch: Batch) -> Tensor:
        """Compute logits, or values in units of their standard deviation."""
        return self.outputs(len(batch.y), batch)

    def predict(self, batch: Batch) -> Tensor:
        """Compute logits, or values in their own unit."""
        return self._in_their_unit(self(batch))

    def _in_their_unit(self, out: Tensor) -> Tensor:
        return out * self.scale + self.shift if self.kind == "regression" else out

    def _target(self, y: Tensor) -> Tensor:
        return (y - self.shift) / self.scale if self.kind == "regression" else y

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self.loss(self(batch), self._target(batch.y))

    def to_score(self, batch: Parts) -> tuple[Pair, Pair | None]:
        parts = move_data_to_device(batch, self.device)
        return self._pair(parts.val), self._pair(parts.test) if parts.test else None

    def _pair(self, batches: list[Batch]) -> Pair:
        return torch.cat([self(b) for b in batches]), torch.cat([b.y for b in batches])

    def _score(self, outputs: Tensor, y: Tensor) -> float:
        return super()._score(self._in_their_unit(outputs), y)
