"""The user's own graphs: a list of PyG `Data`, checked graph by graph, becomes a `GraphSet`."""

import io
import warnings
from collections.abc import Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from graphtheory.disk import load_tensors
from graphtheory.lab.datasets import graph_sets as store
from graphtheory.lab.datasets.catalogue import Kind, known_seed
from graphtheory.lab.datasets.graph_sets import GraphSet, SetFacts
from graphtheory.lab.datasets.splits import Split, stratified

METRICS: dict[str, tuple[str, ...]] = {  # the first is the default
    "multiclass": ("accuracy", "f1", "rocauc"),
    "multilabel": ("rocauc", "ap"),
    "regression": ("rmse", "mae"),
}
_OF_DATA = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]  # what a stored Data consists of
_CATEGORIES = 2**20  # of a column; a larger integer is no category but an id, a time or a count
_OTHERS = {
    "DynamicInheritanceGetter": "of a Batch save batch.to_data_list()",
    "NodeStorage": "of a HeteroData save data.to_homogeneous()",
}
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def graph_set(
    graphs: Sequence[Data], *, name: str = "graphs", kind: Kind | None = None,
    metric: str | None = None, split: Sequence[Any] = (0.8, 0.1, 0.1), seed: int = 0,
) -> GraphSet:  # fmt: skip
    """Your own graphs as the set that `load_graphs` gives.

    Integers in y are classes: one of each graph, or one of each node, -1 for a node without one.
    Real numbers in y, one row a graph, are labels where all are 0, 1 or NaN, values otherwise; NaN
    is a missing one. Integers in x and edge_attr are categories, real numbers features; a tensor
    of one dimension is one column. Other attributes are left out, but for `smiles`.

    Args:
        graphs: At least one graph; every graph with the same columns.
        name: Name of the set, for reports.
        kind: "multiclass", "multilabel" or "regression"; None takes it from y.
        metric: A score of that kind; None takes the first of `METRICS`.
        split: Fractions, drawn by class where each class is large enough for every part; or three
            lists of positions.
        seed: Draws the split.

    Example:
        >>> edge, x = torch.tensor([[0, 1], [1, 0]]), torch.ones(2, 3)
        >>> y = torch.arange(20)[:, None] % 2
        >>> made = graph_set([Data(x=x, edge_index=edge, y=label) for label in y])
        >>> made.kind, made.num_outputs, len(made.train_index)
        ('multiclass', 2, 16)
    """
    if not graphs:
        raise ValueError("graphs: got none, expected a list of Data")
    rows = [_checked(graph, f"graph {position}") for position, graph in enumerate(graphs)]
    if any(graph.get("edge_weight") is not None for graph in graphs):
        why = "is left out; store it as edge_attr = edge_weight[:, None]"
        warnings.warn(f"{name}: edge_weight {why}", stacklevel=2)
    level = _level_of(rows)
    if kind is not None and kind not in METRICS:
        raise ValueError(f"kind: got {kind!r}, expected one of {', '.join(METRICS)}")
    found = kind or _inferred([graph.y for graph in rows])
    for position, graph in enumerate(rows):
        graph.y = _target(graph, f"graph {position}: y", level, found, rows[0].y.numel())
    _check_alike(rows)
    stored = store.packed(rows)
    store.check(stored)
    smiles = [graph.get("smiles") for graph in graphs]
    outputs, known = outputs_of(stored["y"], found), METRICS[found]
    if metric is not None and metric not in known:
        raise ValueError(f"metric: got {metric!r}, a {found} task has {', '.join(known)}")
    facts = SetFacts(
        name, found, level, outputs, metric or known[0],
        store.categories_of(stored, "x"), store.categories_of(stored, "edge_attr"),
        smiles if all(isinstance(text, str) for text in smiles) else None,
    )  # fmt: skip
    classes = stored["y"] if found == "multiclass" and level == "graph" else None
    parts, how = _split(split, classes, len(rows), known_seed(seed))
    return GraphSet(stored, facts, parts, how)


def read_graph_file(path: str | PathLike[str]) -> Data | list[Data]:
    """The graph or the list of graphs that `torch.save` stored, read without running anything."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"data: there is no file {file}")
    content = file.read_bytes()
    wanted = "expected a PyG Data or a list of Data, stored by torch.save(graphs, path)"
    known = torch.serialization.get_safe_globals()  # PyG's, which the context would take away
    with torch.serialization.safe_globals([one for one in _OF_DATA if one not in known]):
        try:
            found = load_tensors(content)
        except Exception as error:  # a file that is none fails in a dozen ways
            raise ValueError(f"data: {file} {_complaint(content)}; {wanted}") from error
    graphs = list(found) if isinstance(found, (list, tuple)) else [found]
    wrong = next((at for at, graph in enumerate(graphs) if not isinstance(graph, Data)), None)
    for at, graph in enumerate(graphs if wrong is None else ()):
        for key, value in graph:
            if isinstance(value, Tensor) and (value.is_meta or value.is_quantized):
                what = "on meta, without its numbers" if value.is_meta else "quantized"
                raise ValueError(f"data: {file} (graph {at}: {key}) is {what}, expected numbers")
    if wrong is None and graphs:
        return found if isinstance(found, Data) else graphs
    what = type(found).__name__ + (f" with {_shown(graphs[wrong])} at {wrong}" if wrong else "")
    what = what if graphs else "an empty list"
    raise ValueError(f"data: {file} holds {what}, {wanted}")


def _complaint(content: bytes) -> str:
    """Say which classes a file holds beside graphs; or that it is none of torch's."""
    refused: list[str] = []
    with suppress(Exception):  # of an archive of another kind, or a pickle that breaks off
        refused = torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(content))
    if not refused:
        how = "arrays and columns become Data(x=torch.as_tensor(x), edge_index=..., y=...), and "
        how += "GraphML torch_geometric.utils.from_networkx(networkx.read_graphml(path))"
        return f"is not a whole file of torch.save: it begins {content[:12]!r}; {how}"
    hints = (hint for name, hint in _OTHERS.items() if any(one.endswith(name) for one in refused))
    hint = next(hints, "take it out, or make a tensor of it")
    what, take = f"holds {', '.join(sorted(refused))}; {hint}", lambda *_: None
    made = {"__init__": take, "__setstate__": take}
    stand_ins = {type(name, (), made): name for name in refused}  # which show where it lies
    with suppress(Exception), torch.serialization.safe_globals([*stand_ins.items()]):
        found = load_tensors(content)
        for at, graph in enumerate(found if isinstance(found, list) else [found]):
            for key, value in graph:
                parts = value if isinstance(value, list) else [value]
                if any(type(part) in stand_ins for part in parts):
                    return f"(graph {at}: {key}) {what}: graph.{key} = torch.as_tensor(graph.{key})"
    return what


def _checked(graph: Any, at: str) -> Data:
    """A graph's x, edge_index, edge_attr and y, with two dimensions and of few types."""
    if not isinstance(graph, Data):
        raise TypeError(f"{at}: got {type(graph).__name__}, expected a PyG Data")
    index, y = graph.edge_index, graph.y
    if not isinstance(index, Tensor) or index.shape[:-1] != (2,) or index.dtype != torch.int64:
        raise _unfit(f"{at}: edge_index", index, "int64 [2, E]")
    out = Data(x=_columns(graph.x, f"{at}: x", "[n, F]"), edge_index=index.cpu())
    if graph.edge_attr is not None:
        out.edge_attr = _columns(graph.edge_attr, f"{at}: edge_attr", "[E, D]")
        if len(out.edge_attr) != index.size(1):
            raise ValueError(
                f"{at}: edge_attr has {len(out.edge_attr)} rows, expected {index.size(1)}, one for "
                "each column of edge_index"
            )
    if not isinstance(y, Tensor):
        raise _unfit(f"{at}: y", y, "a tensor")
    out.y = y.detach().cpu().view(1) if y.dim() == 0 else y.detach().cpu()
    return out


def _columns(value: Any, what: str, shape: str) -> Tensor:
    """Features as float or categories as int64, in two dimensions."""
    tensor = isinstance(value, Tensor) and value.dim() in (1, 2)
    real = tensor and value.is_floating_point()
    if not real and not (tensor and value.dtype in _INTEGERS):
        raise _unfit(what, value, f"real numbers or integers of shape {shape}")
    if value.layout != torch.strided:
        raise ValueError(f"{what} is sparse, expected a dense tensor {shape}")
    if value.dim() == 2 and value.size(1) == 0:
        raise _unfit(what, value, "one column or more")
    if not real and value.numel() and int(value.max()) >= _CATEGORIES:
        raise ValueError(
            f"{what} holds the integer {int(value.max())}, expected categories below "
            f"{_CATEGORIES:,}; numbers have to be float"
        )
    made = value.detach().cpu().float() if real else value.cpu().long()
    return made.view(-1, 1) if made.dim() == 1 else made


def _unfit(what: str, value: Any, expected: str) -> ValueError:
    return ValueError(f"{what} is {_shown(value)}, expected {expected}")


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return "missing" if value is None else type(value).__name__


def _check_alike(graphs: list[Data]) -> None:
    """All graphs must have the columns of the first."""
    for position, graph in enumerate(graphs):
        for part in ("x", "edge_attr"):
            here, first = (
                "none" if (x := one.get(part)) is None
                else f"{x.size(1)} columns of {str(x.dtype).removeprefix('torch.')}"
                for one in (graph, graphs[0])
            )  # fmt: skip
            if here != first:
                what = f"graph {position}: {part}"
                raise _unfit(what, graph.get(part), f"{first} as in graph 0")


def _level_of(graphs: list[Data]) -> str:
    """Whether y belongs to the graphs or to their nodes."""
    of_one = [len(graph.y) == 1 for graph in graphs]
    if all(of_one):
        return "graph"
    of_nodes = [len(graph.y) == len(graph.x) for graph in graphs]
    fits = of_nodes if sum(of_nodes) > sum(of_one) else of_one
    if all(fits):
        return "node"
    wrong = fits.index(False)
    nodes = f"int64 [{len(graphs[wrong].x)}], one class for each of its nodes"
    expected = f"int64 [1] or float [1, T] for one graph, or {nodes}"
    raise _unfit(f"graph {wrong}: y", graphs[wrong].y, expected)


def _inferred(y: list[Tensor]) -> Kind:
    real = y[0].is_floating_point()
    for position, value in enumerate(y):
        if value.is_floating_point() != real:
            numbers = "real numbers" if real else "integers"
            raise _unfit(f"graph {position}: y", value, f"{numbers} as in graph 0, or kind=")
    if not real:
        return "multilabel" if all(v.dim() == 2 and v.size(1) > 1 for v in y) else "multiclass"
    known = torch.cat([value.flatten() for value in y])
    known = known[~known.isnan()]
    return "multilabel" if bool(((known == 0) | (known == 1)).all()) else "regression"


def _target(graph: Data, what: str, level: str, kind: Kind, width: int) -> Tensor:
    """A graph's y in the type and shape of its kind of task, of `width` labels or values."""
    y = graph.y
    if kind == "multiclass":
        one_each = y.numel() == len(y) and (level == "node" or len(y) == 1)
        fits, expected = one_each and y.dtype in (*_INTEGERS, torch.bool), "int64 [1]"
    else:
        fits = level == "graph" and y.dim() <= 2 and not y.is_complex() and y.numel() == width
        expected = f"float [1, {width}] as graph 0"
    if not fits:
        raise _unfit(what, y, f"int64 [{len(graph.x)}]" if level == "node" else expected)
    if kind == "multiclass":
        y, lowest = y.view(-1).long(), -1 if level == "node" else 0
        if int(y.min()) < lowest:
            raise ValueError(f"{what} holds {int(y.min())}, expected classes from {lowest}")
        return y
    y = y.float().view(1, -1)
    known = y[~y.isnan()]
    if bool(y.isinf().any()):
        raise ValueError(f"{what} holds an infinite value")
    if not len(known):
        raise ValueError(f"{what} is NaN, so that no label is left; take the graph out")
    if kind == "multilabel" and bool(((known != 0) & (known != 1)).any()):
        raise ValueError(f"{what} holds {known.tolist()}, expected labels 0, 1 or NaN")
    return y


def outputs_of(y: Tensor, kind: Kind) -> int:
    """The number of classes, labels or values."""
    if kind != "multiclass":
        return y.size(1)
    classes, labels = int(y.max()) + 1, int((y >= 0).sum())
    if classes < 2:
        raise ValueError(f"y: got {classes} class in all graphs, expected at least 2")
    if classes > labels:
        raise ValueError(
            f"y: the largest class is {classes - 1} among {labels} labels, expected classes "
            "numbered from 0; values to predict have to be float, or kind='regression'"
        )
    return classes


def _split(split: Sequence[Any], y: Tensor | None, size: int, seed: int) -> tuple[Split, str]:
    """The parts that were asked for and their name; `y` are classes to draw by."""
    if not isinstance(split, (tuple, list)) or len(split) != 3:
        raise ValueError(f"split: got {split!r}, expected three fractions or lists of positions")
    if drawn := all(isinstance(part, (int, float)) for part in split):
        _, val, test = split
        if not (min(split) > 0 and abs(sum(split) - 1) <= 1e-6):  # NaN is neither
            raise ValueError(
                f"split: got {tuple(split)}, expected three positive fractions of sum 1"
            )
        if y is None or int(y.unique(return_counts=True)[1].min()) * min(val, test) < 1:
            y = torch.zeros(size)
        parts = stratified(y, val=val, test=test, generator=Generator().manual_seed(seed))
    else:
        parts = Split(*map(_positions, split))
    whole = torch.cat(list(parts))
    if len(whole) and (int(whole.min()) < 0 or int(whole.max()) >= size):
        given = f"{int(whole.min())}..{int(whole.max())}"
        raise ValueError(f"split: positions {given} of {size} graphs")
    if len(whole.unique()) != len(whole):
        raise ValueError("split: a graph is in two parts, or twice in one")
    for part, positions in zip(Split._fields, parts, strict=True):
        if len(positions) == 0:
            raise ValueError(
                f"split: {tuple(split) if drawn else 'the lists'} of {size} graphs leaves none for "
                f"{part}; give larger fractions or three lists of positions"
            )
    return parts, "random-" + "-".join(f"{100 * part:g}" for part in split) if drawn else "own"


def _positions(part: Any) -> Tensor:
    found = torch.as_tensor(part)
    if found.numel() and (found.is_floating_point() or found.dtype == torch.bool):
        raise ValueError(f"split: got {found.dtype} {list(found.shape)}, expected positions, int64")
    return found.to(torch.int64).view(-1)
