"""Batches of whole graphs with about the same number of nodes each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphtheory.lab.train.contract import Batches, Source, digest
from graphtheory.lab.train.seeds import derive

_ORDER = 0


class Parts(NamedTuple):
    """What `GraphTask.evaluate` takes: the batches of validation and of the test, in order."""

    val: list[Batch]
    test: list[Batch]


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

    def __init__(
        self,
        graphs: Sequence[Data],
        train: Tensor,
        val: Tensor,
        test: Tensor,
        *,
        nodes_per_batch: int = 4096,
        name: str = "unnamed",
        seed: int = 0,
    ) -> None:
        super().__init__()
        for what, value, least in (("nodes_per_batch", nodes_per_batch, 1), ("seed", seed, 0)):
            if value < least:
                raise ValueError(f"{what}: got {value}, expected {least} or more")
        self.graphs = list(graphs)
        self.train, self.val, self.test = train, val, test
        _check_parts(len(self.graphs), train, val, test)
        for position in torch.cat([train, val, test]).tolist():
            _check_graph(position, self.graphs[position], self.graphs[int(train[0])])
        self.nodes_per_batch, self.name, self.seed = nodes_per_batch, name, seed
        self._evaluation: Parts | None = None

    def check_classes(self, num_classes: int) -> None:
        """Refuse classes outside 0..num_classes-1, and rows of labels of another length."""
        for position in torch.cat([self.train, self.val, self.test]).tolist():
            y = self.graphs[position].y
            if not y.is_floating_point() and y.dim() != 1:
                raise ValueError(
                    f"graph {position}: y of shape {tuple(y.shape)}, expected [1], a class, or "
                    "[num_nodes]"
                )
            if y.is_floating_point():
                if y.dim() != 2 or y.size(1) != num_classes:
                    raise ValueError(
                        f"graph {position}: y of shape {tuple(y.shape)}, expected [1, "
                        f"{num_classes}], an entry for each output"
                    )
            elif bool((wrong := (y < -1) | (y >= num_classes)).any()):
                raise ValueError(
                    f"graph {position}: label {int(y[wrong][0])}, expected 0..{num_classes - 1}, "
                    "or -1 for none"
                )

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the training targets that are not NaN, [T] each.

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
        """What a resumed run must find unchanged."""
        tensors = (
            value
            for graph in self.graphs
            for _, value in sorted(graph.to_dict().items())
            if isinstance(value, Tensor)
        )
        found = {"name": self.name, "sha256": digest([*tensors, self.train, self.val, self.test])}
        return found | {"nodes_per_batch": self.nodes_per_batch, "seed": self.seed}

    def order(self, epoch: int) -> list[Tensor]:
        """The positions of each batch of an epoch."""
        generator = torch.Generator().manual_seed(derive(self.seed, _ORDER, epoch))
        return self._cut(self.train[torch.randperm(len(self.train), generator=generator)])

    def train_batches(self, epoch: int) -> Iterator[Batch]:
        """The batches of one epoch; the same for the same epoch."""
        return map(self._batch, self.order(epoch))

    def evaluation_batch(self) -> Parts:
        """All graphs of validation and of the test (made once)."""
        if self._evaluation is None:
            parts = ([self._batch(p) for p in self._cut(part)] for part in (self.val, self.test))
            self._evaluation = Parts(*parts)
        return self._evaluation

    def train_dataloader(self) -> Batches:
        """One epoch of batches; there are fewer where one graph is larger than a batch."""
        return Batches(self._count(self._nodes(self.train)), self._iterate)

    def _iterate(self) -> Iterator[Batch]:
        # A generator, because Lightning asks for an iterator before it knows the epoch.
        yield from self.train_batches(self.epoch)

    def val_dataloader(self) -> Batches:
        """The graphs of validation."""
        found = self.evaluation_batch().val
        return Batches(len(found), lambda: iter(found))

    def _cut(self, positions: Tensor) -> list[Tensor]:
        """Consecutive batches with equal shares of the nodes."""
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
        y = batch.y
        batch.count = int((~y.isnan() if y.is_floating_point() else y >= 0).sum())
        return batch


def _check_parts(graphs: int, train: Tensor, val: Tensor, test: Tensor) -> None:
    if not len(train) or not len(val):
        raise ValueError(f"train, val: {len(train)} and {len(val)} graphs, expected some of either")
    chosen = torch.cat([train, val, test])
    if int(chosen.min()) < 0 or int(chosen.max()) >= graphs:
        raise ValueError(
            f"train, val, test: positions outside 0..{graphs - 1}, the graphs there are"
        )
    if len(chosen.unique()) < len(chosen):
        raise ValueError("train, val, test: a graph is in them twice, expected each once")


def _check_graph(position: int, graph: Data, first: Data) -> None:
    for name in ("x", "edge_index", "y"):
        if not isinstance(graph.get(name), Tensor):
            kind = type(graph.get(name)).__name__
            raise TypeError(f"graph {position}: {name} is {kind}, expected a tensor")
    if not graph.num_nodes:
        raise ValueError(f"graph {position}: no nodes, expected at least one")
    for name in ("x", "edge_attr", "y"):
        here, there = graph.get(name), first.get(name)
        if _width(here) != _width(there):
            raise ValueError(
                f"graph {position}: {name} is {_width(here)}, but {_width(there)} in the first "
                "graph of the training part"
            )
    for name in ("x", "edge_attr"):
        values = graph.get(name)
        if values is not None and not bool(torch.isfinite(values).all()):
            raise ValueError(f"graph {position}: {name} has NaN or infinite entries")
    y = graph.y
    floating = y.is_floating_point()
    if (floating and bool(y.isinf().any())) or not bool((~y.isnan() if floating else y >= 0).any()):
        raise ValueError(f"graph {position}: y is {y.tolist()}, expected a finite label or more")


def _width(value: Tensor | None) -> str:
    """Type and shape but the first axis, in words."""
    if value is None:
        return "missing"
    kind = "float" if value.is_floating_point() else "integer"
    return (
        f"{kind} [., {', '.join(map(str, value.shape[1:]))}]" if value.dim() > 1 else f"{kind} [.]"
    )
