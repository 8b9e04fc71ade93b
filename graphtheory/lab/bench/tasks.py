"""The benchmark task of a name, a graph or a list of graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphtheory.lab.bench.graph_task import GraphBenchTask, OwnGraphs
from graphtheory.lab.bench.node_task import NodeBenchTask, OwnNodes
from graphtheory.lab.bench.task import BenchTask, Root
from graphtheory.lab.datasets.catalogue import describe
from graphtheory.lab.datasets.graph_sets import GraphSet
from graphtheory.lab.datasets.graphs import Data

NODE, GRAPH = "node", "graph"
KINDS = ("multiclass", "multilabel", "regression")


def named_task(name: str, split: str | None = None, root: Root = None) -> BenchTask:
    """The task of a data set by its own name and with its own kind of split."""
    info = describe(name, root)
    return as_task(info.name, info.known_split(split), root)


def as_task(data: str | BenchTask, split: str | None = None, root: Root = None) -> BenchTask:
    """The task of a data set's name, with name and split as given; a task itself."""
    if isinstance(data, BenchTask):
        return data
    graphs = describe(data, root).task == "graph"
    return (GraphBenchTask if graphs else NodeBenchTask)(data, split, root)


def bench_task(
    data: Any,
    *,
    task: str | None = None,
    metric: str | None = None,
    split: Any = None,
    root: Root = None,
    name: str | None = None,
) -> BenchTask:
    """The task of anything that can be benchmarked, as `graphtheory.bench` takes it.

    One graph of a dataset is benchmarked by its nodes; `name` is that of the user's own data.
    """
    if task is not None and task not in (NODE, GRAPH, *KINDS):
        raise ValueError(f"task: got {task!r}, expected node, graph or {', '.join(KINDS)}")
    if isinstance(data, str):
        named = named_task(data, split, root)
        _fits_named(named, data, task, metric)
        return named
    if isinstance(data, BenchTask):
        for argument, value in (("task", task), ("metric", metric), ("split", split)):
            if value is not None:
                raise ValueError(f"{argument}: got {value!r}, expected None: a task has its own")
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
        data = data[0] if len(data) == 1 and task in (None, NODE) else data
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


def _fits_named(named: BenchTask, name: str, task: str | None, metric: str | None) -> None:
    _fits(task, NODE if isinstance(named, NodeBenchTask) else GRAPH, name)
    if task in KINDS and task != (kind := describe(name, named.root).kind):
        raise ValueError(f"task: got {task!r}, expected {kind!r}, that of {name}")
    if metric is not None and metric != named.measure.name:
        raise ValueError(f"metric: got {metric!r}, expected {named.measure.name!r}, that of {name}")


def _fits(task: str | None, found: str, what: str) -> None:
    asked = GRAPH if task in KINDS else task
    if asked not in (None, found):
        raise ValueError(f"task: got {task!r}, but {what} is a task of the kind {found!r}")
