"""`ops.aggregate` beside PyG's path by scatter, torch-sparse and torch's own sparse matrices.

    python benchmarks/aggregate.py
    python benchmarks/aggregate.py --repeats 5 --threads 1

The graph is uniform random with the numbers of ogbn-arxiv, made undirected by nobody; features are
float32. PyG's path gathers a message for every edge of an unsorted edge list and scatters them, as
its layers do; torch-sparse and torch.sparse are given the rows sorted, as `ops.aggregate` is.
Forward is under `torch.no_grad`; forward and backward ends with the gradient of the features. With
one thread the times are those of the processor, which other programs hardly change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import torch
import tyro
from _rows import clock_of, ratios, save, seconds, show
from ops import random_graph
from torch import Tensor
from torch_geometric.utils import scatter

from graphtheory import Neighborhood, ops
from graphtheory.lab.bench.rows import Row

OUT = Path(__file__).parent / "results" / "cpu-aggregate.csv"
REDUCTIONS = ("sum", "mean", "max", "min")


def ways(
    reduce: str, edge_index: Tensor, nodes: int
) -> Iterator[tuple[str, Callable[..., Tensor]]]:
    """By name, functions of features [N, D]."""
    nb = Neighborhood.from_edge_index(edge_index, nodes)
    nb.transpose()
    yield "graphtheory", lambda x: ops.aggregate(None, x[:, None], nb, reduce=reduce).squeeze(1)
    src, dst = edge_index
    yield "PyG", lambda x: scatter(x.index_select(0, src), dst, 0, nodes, reduce)
    if find_spec("torch_sparse") is not None:
        from torch_sparse import SparseTensor, matmul

        adj = SparseTensor(rowptr=nb.indptr, col=nb.indices, sparse_sizes=(nodes, nodes))
        adj.fill_cache_()
        yield "torch-sparse", lambda x: matmul(adj, x, reduce)
    if reduce == "sum":
        csr = torch.sparse_csr_tensor(nb.indptr, nb.indices, torch.ones(nb.num_edges))
        yield "torch.sparse", lambda x: csr @ x


def both(way: Callable[..., Tensor], x: Tensor, up: Tensor) -> Callable[[], None]:
    """A function that runs the forward and the backward pass."""

    def run() -> None:
        x.grad = None
        way(x).backward(up)

    return run


def rows_of(reduce: str, nodes: int, edges: int, dim: int, repeats: int, threads: int) -> list[Row]:
    """Times of a reduction, and how many times as long the others take."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, dim, generator=generator).requires_grad_()
    up = torch.randn(nodes, dim, generator=generator)
    named = dict(ways(reduce, random_graph(nodes, edges), nodes))
    wanted = named["PyG"](x)
    for name, way in named.items():
        torch.testing.assert_close(way(x), wanted, rtol=1e-4, atol=1e-4, msg=name)
    about = {"nodes": nodes, "edges": edges, "features": dim, "threads": threads}
    inputs, rows = x.detach(), []
    for step in ("forward", "forward and backward"):
        works = {
            name: (lambda w=way: w(inputs)) if step == "forward" else both(way, x, up)
            for name, way in named.items()
        }
        times = seconds(works, repeats, clock=clock_of(threads))
        for name, taken in times.items():
            rows.append(Row.of(f"{reduce}, {step}, {name}", taken, "s", **about))
            if name != "graphtheory":
                faster = ratios(taken, times["graphtheory"])
                rows.append(Row.of(f"{reduce}, {step}: {name} takes", faster, "times", **about))
    return rows


def main(
    nodes: int = 169_343,
    edges: int = 1_166_243,
    features: int = 128,
    threads: int = 2,
    repeats: int = 7,
    quick: bool = False,
    out: Path = OUT,
) -> None:
    """Time sums, means, largest and smallest values over neighbors.

    Args:
        nodes: Nodes of the uniform random graph.
        edges: Its edges.
        features: Of a node.
        threads: Of torch and of the kernels.
        repeats: Rounds; every round runs every way.
        quick: A small graph, few rounds; nothing is written.
        out: CSV file to put the rows in, after the conformance tests.
    """
    torch.set_num_threads(threads)
    if quick:
        nodes, edges, repeats = 50, 200, 2
    sizes = (nodes, edges, features, repeats, threads)
    rows = [row for reduce in REDUCTIONS for row in rows_of(reduce, *sizes)]
    show(rows)
    if not quick:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
