"""The user's own graph or graphs as a problem: no name in the catalogue, no files."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor

from graphtheory.bench.facts import Facts
from graphtheory.bench.finished import Settings
from graphtheory.bench.graph_problem import GraphProblem, named_problem
from graphtheory.bench.measure import Measure, measure_of
from graphtheory.bench.problem import NodeProblem, Problem, Root
from graphtheory.bench.trial import prepare
from graphtheory.data.catalogue import describe
from graphtheory.data.graph_sets import GraphSet
from graphtheory.data.graphs import Data
from graphtheory.data.own_graphs import graph_set
from graphtheory.data.splits import by_fraction
from graphtheory.train import FullGraph
from graphtheory.train.check import MASKS, check_masks
from graphtheory.train.contract import digest

NODE, GRAPH = "node", "graph"
KINDS = ("multiclass", "multilabel", "regression")
_RANDOM, _GIVEN = "random-60-20-20", "given"
_SHOWN = 12  # letters of a digest in a name


class OwnNodes(NodeProblem):
    """One graph with a class for each node.

    Args:
        data: A PyG `Data` with x [N, F], numbers of any type, dense or sparse, which are read as
            float32; edge_index, as it is: directed edges stay directed; y whole numbers [N] or
            [N, 1], -1 for a node without a class; with train_mask, val_mask and test_mask Bool [N]
            or [N, S], of which seed s takes column s mod S, or with none of them for a random split
            of 60, 20 and 20 percent by seed. No network for nodes reads `edge_weight` or
            `edge_attr`: a warning says so.
        name: In reports.
        metric: "accuracy", or "rocauc" for two classes.

    Raises:
        TypeError: If x or a mask has another type.
        ValueError: If there are some of the masks and not the others, if x, y or a mask has another
            shape, if a feature is not finite, or if there are fewer than two classes.
    """

    def __init__(self, data: Data, name: str = "graph", metric: str = "accuracy") -> None:
        y, found = data.get("y"), [data.get(mask) is not None for mask in MASKS]
        for unread in ("edge_weight", "edge_attr"):
            if data.get(unread) is not None:
                warnings.warn(f"data.{unread}: no network for nodes reads it here", stacklevel=2)
        if isinstance(y, Tensor) and y.dim() == 2 and y.size(1) == 1:
            y = y[:, 0]
        if not isinstance(y, Tensor) or y.is_floating_point() or y.is_complex() or y.dim() != 1:
            shown = f"{y.dtype} {list(y.shape)}" if isinstance(y, Tensor) else repr(y)
            raise ValueError(f"data.y: got {shown}, expected whole numbers [N], a class for each")
        if not isinstance(data.x, Tensor) or not len(data.x) or len(y) != len(data.x):
            rows = f"{len(data.x)} rows" if isinstance(data.x, Tensor) else repr(data.x)
            raise ValueError(f"data.x: got {rows} beside {len(y)} labels, expected one for each")
        if data.x.dim() != 2 or data.x.is_complex():
            shown = f"{data.x.dtype} {list(data.x.shape)}"
            raise ValueError(f"data.x: got {shown}, expected real numbers [N, F]")
        largest, labeled = int(y.max()), int((y >= 0).sum())
        if not 1 <= largest < labeled:
            raise ValueError(
                f"data.y: the largest class is {largest} among {labeled} nodes with one, expected "
                "two classes or more, numbered from 0"
            )
        if any(found) and not all(found):
            lacking = ", ".join(m for m, is_there in zip(MASKS, found, strict=True) if not is_there)
            raise ValueError(f"data: {lacking} is missing, expected all three masks or none")
        if all(found):
            _check_splits(data)
        super().__init__(name, _GIVEN if all(found) else _RANDOM)
        self.metric, self.own = measure_of(metric).name, data.clone()
        self.own.x, self.own.y = _as_float32(data.x), y.long()
        try:
            FullGraph(self.data(0, row_scale=False))  # which checks it
        except IndexError as error:
            raise ValueError(str(error)) from error
        self.sha256 = digest(_tensors([self.own]))

    @property
    def key(self) -> str:
        """Name and content."""
        return f"{super().key}-{self.sha256[:_SHOWN]}"

    def settings(self) -> Settings:
        """What a run on this data has to agree in."""
        return super().settings() | {"sha256": self.sha256, "metric": self.metric}

    def data(self, seed: int, **inputs: bool) -> Data:
        """The graph with the split of that seed, its features prepared."""
        data = self.own.clone()
        if self.split == _GIVEN:
            data.update(_given_split(data, seed))
        else:
            generator = Generator().manual_seed(seed)
            parts = by_fraction(data.y, val=0.2, test=0.2, generator=generator)
            data.update(dict(zip(MASKS, parts, strict=True)))
        data.name, data.split, data.metric = self.name, self.split, self.metric
        data.num_classes = int(data.y.max()) + 1
        return prepare(data, **inputs)

    @property
    def measure(self) -> Measure:
        """How its scores are read."""
        return measure_of(self.metric)

    @cached_property
    def facts(self) -> Facts:
        """What its options follow from, by the split of seed 0."""
        return Facts.of(self.data(0))

    @property
    def num_edges(self) -> int:
        """All of them."""
        return int(self.own.num_edges)


class OwnGraphs(GraphProblem):
    """A list of graphs with labels, as `data.own_graphs.graph_set` takes it.

    Args:
        graphs: PyG `Data`, all with the same columns.
        name: In reports.
        kind: "multiclass", "multilabel" or "regression"; None takes it from y.
        metric: Of that kind; None takes its first.
        split: Fractions of training, validation and test, drawn by seed; or three lists of
            positions, the same for every seed.

    Raises:
        TypeError, ValueError: As `graph_set`.
    """

    def __init__(
        self,
        graphs: Sequence[Data],
        name: str = "graphs",
        kind: Any = None,
        metric: str | None = None,
        split: Sequence[Any] = (0.8, 0.1, 0.1),
    ) -> None:
        self.own, self.kind, self.asked, self.parts = list(graphs), kind, metric, split
        super().__init__(name)
        found = self.graphs(0)
        if found.level == NODE:
            for position, graph in enumerate(self.own):
                if int(graph.y.max()) < 0:
                    raise ValueError(
                        f"graph {position}: y is -1 for all nodes, so that no label is left; take "
                        "the graph out"
                    )
        self.split, self.sha256 = found.split, digest(_tensors(self.own))

    @property
    def key(self) -> str:
        """Name and content."""
        return f"{super().key}-{self.sha256[:_SHOWN]}"

    def settings(self) -> Settings:
        """What a run on this data has to agree in."""
        found = {"sha256": self.sha256, "kind": self.graphs(0).kind}
        return super().settings() | found | {"metric": self.measure.name}

    def load(self, seed: int) -> GraphSet:
        """The set with the split of that seed."""
        return graph_set(
            self.own, name=self.name, kind=self.kind, metric=self.asked, split=self.parts, seed=seed
        )


def as_problem(
    data: Any,
    *,
    task: str | None = None,
    metric: str | None = None,
    split: Any = None,
    root: Root = None,
    name: str | None = None,
) -> Problem:
    """Anything that can be benchmarked as a problem.

    Args:
        data: Name of a data set; a PyG `Data` for its nodes; a list of `Data` or a PyG dataset for
            its graphs, one graph of a dataset for its nodes; or a problem.
        task: "node" or "graph"; for graphs also "multiclass", "multilabel" or "regression". None
            takes it from the data.
        metric: Of the user's own data; None is accuracy for nodes, and the first of its kind for
            graphs.
        split: Kind of split of a named set; for own graphs three fractions or lists of positions.
        root: Folder with the raw files of a named set.
        name: Of the user's own data, for reports.

    Raises:
        TypeError: If `data` is none of these.
        ValueError: If the task does not fit the data.
    """
    if task is not None and task not in (NODE, GRAPH, *KINDS):
        raise ValueError(f"task: got {task!r}, expected node, graph or {', '.join(KINDS)}")
    if isinstance(data, str):
        named = named_problem(data, split, root)
        _fits_named(named, data, task, metric)
        return named
    if isinstance(data, Problem):
        for argument, value in (("task", task), ("metric", metric), ("split", split)):
            if value is not None:
                raise ValueError(f"{argument}: got {value!r}, expected None: a problem has its own")
        return data
    if isinstance(data, GraphSet):  # it knows its task and its split
        _fits(task, GRAPH, data.name)
        if split is None and data._indices is not None:
            raise ValueError(
                f"data: {len(data)} indexed graphs of {data.name}, whose split is of the whole "
                "set; expected that, or a split of these"
            )
        metric, name = metric or data.metric, name or data.name
        task = task if task in KINDS else data.kind
        split = split or (data.train_index, data.val_index, data.test_index)
        data = _with_smiles(data)
    if isinstance(data, Data):
        if task in KINDS:
            raise ValueError(
                f"task: got {task!r}, expected 'node' for one graph, or a list of them"
            )
        data = [data] if task == GRAPH else data
    elif isinstance(data, Iterable):
        data = list(data)
        if not data or not all(isinstance(graph, Data) for graph in data):
            kinds = sorted({type(graph).__name__ for graph in data})
            raise TypeError(f"data: got a list of {kinds or 'nothing'}, expected PyG Data")
        alone = len(data) == 1 and task in (None, NODE)
        data = data[0] if alone else data
    else:
        raise TypeError(
            f"data: got {type(data).__name__}, expected a name, a PyG Data or a list of Data"
        )
    if isinstance(data, Data):
        if split is not None:
            raise ValueError(f"split: got {split!r}, expected masks in the data of one graph")
        return OwnNodes(data, name or "graph", metric or "accuracy")
    _fits(task, GRAPH, f"a list of {len(data)} graphs")
    kind = task if task in KINDS else None
    parts = (0.8, 0.1, 0.1) if split is None else split
    return OwnGraphs(data, name or "graphs", kind, metric, parts)


def _with_smiles(graphs: GraphSet) -> list[Data]:
    found = [graphs.get(i) for i in graphs.indices()]
    if graphs.smiles is not None:
        for graph, place in zip(found, graphs.indices(), strict=True):
            graph.smiles = graphs.smiles[place]
    return found


def _fits_named(named: Problem, name: str, task: str | None, metric: str | None) -> None:
    """Raise unless a named set has that task and that metric."""
    _fits(task, NODE if isinstance(named, NodeProblem) else GRAPH, name)
    if task in KINDS and task != (kind := describe(name, named.root).kind):
        raise ValueError(f"task: got {task!r}, expected {kind!r}, that of {name}")
    if metric is not None and metric != named.measure.name:
        raise ValueError(f"metric: got {metric!r}, expected {named.measure.name!r}, that of {name}")


def _fits(task: str | None, found: str, what: str) -> None:
    asked = GRAPH if task in KINDS else task
    if asked not in (None, found):
        raise ValueError(f"task: got {task!r}, but {what} is a task of the kind {found!r}")


def _as_float32(x: Tensor) -> Tensor:
    """Features as the networks read them: dense, or sparse by rows."""
    x = x.detach()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        x = x if x.layout in (torch.strided, torch.sparse_csr) else x.to_sparse_csr()
    return x.to(torch.float32)


def _given_split(data: Data, seed: int) -> dict[str, Tensor]:
    """The masks of a seed, Bool [N]: column s mod S of each."""
    columns = {name: data[name].view(len(data.x), -1).bool() for name in MASKS}
    return {name: of[:, seed % of.size(1)].contiguous() for name, of in columns.items()}


def _check_splits(data: Data) -> None:
    """Raise unless every column of the three masks is a split."""
    nodes = len(data.x)
    for name in MASKS:
        mask = data[name]
        fits = isinstance(mask, Tensor) and mask.dtype in (torch.bool, torch.uint8)
        if not fits or mask.dim() not in (1, 2) or len(mask) != nodes or not mask.numel():
            shown = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, Tensor) else repr(mask)
            raise ValueError(f"data.{name}: got {shown}, expected Bool [{nodes}] or [{nodes}, S]")
    for seed in range(max(data[name].numel() // nodes for name in MASKS)):
        try:
            check_masks(_given_split(data, seed), nodes)
        except ValueError as error:
            raise ValueError(f"{error}, in the split of seed {seed}") from error


def _tensors(graphs: Sequence[Data]) -> Iterable[Tensor]:
    for graph in graphs:
        for _, value in sorted(graph.to_dict().items()):
            if isinstance(value, torch.Tensor) and value.layout in (
                torch.strided, torch.sparse_csr,
            ):  # fmt: skip
                yield value
