"""What a list of graphs must be like to be a set: checked graph by graph, named by position."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphtheory.lab.datasets.catalogue import Kind

METRICS: dict[str, tuple[str, ...]] = {
    "multiclass": ("accuracy", "f1", "rocauc"),
    "multilabel": ("rocauc", "ap"),
    "regression": ("rmse", "mae"),
}
"""Scores by kind of task; the first is the default."""
_CATEGORIES = 2**20  # of a column; a larger integer is no category but an id, a time or a count
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def plain(graph: Any, position: int) -> Data:
    """x, edge_index, edge_attr and y of a graph, with two dimensions and of few types."""
    at = f"graph {position}"
    if not isinstance(graph, Data):
        raise TypeError(f"{at}: got {type(graph).__name__}, expected a PyG Data")
    index = graph.edge_index
    if not isinstance(index, Tensor) or index.dim() != 2 or index.size(0) != 2:
        raise ValueError(f"{at}: edge_index is {_shown(index)}, expected int64 [2, E]")
    if index.dtype != torch.int64:
        raise ValueError(f"{at}: edge_index is {_shown(index)}, expected int64 [2, E]")
    x = _columns(graph.x, f"{at}: x", "[n, F]")
    out = Data(x=x, edge_index=index.cpu(), y=graph.y)
    if len(x) == 0:
        raise ValueError(f"{at} has no nodes, expected one or more")
    if graph.edge_attr is not None:
        out.edge_attr = _columns(graph.edge_attr, f"{at}: edge_attr", "[E, D]")
        if len(out.edge_attr) != index.size(1):
            raise ValueError(
                f"{at}: edge_attr has {len(out.edge_attr)} rows, expected {index.size(1)}, one for "
                "each column of edge_index"
            )
    return out


def _columns(value: Any, what: str, shape: str) -> Tensor:
    expected = f"expected real numbers or integers of shape {shape}"
    if not isinstance(value, Tensor) or value.dim() not in (1, 2):
        raise ValueError(f"{what} is {_shown(value)}, {expected}")
    if not value.is_floating_point() and value.dtype not in _INTEGERS:
        raise ValueError(f"{what} is {_shown(value)}, {expected}")
    if value.layout != torch.strided:
        raise ValueError(f"{what} is sparse, expected a dense tensor {shape}")
    if value.dim() == 2 and value.size(1) == 0:
        raise ValueError(f"{what} is {_shown(value)}, expected one column or more")
    if not value.is_floating_point() and value.numel() and int(value.max()) >= _CATEGORIES:
        raise ValueError(
            f"{what} holds the integer {int(value.max())}, expected categories below "
            f"{_CATEGORIES:,}; numbers have to be float"
        )
    plain = value.detach().cpu().float() if value.is_floating_point() else value.cpu().long()
    return plain.view(-1, 1) if plain.dim() == 1 else plain


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return "missing" if value is None else type(value).__name__


def alike(graphs: list[Data]) -> list[Data]:
    """The graphs, after a look that all have the columns of the first."""
    first = graphs[0]
    for position, graph in enumerate(graphs):
        for part in ("x", "edge_attr"):
            here, there = graph.get(part), first.get(part)
            if (here is None) != (there is None):
                raise ValueError(
                    f"graph {position}: {part} is {_shown(here)}, that of graph 0 {_shown(there)}; "
                    "expected it on all graphs or on none"
                )
            if here is None or there is None:
                continue
            if here.size(1) != there.size(1) or here.dtype != there.dtype:
                raise ValueError(
                    f"graph {position}: {part} is {_shown(here)}, expected {there.size(1)} columns "
                    f"of {str(there.dtype).removeprefix('torch.')} as in graph 0"
                )
    return graphs


def level_of(graphs: list[Data]) -> str:
    """Whether y belongs to the graphs or to their nodes."""
    for position, graph in enumerate(graphs):
        if not isinstance(graph.y, Tensor):
            raise ValueError(f"graph {position}: y is {_shown(graph.y)}, expected a tensor")
        graph.y = graph.y.detach().cpu()
        graph.y = graph.y.view(1) if graph.y.dim() == 0 else graph.y
    if all(graph.y.size(0) == 1 for graph in graphs):
        return "graph"
    lengths = [(len(graph.y), len(graph.x)) for graph in graphs]
    of_nodes = sum(y == nodes for y, nodes in lengths) > sum(y == 1 for y, _ in lengths)
    fitting = (y == (nodes if of_nodes else 1) for y, nodes in lengths)
    wrong = next((position for position, fits in enumerate(fitting) if not fits), -1)
    if wrong < 0:
        return "node"
    graph = graphs[wrong]
    raise ValueError(
        f"graph {wrong}: y is {_shown(graph.y)}, expected int64 [1] or float [1, T] for one graph, "
        f"or int64 [{len(graph.x)}], one class for each of its nodes"
    )


class Targets(NamedTuple):
    """The kind of the task, and y of each graph in the type and shape of that kind."""

    kind: Kind
    y: list[Tensor]


def targets_of(graphs: list[Data], level: str, kind: Kind | None) -> Targets:
    """The kind of the task, and y of each graph in the type and shape of that kind."""
    if kind is not None and kind not in METRICS:
        raise ValueError(f"kind: got {kind!r}, expected one of {', '.join(METRICS)}")
    y = [graph.y for graph in graphs]
    if kind is None:
        kind = _inferred(y)
    for position, value in enumerate(y):
        ours = _as_classes(value, level) if kind == "multiclass" else _as_row(value, level)
        width = y[0].numel() if level == "graph" else None
        if ours is None or (kind != "multiclass" and ours.numel() != width):
            expected = "int64 [1]" if kind == "multiclass" else f"float [1, {width}] as graph 0"
            if level == "node":
                expected = f"int64 [{len(graphs[position].x)}]"
            raise ValueError(f"graph {position}: y is {_shown(value)}, expected {expected}")
        _check_target(ours, position, kind, level)
        y[position] = ours
    return Targets(kind, y)


def _inferred(y: list[Tensor]) -> Kind:
    real = y[0].is_floating_point()
    for position, value in enumerate(y):
        if value.is_floating_point() != real:
            raise ValueError(
                f"graph {position}: y is {_shown(value)}, expected "
                f"{'real numbers' if real else 'integers'} as in graph 0, or kind="
            )
    if not real:
        return "multilabel" if all(v.dim() == 2 and v.size(1) > 1 for v in y) else "multiclass"
    known = torch.cat([value.flatten() for value in y])
    known = known[~known.isnan()]
    return "multilabel" if bool(((known == 0) | (known == 1)).all()) else "regression"


def _as_classes(value: Tensor, level: str) -> Tensor | None:
    if value.is_floating_point() or value.dtype not in (*_INTEGERS, torch.bool):
        return None
    flat = value.view(-1).long()
    fits = flat.numel() == len(value) and (level == "node" or flat.numel() == 1)
    return flat if fits else None


def _as_row(value: Tensor, level: str) -> Tensor | None:
    if level == "node" or value.dim() > 2 or value.is_complex():
        return None
    return value.float().view(1, -1)


def _check_target(y: Tensor, position: int, kind: Kind, level: str) -> None:
    at = f"graph {position}: y"
    if kind == "multiclass":
        lowest = -1 if level == "node" else 0
        if int(y.min()) < lowest:
            raise ValueError(f"{at} holds {int(y.min())}, expected classes from {lowest}")
        return
    if bool(y.isinf().any()):
        raise ValueError(f"{at} holds an infinite value")
    if bool(y.isnan().all()):
        raise ValueError(f"{at} is NaN, so that no label is left; take the graph out")
    known = y[~y.isnan()]
    if kind == "multilabel" and bool(((known != 0) & (known != 1)).any()):
        raise ValueError(f"{at} holds {known.tolist()}, expected labels 0, 1 or NaN")
