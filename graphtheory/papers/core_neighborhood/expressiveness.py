"""Pairs of graphs that are hard to tell apart: BREC, SR25, EXP, CEXP, CSL."""

from itertools import combinations

import networkx as nx
import torch
from torch_geometric.data import Data

from graphtheory.lab.datasets import files
from graphtheory.lab.datasets.catalogue import Root, describe
from graphtheory.lab.datasets.embedded import skip_rings
from graphtheory.lab.datasets.graph_readers import graphsat

_COPIES = 64  # of a pair in BREC: 32 renumberings of each graph, the two graphs in turn
PAIRS = ("brec", "sr25", "csl", "exp", "cexp")


def expressiveness_pairs(name: str, root: Root = None) -> list[tuple[Data, Data]]:
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

    x is 1 for every node, in EXP and CEXP a category of two. "csl" needs no `root`.

    Raises:
        ValueError: An unknown name; case does not matter.
        FileNotFoundError: Raw files are missing; the message says which, and where they go.
        DamagedFileError: A raw file cannot be read.

    Source: Wang and Zhang, BREC, 2023; Balcilar et al., SR25, 2021; Abboud et al., EXP, 2021;
        Murphy et al., CSL, 2019.

    Example:
        >>> len(expressiveness_pairs("csl"))
        45
    """
    known = name.lower()
    if known not in PAIRS:
        raise ValueError(f"name: got {name!r}, expected one of {', '.join(PAIRS)}")
    if known == "csl":
        return list(combinations(skip_rings(copies=1), 2))
    info = describe(known)
    ((name, path),) = files.locate(info, root).items()
    try:
        if info.family == "graphsat":
            graphs = graphsat(path)
            return list(zip(graphs[::2], graphs[1::2], strict=True))
        lines = path.read_text(encoding="ascii").split()
        if known == "sr25":
            return list(combinations(map(_from_graph6, lines), 2))
        if not lines or len(lines) % (2 * _COPIES):
            raise ValueError(f"{len(lines)} graphs, expected a multiple of {2 * _COPIES}")
        # The first two graphs of each pair; the second half repeats graphs, for another test.
        tested = range(0, len(lines) // 2, _COPIES)
        return [(_from_graph6(lines[at]), _from_graph6(lines[at + 1])) for at in tested]
    except (ValueError, IndexError, nx.NetworkXError) as error:
        raise files.DamagedFileError(
            f"{info.name}: {path} cannot be read, it is truncated or altered ({error})"
        ) from error


def _from_graph6(line: str) -> Data:
    graph = nx.from_graph6_bytes(line.encode())
    edges = torch.tensor(list(graph.edges), dtype=torch.int64).view(-1, 2).t()
    return Data(
        x=torch.ones(graph.number_of_nodes(), 1),
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
    )
