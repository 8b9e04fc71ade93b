"""Whole graphs: batches with about the same number of nodes each, and the task on them."""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import torch
from lightning.fabric.utilities import move_data_to_device
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from graphtheory.lab.train import contract
from graphtheory.lab.train.score import Kind

_ORDER = 0  # stream of randomness


class Parts(NamedTuple):
    """What `GraphTask.evaluate` takes: the batches of validation and of the test, in order."""

    val: list[Batch]
    test: list[Batch]


@dataclass(eq=False, repr=False)
class GraphSets(contract.Source):
    """Train on batches of graphs, drawn afresh in every epoch; evaluate on two other parts.

    An epoch's graphs are shuffled as a function of (seed, epoch) and cut into consecutive batches
    at equal shares of their nodes, from which a batch differs by less than one graph.

    Args:
        graphs: PyG graphs with x, edge_index and y, int64 [1], or float [1, T] with NaN where a
            value is missing; of a task on nodes one row a node, -1 for one without a class.
        train: Positions of the graphs to train on, int64.
        val: Positions of those that choose the epoch.
        test: Positions of those that are scored beside them and decide nothing; may be empty.
        nodes_per_batch: About how many nodes make a batch.
        name: Of the data set, for a run that is resumed.
        seed: Of the order, 0 or more.

    Raises:
        TypeError: A graph without x, edge_index or y.
        ValueError: A part that is empty or overlaps, or a graph without nodes or labels, with other
            features than the first has or with some that are not finite; it is named.

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
    _parts: Parts | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__init__()
        contract.check_at_least(1, nodes_per_batch=self.nodes_per_batch)
        contract.check_at_least(0, seed=self.seed)
        self.graphs = list(self.graphs)
        contract.check_parts("graph", len(self.graphs), self.train, self.val, self.test)
        for position, graph in self._chosen():
            _check_graph(position, graph, self.graphs[int(self.train[0])])

    def _chosen(self) -> Iterator[tuple[int, Data]]:
        chosen = torch.cat([self.train, self.val, self.test]).tolist()
        return ((position, self.graphs[position]) for position in chosen)

    def check_classes(self, num_classes: int) -> None:
        for position, graph in self._chosen():
            y, floating = graph.y, graph.y.is_floating_point()
            if not y.dim() or list(y.shape[1:]) != [num_classes] * floating:
                row, shape = f"[1, {num_classes}], an entry for each output", tuple(y.shape)
                expected = row if floating else "[1], a class, or [num_nodes]"
                raise ValueError(f"graph {position}: y of shape {shape}, expected {expected}")
            if not floating:
                expected = f"0..{num_classes - 1}, or -1 for none"
                said = f"graph {position}: label {{value}}, expected {expected}"
                contract.refuse_any((y < -1) | (y >= num_classes), said, y)

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Compute mean and standard deviation [T] of the known training targets; all need one."""
        y = torch.cat([self.graphs[i].y for i in self.train.tolist()]).double()
        mean, graphs = y.nanmean(0), f"all {len(y)} training graphs"
        said = f"is NaN in {graphs}, expected a value in some; take the column out"
        contract.refuse_any(mean.isnan(), f"y[:, {{first}}] {said}")
        return mean.float(), (y - mean).square().nanmean(0).sqrt().float()

    def describe(self) -> dict[str, Any]:
        values = (v for graph in self.graphs for _, v in sorted(graph.to_dict().items()))
        tensors = (value for value in values if isinstance(value, Tensor))
        sha256 = contract.digest([*tensors, self.train, self.val, self.test])
        size = self.nodes_per_batch
        return dict(name=self.name, sha256=sha256, nodes_per_batch=size, seed=self.seed)

    def order(self, epoch: int) -> list[Tensor]:
        return self._cut(contract.shuffled(self.train, self.seed, _ORDER, epoch))

    def num_batches(self) -> int:
        return self._count(self._nodes(self.train))

    def evaluation_batch(self) -> Parts:
        if self._parts is None:
            parts = (map(self.batch, self._cut(part)) for part in (self.val, self.test))
            self._parts = Parts(*map(list, parts))
        return self._parts

    def every_batch(self) -> list[Batch]:
        return [self.batch(part) for part in self._cut(torch.arange(len(self.graphs)))]

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
        return min(len(nodes), -(-int(nodes.sum()) // self.nodes_per_batch))

    def batch(self, positions: Tensor) -> Batch:
        batch = Batch.from_data_list([self.graphs[i] for i in positions.tolist()])
        batch.count = int(_known(batch.y).sum())
        return batch


def _known(y: Tensor) -> Tensor:
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
            told = f"{name} is {here}, but {there} in the first graph of the training part"
            raise ValueError(f"graph {position}: {told}")
        values = graph.get(name)
        if name != "y" and values is not None and not bool(torch.isfinite(values).all()):
            raise ValueError(f"graph {position}: {name} has NaN or infinite entries")
    y = graph.y
    if bool(y.isinf().any()) or not bool(_known(y).any()):
        raise ValueError(f"graph {position}: y is {y.tolist()}, expected a finite label or more")


def _width(value: Tensor | None) -> str:
    if value is None:
        return "missing"
    kind = "float" if value.is_floating_point() else "integer"
    return f"{kind} [{', '.join(['.', *map(str, value.shape[1:])])}]"


class GraphTask(contract.LabelTask):
    r"""What `fit` trains on a `GraphSets`: a model of batches of graphs.

    Classes, y int64 [1], have cross-entropy; labels, y float [1, T] of 0 and 1, binary
    cross-entropy of each; values, y float [1, T], squared error, or absolute error with
    ``metric="mae"``. The loss is the mean over all labels that are there: NaN, and of nodes a class
    of -1, count neither in it nor in the score. Values are learned in units of their standard
    deviation over the training graphs and predicted in their own.

    Args:
        model: ``model(batch) -> [num_graphs, num_outputs]`` of a PyG `Batch`; of a task on nodes
            ``[num_nodes, num_outputs]``.
        kind: "multiclass", "multilabel" or "regression".
        num_outputs: Classes, labels or values; at least 2 classes, at least 1 of the others.
        metric: Name of the score; None is the first that the kind has: accuracy, rocauc, rmse.
        statistics: Of a regression `GraphSets.statistics`; None is mean 0 and deviation 1.
        optimizer: Step sizes and decay.

    Raises:
        ValueError: Kind, outputs and metric that do not go together or are not known.

    Example:
        >>> from torch_geometric.nn import global_mean_pool
        >>> class Mean(nn.Linear):
        ...     def forward(self, batch):
        ...         return super().forward(global_mean_pool(batch.x, batch.batch))
        >>> GraphTask(Mean(8, 3), kind="multiclass", num_outputs=3).metric
        'accuracy'
    """

    outputs_are = "num_outputs"
    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        kind: Kind,
        num_outputs: int,
        metric: str | None = None,
        statistics: tuple[Tensor, Tensor] | None = None,
        optimizer: contract.AdamOptions = contract.AdamOptions(),
    ) -> None:
        super().__init__(
            model, num_classes=num_outputs, optimizer=optimizer, metric=metric, kind=kind
        )
        if statistics is not None and kind != "regression":
            raise ValueError(f"statistics: got some, expected None of {kind} labels")
        shift, scale = statistics or (torch.zeros(num_outputs), torch.ones(num_outputs))
        self.register_buffer("shift", shift)
        self.register_buffer("scale", torch.where(scale > 0, scale, 1.0))

    def forward(self, batch: Batch) -> Tensor:
        """Compute logits, or values in units of their standard deviation."""
        return self.outputs(len(batch.y), batch)

    def probabilities(self, outputs: Tensor) -> Tensor:
        values = self.kind == "regression"
        return outputs * self.scale + self.shift if values else super().probabilities(outputs)

    def _target(self, y: Tensor) -> Tensor:
        return (y - self.shift) / self.scale if self.kind == "regression" else y

    def pairs(self, batch: Parts | Batch) -> list[contract.Pair]:
        given = batch if isinstance(batch, Parts) else Parts([batch], [])
        parts = filter(None, move_data_to_device(given, self.device))
        return [(torch.cat([self(b) for b in p]), torch.cat([b.y for b in p])) for p in parts]

    def _score(self, outputs: Tensor, y: Tensor) -> float:
        return super()._score(outputs * self.scale + self.shift, y)
