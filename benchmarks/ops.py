"""Time of attention, forward and backward, beside PyG's `TransformerConv` in the same run.

    python benchmarks/ops.py --out benchmarks/results/cpu.csv

Query, key and value are given, so the linear maps of the layer are left out on both sides. Outputs
and gradients are compared before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import torch
import tyro
from _rows import ratios, save, seconds, show
from torch import Tensor
from torch_geometric.nn import TransformerConv

from graphtheory import Neighborhood, ops
from graphtheory.experiments.rows import Row
from graphtheory.ops import BucketedBias

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
Step = Callable[[], tuple[Tensor, ...]]


def random_graph(nodes: int, edges: int) -> Tensor:
    """Uniform senders and receivers, [2, edges]."""
    return torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(0))


def draw(nodes: int, heads: int, head_dim: int) -> tuple[list[Tensor], Tensor]:
    """Query, key and value, and the gradient of the output."""
    generator = torch.Generator().manual_seed(1)
    query, key, value, grad = (
        torch.randn(nodes, heads, head_dim, generator=generator) for _ in range(4)
    )
    return [t.requires_grad_() for t in (query, key, value)], grad


def pyg(edges: Tensor, heads: int, head_dim: int) -> Attention:
    """PyG's message passing of one layer, between its linear maps."""
    conv = TransformerConv(1, head_dim, heads)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        parts = {"query": query, "key": key, "value": value}
        return conv.propagate(edges, **parts, edge_attr=None, size=None)

    return attention


def step(attention: Attention, leaves: list[Tensor], grad: Tensor) -> tuple[Tensor, ...]:
    """Forward and backward."""
    out = attention(*leaves)
    return out, *torch.autograd.grad(out, leaves, grad)


def assert_equal(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> None:
    """Output and gradients agree to a few parts in 10^5 of the largest entry."""
    for name, a, b in zip(("output", "query", "key", "value"), ours, theirs, strict=True):
        error = (a - b).abs().max() / b.abs().max()
        assert error < 2e-5, f"{name} differs from PyG's by {error:.1e} of its largest entry"


def candidates(
    edge_index: Tensor, leaves: list[Tensor], grad: Tensor, compiled: bool
) -> tuple[dict[str, Step], dict[str, Step]]:
    """One step of each of ours and of theirs, by name."""
    nodes, heads, head_dim = leaves[0].shape
    nb = Neighborhood.from_edge_index(edge_index, nodes)
    bucket = torch.randint(20, (nb.num_edges,), generator=torch.Generator().manual_seed(2))
    # The table is zero: it is read for every edge, and has no effect that PyG would have to match.
    bias = BucketedBias(bucket.to(torch.uint8), torch.zeros(20, heads, requires_grad=True))

    def anew(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return ops.attention(query, key, value, Neighborhood.from_edge_index(edge_index, nodes))

    ours: dict[str, Attention] = {
        "graphtheory": partial(ops.attention, neighborhood=nb),
        "graphtheory, bucket bias": partial(ops.attention, neighborhood=nb, bias=bias),
        "graphtheory, neighborhood built anew": anew,
    }
    theirs: dict[str, Attention] = {"PyG": pyg(edge_index, heads, head_dim)}
    if compiled:
        theirs["PyG, compiled"] = torch.compile(theirs["PyG"])

    def steps(side: dict[str, Attention]) -> dict[str, Step]:
        return {name: partial(step, run, leaves, grad) for name, run in side.items()}

    return steps(ours), steps(theirs)


def main(
    nodes: int = 20_000,
    edges: int = 400_000,
    heads: int = 4,
    head_dim: int = 32,
    threads: int = 2,
    repeats: int = 9,
    compiled: bool = True,
    out: Path | None = None,
) -> None:
    """Time attention forward and backward in float32 beside PyG's, eager and compiled.

    Args:
        nodes: Nodes of a uniform random graph.
        edges: Its edges.
        heads: Attention heads.
        head_dim: Features of a head.
        threads: Of torch and of the kernels.
        repeats: Rounds; every round runs everything once.
        compiled: Also PyG's under `torch.compile`.
        out: CSV file to put the rows in, after the conformance tests.
    """
    torch.set_num_threads(threads)
    leaves, grad = draw(nodes, heads, head_dim)
    ours, theirs = candidates(random_graph(nodes, edges), leaves, grad, compiled)
    true = theirs["PyG"]()
    for work in (ours | theirs).values():
        assert_equal(work(), true)
    times = seconds(ours | theirs, repeats)
    about = {"nodes": nodes, "edges": edges, "heads": heads, "head_dim": head_dim}
    rows = [Row.of(f"attention forward+backward, {n}", t, "s", **about) for n, t in times.items()]
    for mine, other in product(ours, theirs):
        faster = ratios(times[other], times[mine])
        rows.append(Row.of(f"times faster than {other}: {mine}", faster, "1", **about))
    show(rows)
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
