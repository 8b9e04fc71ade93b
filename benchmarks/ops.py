"""Time of attention, forward and backward, beside PyG's `TransformerConv` in the same run.

    python benchmarks/ops.py --out benchmarks/results/cpu.csv
    python benchmarks/ops.py --graphs k16 --shapes 8x16 4x64 --repeats 9

Query, key and value, and GAT's projected features with its numbers of both ends, are given, so the
linear maps of the layers are left out on both sides; GATConv is timed as a whole layer besides.
Outputs and gradients are compared before anything is timed. The neighborhood and its transpose
exist before, as PyG's edges do; a row builds them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import tyro
from _graphs import GRAPHS, Graph, Shape, gathered, settings
from _rows import ratios, save, seconds, show
from torch import Tensor
from torch_geometric.nn import GATConv, TransformerConv

from graphtheory import Neighborhood, nn, ops
from graphtheory.lab.bench.rows import Row
from graphtheory.ops import BucketedBias

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
Step = Callable[[], tuple[Tensor, ...]]
OURS, BIASED, ANEW = (
    "graphtheory",
    "graphtheory, bucket bias",
    "graphtheory, neighborhood built anew",
)
PYG, COMPILED = "PyG", "PyG, compiled"
GAT, PYG_GAT = "graphtheory, attention of GAT", "PyG, attention of GAT"
LAYER, PYG_LAYER = "graphtheory GATConv", "PyG GATConv"


def random_graph(nodes: int, edges: int) -> Tensor:
    """Uniform sources and targets, [2, edges]."""
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
    """Run a forward and a backward pass."""
    out = attention(*leaves)
    return out, *torch.autograd.grad(out, leaves, grad)


def assert_equal(
    what: str, ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...], within: float = 2e-5
) -> None:
    """Output and gradients agree to a few parts in 10^5 of the largest entry."""
    for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        error = (a - b).abs().max() / b.abs().max()
        name = f"gradient {place}" if place else "output"
        assert error < within, f"{what}: {name} differs by {error:.1e} of its largest entry"


def attentions(
    nb: Neighborhood, heads: int, head_dim: int, compiled: bool
) -> Iterator[tuple[str, Step]]:
    """One step of each of ours and of theirs, by name."""
    leaves, grad = draw(nb.num_dst, heads, head_dim)
    edges = nb.edge_index()
    nb.transpose()
    bucket = torch.randint(20, (nb.num_edges,), generator=torch.Generator().manual_seed(2))
    # The table is zero: it is read for every edge, and has no effect that PyG would have to match.
    table = torch.zeros(20, heads, requires_grad=True)
    bias = BucketedBias(bucket.to(torch.uint8), table)

    def biased() -> tuple[Tensor, ...]:
        out = ops.attention(*leaves, nb, bias=bias)  # type: ignore[misc]
        return out, *torch.autograd.grad(out, [*leaves, table], grad)[:3]

    def anew(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        fresh = Neighborhood.from_edge_index(edges, nb.num_dst)
        return ops.attention(query, key, value, fresh)

    def of(attention: Attention) -> Step:
        return partial(step, attention, leaves, grad)

    yield OURS, of(partial(ops.attention, neighborhood=nb))
    yield BIASED, biased
    yield ANEW, of(anew)
    theirs = pyg(edges, heads, head_dim)
    yield PYG, of(theirs)
    if compiled:
        yield COMPILED, of(torch.compile(theirs))


def additive(nb: Neighborhood, heads: int, head_dim: int) -> Iterator[tuple[str, Step]]:
    """One step of GAT's attention, between its linear maps."""
    (value, *_), grad = draw(nb.num_dst, heads, head_dim)
    generator = torch.Generator().manual_seed(4)
    sent, received = (
        torch.randn(nb.num_dst, heads, generator=generator).requires_grad_() for _ in range(2)
    )
    edges, conv = nb.edge_index(), GATConv(1, head_dim, heads, add_self_loops=False)

    def theirs(value: Tensor, sent: Tensor, received: Tensor) -> Tensor:
        alpha = conv.edge_updater(edges, alpha=(sent, received), edge_attr=None, size=None)
        return conv.propagate(edges, x=(value, value), alpha=alpha, size=None)

    leaves = [value, sent, received]
    yield GAT, partial(step, partial(ops.additive_attention, neighborhood=nb), leaves, grad)
    yield PYG_GAT, partial(step, theirs, leaves, grad)


def layers(nb: Neighborhood, heads: int, head_dim: int) -> Iterator[tuple[str, Step]]:
    """One step of a GAT layer of ours and of PyG's with the same weights, linear map included."""
    width = heads * head_dim
    x = torch.randn(nb.num_dst, width, generator=torch.Generator().manual_seed(3)).requires_grad_()
    torch.manual_seed(5)  # where a logit is about 0 rounding decides the slope of the leaky ReLU
    theirs = GATConv(width, head_dim, heads, add_self_loops=False)
    ours = nn.GATConv(width, head_dim, heads, add_self_loops=False)
    ours.load_state_dict(theirs.state_dict())

    def of(layer: torch.nn.Module, edges: Tensor | Neighborhood) -> Step:
        leaves = [x, *layer.parameters()]

        def run() -> tuple[Tensor, ...]:
            out = layer(x, edges)
            return out, *torch.autograd.grad(out.square().sum(), leaves)

        return run

    yield LAYER, of(ours, nb)
    yield PYG_LAYER, of(theirs, nb.edge_index())


def copying() -> tuple[int, Callable[[], Any]]:
    """How many bytes a copy reads and writes, and the copy."""
    source = torch.zeros(2**26)
    target = torch.empty_like(source)
    return 2 * source.numel() * source.element_size(), lambda: target.copy_(source)


def alone(work: Callable[[], Any]) -> Callable[[], Any]:
    """The same on one thread."""

    def on_one() -> Any:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return work()
        finally:
            torch.set_num_threads(threads)

    return on_one


def measure(
    nb: Neighborhood, shape: tuple[int, int], about: dict[str, Any], repeats: int, compiled: bool
) -> list[Row]:
    """The rows of one graph and shape."""
    (heads, head_dim), threads = shape, about["threads"]
    works = dict(attentions(nb, heads, head_dim, compiled))
    works |= dict(additive(nb, heads, head_dim)) | dict(layers(nb, heads, head_dim))
    gats = ((GAT, PYG_GAT), (LAYER, PYG_LAYER))
    for ours, theirs in ((OURS, PYG), (BIASED, PYG), (ANEW, PYG), *gats):
        assert_equal(ours, works[ours](), works[theirs]())
    times = seconds(works | {"graphtheory, 1 thread": alone(works[OURS])}, repeats)
    rows = [Row.of(f"forward+backward, {n}", t, "s", **about) for n, t in times.items()]
    pairs = [(ours, theirs) for ours in (OURS, BIASED, ANEW) for theirs in (PYG, COMPILED)]
    for mine, other in [*pairs, *gats]:
        if other in times:
            faster = ratios(times[other], times[mine])
            rows.append(Row.of(f"times faster than {other}: {mine}", faster, "1", **about))
    scaling = ratios(times["graphtheory, 1 thread"], times[OURS])
    rows.append(Row.of(f"times faster on {threads} threads than on 1", scaling, "1", **about))
    copied, copy = copying()
    copies = seconds({"all": copy, "one": alone(copy)}, repeats)
    scaling = ratios(copies["one"], copies["all"])
    rows.append(Row.of(f"times a copy is faster on {threads} threads", scaling, "1", **about))
    cost = [r - 1 for r in ratios(times[BIASED], times[OURS])]
    rows.append(Row.of("extra time for a bucket bias", cost, "1", **about))
    least = gathered(nb, heads, head_dim, 4) * median(copies["all"]) / copied
    share = [least / t for t in times[OURS]]
    rows.append(Row.of("share of the speed of a copy of the gathered bytes", share, "1", **about))
    return rows


def main(
    graphs: tuple[Graph, ...] = tuple(GRAPHS),
    shapes: tuple[Shape, ...] = ("8x16", "4x64", "1x128"),
    threads: int = 2,
    repeats: int = 9,
    compiled: bool = True,
    out: Path | None = None,
) -> None:
    """Time attention forward and backward in float32 beside PyG's, eager and compiled.

    Args:
        graphs: Names in `_graphs.GRAPHS`.
        shapes: Heads x features of a head.
        threads: Of torch and of the kernels.
        repeats: Rounds; every round runs everything once.
        compiled: Also PyG's under `torch.compile`.
        out: CSV file to put the rows of each shape in, after the conformance tests.
    """
    torch.set_num_threads(threads)
    for setting in settings(graphs, shapes, threads):
        found = measure(*setting, repeats, compiled)
        show(found)
        if out is not None:
            save(found, out)


if __name__ == "__main__":
    tyro.cli(main)
