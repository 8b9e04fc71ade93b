"""Shortest-path distances beside scipy, networkx and igraph, in one run.

    python benchmarks/distances.py --root DATA --full --out benchmarks/results/cpu-distances.csv

Answers are compared with scipy's before anything is timed. A library that would take a minute is
timed on some sources or pairs in every round and scaled; its row says so.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse
import torch
import tyro
from scipy.sparse.csgraph import dijkstra

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks._rows import ratios, save, seconds, show
from graphtheory import Neighborhood
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.datasets import graphs
from graphtheory.structure import UNREACHABLE, hop_ball, shortest_path_distance

CUTOFF = 20
PUBMED_NODES, PUBMED_EDGES = 19_717, 44_324
ARXIV_NODES, ARXIV_EDGES = 169_343, 1_166_243
Works = dict[str, Callable[[], object]]
Times = dict[str, list[float]]


def power_law(num_nodes: int, num_edges: int, max_degree: int) -> Neighborhood:
    """Undirected random graph whose expected degrees follow a power law of exponent 2.5."""
    draw = np.random.default_rng(0)
    share = np.arange(1, num_nodes + 1) ** (-1 / 1.5)
    for _ in range(20):  # cap the hubs, then spread what was cut over the others
        share = np.minimum(share / share.sum(), max_degree / (2 * num_edges))
    bounds = np.cumsum(share / share.sum())
    ends = np.searchsorted(bounds, draw.random((2, int(1.3 * num_edges))) * bounds[-1])
    ends = np.sort(draw.permutation(num_nodes)[ends], axis=0)
    ends = ends[:, ends[0] != ends[1]]
    keys = np.sort(draw.permutation(np.unique(ends[0] * num_nodes + ends[1]))[:num_edges])
    edges = torch.from_numpy(np.stack([keys // num_nodes, keys % num_nodes]))
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    return Neighborhood.from_edge_index(edges, num_nodes=num_nodes)


def pubmed(root: Path | None) -> tuple[Neighborhood, str]:
    """PubMed's topology, or where its files are missing a power-law graph of the same size."""
    try:
        data = graphs.load_topology("PubMed", root)
    except FileNotFoundError:
        return power_law(PUBMED_NODES, PUBMED_EDGES, 171), "power law of PubMed's size"
    return Neighborhood.from_edge_index(data.edge_index, num_nodes=data.num_nodes), "PubMed"


def adjacency(graph: Neighborhood) -> scipy.sparse.csr_array:
    """The graph as scipy reads it: entry [source, target]."""
    sources, targets = graph.edge_index().numpy()
    shape = (graph.num_src, graph.num_dst)
    return scipy.sparse.csr_array((np.ones(len(sources)), (sources, targets)), shape=shape)


def by_scipy(matrix: scipy.sparse.csr_array, sources: np.ndarray) -> np.ndarray:
    """Distances uint8 [N, S], as `shortest_path_distance` gives them."""
    columns = []
    for some in np.array_split(sources, max(1, len(sources) // 500)):  # float64, so not all at once
        hops = dijkstra(matrix, unweighted=True, indices=some)
        known = np.where(np.isinf(hops), UNREACHABLE, np.minimum(hops, CUTOFF))
        columns.append(known.astype(np.uint8))
    return np.concatenate(columns).T


def by_networkx(graph: nx.Graph, sources: list[int]) -> None:
    """Distances to everything within the cutoff, as dictionaries."""
    for source in sources:
        nx.single_source_shortest_path_length(graph, source, cutoff=CUTOFF)


def pairs_by_networkx(graph: nx.Graph, ids: list[list[int]]) -> None:
    """A shortest path for every pair, from both ends."""
    for source, target in ids:
        nx.bidirectional_shortest_path(graph, source, target)


def to_networkx(graph: Neighborhood) -> nx.Graph:
    """The graph as networkx reads it."""
    theirs = nx.Graph(graph.edge_index().T.tolist())
    theirs.add_nodes_from(range(graph.num_dst))
    return theirs


def to_igraph(graph: Neighborhood) -> Any:
    """The graph as igraph reads it, each undirected edge once."""
    edges = graph.edge_index()
    edges = edges[:, edges[0] < edges[1]]
    return import_module("igraph").Graph(n=graph.num_dst, edges=edges.T.tolist())


def compared(what: str, times: Times, about: dict[str, Any], notes: dict[str, Any]) -> list[Row]:
    """Rows of seconds, ours first, and how many times faster ours is, round by round."""
    ours, *others = times
    rows = [Row.of(f"{what}, {ours}", times[ours], "s", **about)]
    for other in others:
        package = other.split(" ", maxsplit=1)[0]
        note = about | {package: version(package)} | notes.get(other, {})
        faster = ratios(times[other], times[ours])
        rows.append(Row.of(f"{what}, {other}", times[other], "s", **note))
        rows.append(Row.of(f"{what}, times faster than {other}", faster, "1", **note))
    return rows


def all_pairs(graph: Neighborhood, name: str, repeats: int, full: bool) -> list[Row]:
    """A table of all pairs; the others from some sources, scaled, and scipy once in full."""
    nodes = graph.num_dst
    about = {"graph": name, "nodes": nodes, "edges": graph.num_edges, "cutoff": CUTOFF}
    matrix, ours = adjacency(graph), partial(shortest_path_distance, graph, cutoff=CUTOFF)
    some = np.random.default_rng(0).choice(nodes, 200, replace=False)
    sources = np.arange(nodes) if full else some
    start = time.perf_counter()
    expected = by_scipy(matrix, sources)
    taken = time.perf_counter() - start
    assert np.array_equal(ours().numpy()[:, sources], expected), "the table differs from scipy's"
    works: Works = {
        "graphtheory": ours,
        "scipy dijkstra": partial(by_scipy, matrix, some),
        "networkx": partial(by_networkx, to_networkx(graph), some[:20].tolist()),
    }
    parts = {"scipy dijkstra": 200, "networkx": 20}
    if find_spec("igraph"):
        works["igraph"] = partial(to_igraph(graph).distances, some.tolist())
        parts["igraph"] = 200
    times = seconds(works, repeats, warmup=1)
    for other, part in parts.items():
        times[other] = [t * nodes / part for t in times[other]]
    notes = {other: {"extrapolated": f"{part} of {nodes} sources"} for other, part in parts.items()}
    rows = compared("all pairs", times, about, notes)
    if full:
        rows.append(Row.of("all pairs, scipy dijkstra in full", taken, "s", **about))
    return rows


def powers(matrix: scipy.sparse.csr_array, radius: int) -> scipy.sparse.csr_array:
    """Hops within the radius from powers of the matrix; entry [source, target], 0 on itself."""
    reach = scipy.sparse.eye_array(matrix.shape[0], dtype=bool, format="csr")
    hops = scipy.sparse.csr_array(matrix.shape, dtype=np.uint8)
    for z in range(1, radius + 1):
        farther = (reach @ matrix + reach).astype(bool)
        hops += (farther > reach).astype(np.uint8) * np.uint8(z)
        reach = farther
    return hops


def balls(graph: Neighborhood, name: str, repeats: int) -> list[Row]:
    """The ball with its distances."""
    matrix, rows = adjacency(graph).astype(bool), []
    for radius in (2, 3):
        ball, distance = hop_ball(graph, radius)
        ours = scipy.sparse.csr_array((distance.numpy(), ball.edge_index().numpy()))
        ours.eliminate_zeros()
        assert (powers(matrix, radius) != ours).nnz == 0, "the ball differs from scipy's powers"
        works: Works = {
            "graphtheory": partial(hop_ball, graph, radius),
            "scipy powers": partial(powers, matrix, radius),
        }
        about = {"graph": name, "radius": radius, "pairs": ball.num_edges}
        rows += compared(f"{radius}-hop ball", seconds(works, repeats, warmup=1), about, {})
    return rows


def scattered_pairs(count: int, repeats: int) -> list[Row]:
    """Pairs drawn from a graph of ogbn-arxiv's size."""
    graph = power_law(ARXIV_NODES, ARXIV_EDGES, 4000)
    nodes, matrix = graph.num_dst, adjacency(graph)
    ids = torch.randint(nodes, (2, count), generator=torch.Generator().manual_seed(0))
    ours = partial(shortest_path_distance, graph, cutoff=CUTOFF)
    few = ids[0, :8]
    expected = by_scipy(matrix, few.numpy())
    assert np.array_equal(ours(sources=few).numpy(), expected), "columns differ from scipy's"
    crossed = torch.stack([few.repeat_interleave(nodes), torch.arange(nodes).repeat(8)])[:, ::7]
    assert np.array_equal(ours(pairs=crossed).numpy(), expected.T.flatten()[::7]), "pairs differ"
    found = ours(pairs=ids)
    joined = ids[:, found != UNREACHABLE].T.tolist()[:200]
    works: Works = {
        "graphtheory": partial(ours, pairs=ids),
        "scipy dijkstra": partial(by_scipy, matrix, few.numpy()[:2]),
        "networkx bidirectional": partial(pairs_by_networkx, to_networkx(graph), joined),
    }
    parts = {"scipy dijkstra": 2, "networkx bidirectional": len(joined)}
    times = seconds(works, repeats, warmup=1)
    for other, part in parts.items():
        times[other] = [t * count / part for t in times[other]]
    about = {
        "graph": "power law 2.5", "nodes": nodes, "edges": graph.num_edges,
        "max_degree": int(graph.degree().max()), "pairs": count, "cutoff": CUTOFF,
    }  # fmt: skip
    notes = {other: {"extrapolated": f"{part} of {count} pairs"} for other, part in parts.items()}
    rate = [count / t for t in times["graphtheory"]]
    rows = compared("pairs", times, about, notes)
    return [Row.of("pairs a second, graphtheory", rate, "1/s", **about), *rows]


def main(
    root: Path | None = None,
    full: bool = False,
    pairs: int = 200_000,
    threads: int = 2,
    repeats: int = 9,
    out: Path | None = None,
) -> None:
    """Time distances beside scipy, networkx and igraph.

    Args:
        root: Folder with the data sets; default $GRAPHTHEORY_DATA. Without PubMed's files a random
            graph of its size takes its place.
        full: Compare all pairs with scipy's and time it on all of them: minutes.
        pairs: Scattered pairs to ask for.
        threads: Of graphtheory; the others have one.
        repeats: Rounds; every round runs everything once.
        out: CSV file to put the rows in, after the conformance tests.
    """
    torch.set_num_threads(threads)
    if root is None and "GRAPHTHEORY_DATA" in os.environ:
        root = Path(os.environ["GRAPHTHEORY_DATA"])
    graph, name = pubmed(root)
    rows = all_pairs(graph, name, repeats, full)
    rows += balls(graph, name, repeats)
    rows += scattered_pairs(pairs, repeats)
    show(rows)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
