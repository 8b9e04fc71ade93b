"""Shortest-path distances beside scipy, networkx and igraph, in one run on one machine.

    python benchmarks/distances.py --root DATA --out benchmarks/results/cpu-distances.csv

Every answer is compared with scipy's before any time is printed. A library that would take minutes
is timed on some sources or pairs and scaled; its row says so.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
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
from scipy.sparse.csgraph import dijkstra

from graphtheory import Neighborhood
from graphtheory.data import graphs
from graphtheory.structure import UNREACHABLE, hop_ball, shortest_path_distance

CUTOFF = 20
PUBMED_NODES, PUBMED_EDGES = 19_717, 44_324
ARXIV_NODES, ARXIV_EDGES = 169_343, 1_166_243
PACKAGES = ("torch", "numba", "numpy", "scipy", "networkx", "igraph")


@dataclass
class Row:
    """One figure: seconds, or how many times faster, or pairs a second."""

    name: str
    parameters: str
    value: float
    unit: str
    median: float
    q20: float
    q80: float
    repeats: int
    device: str
    versions: str
    commit: str


def device() -> str:
    """Processor and threads."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "")
    return f"{model or platform.processor()}, {torch.get_num_threads()} of {os.cpu_count()} threads"


def commit() -> str:
    """Commit of the code, marked when it was changed since."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    return result.stdout.strip() or "unknown"


def row(name: str, unit: str, values: list[float], **parameters: object) -> Row:
    """Median and spread of repeated measurements."""
    median, q20, q80 = (float(np.quantile(values, q)) for q in (0.5, 0.2, 0.8))
    known = {name: version(name) for name in PACKAGES if find_spec(name)}
    return Row(
        name, json.dumps(parameters), median, unit, median, q20, q80, len(values),
        device(), json.dumps(known), commit(),
    )  # fmt: skip


def seconds(work: Callable[[], Any], repeats: int) -> list[float]:
    """Wall-clock time of every repetition."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times


def power_law(num_nodes: int, num_edges: int, max_degree: int, seed: int = 0) -> Neighborhood:
    """Undirected random graph whose expected degrees follow a power law of exponent 2.5."""
    draw = np.random.default_rng(seed)
    share = np.arange(1, num_nodes + 1) ** (-1 / 1.5)
    for _ in range(20):  # cap the hubs, then spread what was cut over the others
        share = np.minimum(share / share.sum(), max_degree / (2 * num_edges))
    bounds = np.cumsum(share / share.sum())
    ends = np.searchsorted(bounds, draw.random((2, int(1.3 * num_edges))) * bounds[-1])
    ends = np.sort(draw.permutation(num_nodes)[ends], axis=0)
    ends = ends[:, ends[0] != ends[1]]
    keys = draw.permutation(np.unique(ends[0] * num_nodes + ends[1]))[:num_edges]
    edges = torch.from_numpy(np.stack([keys // num_nodes, keys % num_nodes]))
    return Neighborhood.from_edge_index(torch.cat([edges, edges.flip(0)], 1), num_nodes=num_nodes)


def pubmed(root: str | None) -> tuple[Neighborhood, str]:
    """PubMed's topology, or where its files are missing a power-law graph of the same size."""
    try:
        data = graphs.load_topology("PubMed", root)
    except FileNotFoundError:
        return power_law(PUBMED_NODES, PUBMED_EDGES, 171), "power law of PubMed's size"
    return Neighborhood.from_edge_index(data.edge_index, num_nodes=data.num_nodes), "PubMed"


def adjacency(graph: Neighborhood) -> scipy.sparse.csr_array:
    """The graph as scipy reads it: entry [sender, receiver]."""
    senders, receivers = graph.edge_index().numpy()
    shape = (graph.num_src, graph.num_dst)
    return scipy.sparse.csr_array((np.ones(len(senders)), (senders, receivers)), shape=shape)


def by_scipy(matrix: scipy.sparse.csr_array, sources: np.ndarray) -> np.ndarray:
    """Distances uint8 [N, S] as `shortest_path_distance` gives them."""
    columns = []
    for start in range(0, len(sources), 1000):  # float64 rows, so not all at once
        hops = dijkstra(matrix, unweighted=True, indices=sources[start : start + 1000])
        far = np.isinf(hops)
        columns.append(np.where(far, UNREACHABLE, np.minimum(hops, CUTOFF)).astype(np.uint8))
    return np.concatenate(columns).T


def by_networkx(graph: nx.Graph, sources: np.ndarray) -> None:
    """Distances to everything within the cutoff, as dictionaries."""
    for source in sources:
        nx.single_source_shortest_path_length(graph, int(source), cutoff=CUTOFF)


def to_igraph(graph: Neighborhood) -> Any:
    """The graph as igraph reads it, each undirected edge once."""
    edges = graph.edge_index()
    edges = edges[:, edges[0] < edges[1]]
    return import_module("igraph").Graph(n=graph.num_dst, edges=edges.T.tolist())


def to_networkx(graph: Neighborhood) -> nx.Graph:
    """The graph as networkx reads it."""
    theirs = nx.Graph(graph.edge_index().T.tolist())
    theirs.add_nodes_from(range(graph.num_dst))
    return theirs


def scaled(times: list[float], part: int, whole: int) -> tuple[list[float], dict[str, str]]:
    """Times for `whole` items from times for `part`, and what the row must say about it."""
    note = {} if part == whole else {"extrapolated_from": f"{part} of {whole}"}
    return [t * whole / part for t in times], note


def all_pairs(graph: Neighborhood, name: str, args: argparse.Namespace) -> Iterator[Row]:
    """Rows for a table of all pairs."""
    nodes = graph.num_dst
    draw = np.random.default_rng(0)
    some = partial(draw.choice, nodes, replace=False)
    about = {"graph": name, "nodes": nodes, "edges": graph.num_edges, "cutoff": CUTOFF}
    matrix = adjacency(graph)
    sources = np.arange(nodes) if args.full else some(args.sources)
    start = time.perf_counter()
    expected = by_scipy(matrix, sources)
    scipy_time = time.perf_counter() - start
    table = shortest_path_distance(graph, cutoff=CUTOFF)
    assert np.array_equal(table.numpy()[:, sources], expected), "all pairs differ from scipy's"
    ours = seconds(lambda: shortest_path_distance(graph, cutoff=CUTOFF), args.repeats)
    yield row("all pairs, graphtheory", "s", ours, **about)
    others = [("scipy dijkstra", [scipy_time], len(sources))]
    if find_spec("igraph"):
        theirs, few = to_igraph(graph), some(min(1000, nodes))
        work = partial(theirs.distances, few.tolist())
        others.append(("igraph", seconds(work, 3), len(few)))
    work = partial(by_networkx, to_networkx(graph), some(50))
    others.append(("networkx", seconds(work, 3), 50))
    for library, times, part in others:
        times, note = scaled(times, part, nodes)
        yield row(f"all pairs, {library}", "s", times, **about, **note)
        speedup = [float(np.median(times)) / t for t in ours]
        yield row(f"all pairs, times faster than {library}", "x", speedup, **about, **note)


def balls(graph: Neighborhood, name: str, args: argparse.Namespace) -> Iterator[Row]:
    """Rows for the ball with distances, beside powers of scipy's matrix."""
    matrix = adjacency(graph).astype(bool)
    for radius in (2, 3):

        def powers(radius: int = radius) -> scipy.sparse.csr_array:
            reach = scipy.sparse.eye_array(graph.num_dst, dtype=bool, format="csr")
            hops = scipy.sparse.csr_array(reach.shape, dtype=np.uint8)
            for z in range(1, radius + 1):
                farther = (reach @ matrix + reach).astype(bool)
                hops += (farther > reach).astype(np.uint8) * np.uint8(z)
                reach = farther
            return hops

        ball, distance = hop_ball(graph, radius)
        ours_dense = scipy.sparse.csr_array((distance.numpy(), ball.edge_index().numpy()[::-1]))
        ours_dense.eliminate_zeros()
        assert (powers() != ours_dense.T).nnz == 0, "hop_ball differs from powers of the matrix"
        about = {"graph": name, "radius": radius, "pairs": ball.num_edges}
        ours = seconds(partial(hop_ball, graph, radius), args.repeats)
        theirs = seconds(powers, 3)
        yield row("hop_ball, graphtheory", "s", ours, **about)
        yield row("hop_ball, scipy powers", "s", theirs, **about)
        speedup = [float(np.median(theirs)) / t for t in ours]
        yield row("hop_ball, times faster than scipy powers", "x", speedup, **about)


def pairs(args: argparse.Namespace) -> Iterator[Row]:
    """Rows for scattered pairs on a graph of ogbn-arxiv's size."""
    graph = power_law(ARXIV_NODES, ARXIV_EDGES, 4000)
    nodes = graph.num_dst
    ids = torch.randint(nodes, (2, args.pairs), generator=torch.Generator().manual_seed(0))
    about = {"graph": "power law 2.5", "nodes": nodes, "edges": graph.num_edges, "cutoff": CUTOFF}
    about["max_degree"] = int(graph.degree().max())
    found = shortest_path_distance(graph, cutoff=CUTOFF, pairs=ids)
    few = ids[0, :16]
    start = time.perf_counter()
    expected = by_scipy(adjacency(graph), few.numpy())
    scipy_rate = len(few) / (time.perf_counter() - start)
    columns = shortest_path_distance(graph, cutoff=CUTOFF, sources=few)
    assert np.array_equal(columns.numpy(), expected), "columns differ from scipy's"
    assert np.array_equal(found[:16].numpy(), expected[ids[1, :16], range(16)]), "pairs differ"
    crossed = torch.stack([few.repeat_interleave(nodes), torch.arange(nodes).repeat(16)])
    answer = shortest_path_distance(graph, cutoff=CUTOFF, pairs=crossed[:, ::97])
    assert np.array_equal(answer.numpy(), expected.T.flatten()[::97]), "pairs differ from scipy's"
    work = partial(shortest_path_distance, graph, cutoff=CUTOFF, pairs=ids)
    ours = [args.pairs / t for t in seconds(work, args.repeats)]
    yield row("pairs, graphtheory", "pairs/s", ours, **about, pairs=args.pairs)
    rates = {"scipy dijkstra": (scipy_rate, 16)}
    theirs = to_networkx(graph)
    hundred = [(int(s), int(t)) for s, t in ids[:, :100].T if nx.has_path(theirs, int(s), int(t))]
    work = partial(list, map(lambda p: nx.bidirectional_shortest_path(theirs, *p), hundred))
    (duration,) = seconds(work, 1)
    rates["networkx bidirectional"] = (len(hundred) / duration, len(hundred))
    for library, (rate, measured) in rates.items():
        note = {"measured_on": f"{measured} pairs"}
        yield row(f"pairs, {library}", "pairs/s", [rate], **about, **note)
        speedup = [t / rate for t in ours]
        yield row(f"pairs, times faster than {library}", "x", speedup, **about, **note)


def main() -> None:
    """Measure, print, and with --out write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", default=os.environ.get("GRAPHTHEORY_DATA"))
    parser.add_argument("--out", type=Path, help="CSV file to write")
    parser.add_argument("--repeats", type=int, default=7, help="runs of ours (median)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--sources", type=int, default=500, help="sources scipy is timed on")
    parser.add_argument("--full", action="store_true", help="time scipy on all sources: a minute")
    parser.add_argument("--pairs", type=int, default=200_000)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    graph, name = pubmed(args.root)
    rows = []
    for part in (all_pairs(graph, name, args), balls(graph, name, args), pairs(args)):
        for found in part:
            rows.append(found)
            spread = f"[{found.q20:.4g}, {found.q80:.4g}]"
            print(
                f"{found.name:46} {found.value:10.4g} {found.unit:8} {spread:20} {found.parameters}"
            )
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with args.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(asdict(rows[0])), lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(found) for found in rows)


if __name__ == "__main__":
    main()
