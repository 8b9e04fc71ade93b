"""The user's own graphs as a problem, and the problem of a name, a graph or a list of graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from graphtheory.lab.bench.finished import Settings
from graphtheory.lab.bench.graph_problem import GraphProblem, named_problem
from graphtheory.lab.bench.own_nodes import SHOWN, OwnNodes, tensors_of
from graphtheory.lab.bench.problem import NodeProblem, Problem, Root
from graphtheory.lab.datasets.catalogue import describe
from graphtheory.lab.datasets.graph_sets import GraphSet
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.datasets.own_graphs import graph_set
from graphtheory.lab.train.contract import digest

NODE, GRAPH = "node", "graph"
KINDS = ("multiclass", "multilabel", "regression")


class OwnGraphs(GraphProblem):
    """A list of graphs with labels, as `datasets.own_graphs.graph_set` takes it.

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
        self.split, self.sha256 = found.split, digest(tensors_of(self.own))

    @property
    def key(self) -> str:
        """Name and content."""
        return f"{super().key}-{self.sha256[:SHOWN]}"

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
