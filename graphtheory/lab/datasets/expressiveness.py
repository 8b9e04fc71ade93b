"""Graphs that are hard to tell apart: BREC, SR25, EXP, CEXP, CSL."""

from __future__ import annotations

from itertools import combinations
from os import PathLike
from pathlib import Path

import networkx as nx
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphtheory.lab.datasets import files, generated_sets
from graphtheory.lab.datasets.catalogue import describe
from graphtheory.lab.datasets.dataset_info import DatasetInfo
from graphtheory.lab.datasets.graph_store import packed, with_categories

_COPIES = 64  # of a pair in BREC: 32 renumberings of each graph, the two graphs in turn
_PAIRS = ("brec", "sr25", "csl", "exp", "cexp")


def expressiveness_pairs(
    name: str, root: str | PathLike[str] | None = None
) -> list[tuple[Data, Data]]:
    """Pairs of graphs that are not isomorphic, for a network to tell apart.

    ======  ===========================================================================
    name    pairs
    ======  ===========================================================================
    brec    those of the file: 400 of the full BREC, 260 of the one with basic, regular and
            extension graphs alone
    sr25    all 105 pairs of 15 strongly regular graphs of 25 nodes
    csl     all 45 pairs of the 10 classes, one graph each
    exp     600 pairs that color refinement cannot tell apart
    cexp    600 pairs, of which it tells half apart
    ======  ===========================================================================

    x is 1 for every node, in EXP and CEXP a category of two.

    Args:
        name: One of the names above; case does not matter.
        root: Folder with the raw files; not needed for "csl".

    Raises:
        ValueError: An unknown name.
        FileNotFoundError: Raw files are missing; the message says which, and where they go.
        DamagedFileError: A raw file cannot be read.

    Source: Wang and Zhang, BREC, 2023; Balcilar et al., SR25, 2021; Abboud et al., EXP, 2021;
        Murphy et al., CSL, 2019.

    Example:
        >>> len(expressiveness_pairs("csl"))
        45
    """
    known = name.lower()
    if known not in _PAIRS:
        raise ValueError(f"name: got {name!r}, expected one of {', '.join(_PAIRS)}")
    if known == "csl":
        graphs = unpacked(generated_sets.csl())[:: generated_sets.CSL_COPIES]
        return list(combinations(graphs, 2))
    info = describe(known)
    ((name, path),) = files.locate(info, root).items()
    try:
        if info.family == "graphsat":
            graphs = _graphsat(path)
            return list(zip(graphs[::2], graphs[1::2], strict=True))
        lines = [line for line in path.read_text(encoding="ascii").split("\n") if line]
        if known == "sr25":
            return list(combinations(map(_from_graph6, lines), 2))
        return _brec(lines)
    except (ValueError, IndexError, nx.NetworkXError) as error:
        raise files.DamagedFileError(
            f"{info.name}: {path} cannot be read, it is truncated or altered ({error})"
        ) from error


def _brec(lines: list[str]) -> list[tuple[Data, Data]]:
    """The first two graphs of each pair; the second half repeats graphs, for another test."""
    if not lines or len(lines) % (2 * _COPIES):
        raise ValueError(f"{len(lines)} graphs, expected a multiple of {2 * _COPIES}")
    tested = lines[: len(lines) // 2]
    return [
        (_from_graph6(tested[first]), _from_graph6(tested[first + 1]))
        for first in range(0, len(tested), _COPIES)
    ]


def _from_graph6(line: str) -> Data:
    graph = nx.from_graph6_bytes(line.encode())
    edges = torch.tensor(list(graph.edges), dtype=torch.int64).view(-1, 2).t()
    return Data(
        x=torch.ones(graph.number_of_nodes(), 1),
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
    )


def read_graphsat(root: Path, info: DatasetInfo) -> dict[str, Tensor]:
    """All graphs of EXP or CEXP with their class: whether the formula behind it can be satisfied.

    Args:
        root: Private folder with a copy of the raw file.
        info: "exp" or "cexp".
    """
    return packed(_graphsat(root / info.folder / info.files[0])) | with_categories(x=(2,))


def _graphsat(path: Path) -> list[Data]:
    """A count; of each graph its size and class, then a line a node: type, degree, neighbors."""
    rows = [[int(word) for word in line.split()] for line in path.read_text().splitlines()]
    graphs, at = [], 1
    for _ in range(rows[0][0]):
        size, label = rows[at]
        nodes = rows[at + 1 : at + 1 + size]
        if len(nodes) < size or any(len(row) != 2 + row[1] for row in nodes):
            raise ValueError(f"line {at + 1}: a graph of {size} nodes does not fit the lines below")
        pairs = [(near, node) for node, row in enumerate(nodes) for near in row[2:]]
        graphs.append(
            Data(
                x=torch.tensor([[row[0]] for row in nodes]),
                edge_index=torch.tensor(pairs, dtype=torch.int64).view(-1, 2).t().contiguous(),
                y=torch.tensor([label]),
            )
        )
        at += 1 + size
    if at != len(rows):
        raise ValueError(f"{len(rows) - at} lines after the last graph")
    return graphs


def unpacked(stored: dict[str, Tensor]) -> list[Data]:
    """The graphs with x, edge_index and y of a store."""
    x, edges = stored["slices/x"].tolist(), stored["slices/edge_index"].tolist()
    return [
        Data(
            x=stored["x"][x[i] : x[i + 1]],
            edge_index=stored["edge_index"][:, edges[i] : edges[i + 1]],
            y=stored["y"][i : i + 1],
        )
        for i in range(len(x) - 1)
    ]
