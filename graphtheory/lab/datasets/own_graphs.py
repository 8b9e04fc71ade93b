"""The user's own graphs: a list of PyG `Data`, checked graph by graph, as a `GraphSet`."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, cast

import torch
from torch import Generator, Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from graphtheory.disk import load_tensors
from graphtheory.lab.datasets import graph_store as store
from graphtheory.lab.datasets.catalogue import known_seed
from graphtheory.lab.datasets.dataset_info import Kind
from graphtheory.lab.datasets.graph_checks import METRICS, alike, level_of, plain, targets_of
from graphtheory.lab.datasets.graph_sets import GraphSet, SetFacts
from graphtheory.lab.datasets.splits import Split, positions_by_fraction, stratified

_OF_DATA = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]  # what a stored Data consists of


def graph_set(
    graphs: Sequence[Data],
    *,
    name: str = "graphs",
    kind: Kind | None = None,
    metric: str | None = None,
    split: Sequence[Any] = (0.8, 0.1, 0.1),
    seed: int = 0,
) -> GraphSet:
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
        split: Fractions for training, validation and test, drawn by class where each class
            is large enough for every part; or three lists of positions.
        seed: Draws the split.

    Shapes:
        x [n, F]; edge_index int64 [2, E]; edge_attr [E, D]; y int64 [1] or [n], or float [1, T].

    Raises:
        TypeError: If an entry of `graphs` is no `Data`; the message has its position.
        ValueError: If a graph does not fit the others or itself: no nodes, ids out of range, other
            widths or types, a value that is not finite, labels of another shape, no label left. The
            message has its position. Also for a metric of another kind and a split that leaves a
            part empty.

    Example:
        >>> edge = torch.tensor([[0, 1], [1, 0]])
        >>> graphs = [
        ...     Data(x=torch.ones(2, 3), edge_index=edge, y=torch.tensor([i % 2]))
        ...     for i in range(20)
        ... ]
        >>> made = graph_set(graphs)
        >>> made.kind, made.num_outputs, len(made.train_index)
        ('multiclass', 2, 16)
    """
    if not graphs:
        raise ValueError("graphs: got none, expected a list of Data")
    rows = [plain(graph, position) for position, graph in enumerate(graphs)]
    level = level_of(rows)
    found, targets = targets_of(rows, level, kind)
    for graph, y in zip(rows, targets, strict=True):
        graph.y = y
    stored = store.packed(alike(rows))
    store.check(stored)
    outputs = _outputs(stored, found)
    smiles = [graph.get("smiles") for graph in graphs]
    facts = SetFacts(
        name,
        found,
        level,
        outputs,
        _known_metric(found, metric),
        x_categories=store.categories_of(stored, "x"),
        edge_categories=store.categories_of(stored, "edge_attr"),
        smiles=smiles if all(isinstance(text, str) for text in smiles) else None,
    )
    parts, how = _split(split, stored, facts, len(rows), known_seed(seed))
    return GraphSet(stored, facts, parts, how)


def read_graph_file(path: str | PathLike[str]) -> Data | list[Data]:
    """The graph or the list of graphs that `torch.save` stored, read without running anything.

    Args:
        path: A file that holds a PyG `Data` or a list of them.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: If the file holds anything else; the message says what is expected.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"data: there is no file {file}")
    wanted = "expected a PyG Data or a list of Data, stored by torch.save(graphs, path)"
    known = torch.serialization.get_safe_globals()  # PyG's, which the context would take away
    try:
        with torch.serialization.safe_globals([one for one in _OF_DATA if one not in known]):
            found = load_tensors(file.read_bytes())
    except Exception as error:  # a file that is none fails in a dozen ways
        raise ValueError(f"data: {file} is not a file written by torch.save; {wanted}") from error
    if isinstance(found, Data):
        return found
    if isinstance(found, (list, tuple)) and found and all(isinstance(g, Data) for g in found):
        return list(found)
    raise ValueError(f"data: {file} holds {type(found).__name__}, {wanted}")


def _outputs(stored: dict[str, Tensor], kind: Kind) -> int:
    y = stored["y"]
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


def _known_metric(kind: Kind, metric: str | None) -> str:
    known = METRICS[kind]
    if metric is not None and metric not in known:
        raise ValueError(f"metric: got {metric!r}, a {kind} task has {', '.join(known)}")
    return metric or known[0]


def _split(
    split: Sequence[Any], stored: dict[str, Tensor], facts: SetFacts, size: int, seed: int
) -> tuple[Split, str]:
    if not isinstance(split, (tuple, list)) or len(split) != 3:
        raise ValueError(f"split: got {split!r}, expected three fractions or lists of positions")
    if all(isinstance(part, (int, float)) for part in split):
        return _by_fractions(cast("Sequence[float]", split), stored["y"], facts, size, seed)
    parts = Split(*(_positions(part) for part in split))
    whole = torch.cat(list(parts))
    if len(whole) and (int(whole.min()) < 0 or int(whole.max()) >= size):
        raise ValueError(
            f"split: positions {int(whole.min())}..{int(whole.max())} of {size} graphs"
        )
    if len(whole.unique()) != len(whole):
        raise ValueError("split: a graph is in two parts, or twice in one")
    return _filled(parts, split, size), "own"


def _positions(part: Any) -> Tensor:
    found = torch.as_tensor(part)
    if found.numel() and (found.is_floating_point() or found.dtype == torch.bool):
        raise ValueError(f"split: got {found.dtype} {list(found.shape)}, expected positions, int64")
    return found.to(torch.int64).view(-1)


def _by_fractions(
    split: Sequence[float], y: Tensor, facts: SetFacts, size: int, seed: int
) -> tuple[Split, str]:
    train, val, test = split
    if min(split) <= 0 or abs(train + val + test - 1) > 1e-6:
        raise ValueError(f"split: got {tuple(split)}, expected three positive fractions of sum 1")
    generator = Generator().manual_seed(seed)
    by_class = facts.kind == "multiclass" and facts.level == "graph"
    if by_class and int(y.unique(return_counts=True)[1].min()) * min(val, test) >= 1:
        parts = stratified(y, val=val, test=test, generator=generator)
    else:
        parts = positions_by_fraction(size, val=val, test=test, generator=generator)
    name = "random-" + "-".join(f"{100 * part:g}" for part in split)
    return _filled(parts, split, size), name


def _filled(parts: Split, split: Sequence[Any], size: int) -> Split:
    for part, positions in zip(Split._fields, parts, strict=True):
        if len(positions) == 0:
            given = tuple(split) if isinstance(split[0], float) else "the lists"
            raise ValueError(
                f"split: {given} of {size} graphs leaves none for {part}; give larger fractions or "
                "three lists of positions"
            )
    return parts
