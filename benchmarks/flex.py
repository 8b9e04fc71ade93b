"""Masked attention with a bias beside FlexAttention compiled and torch's dense kernel, on a CPU.

    python benchmarks/flex.py --out benchmarks/results/cpu-flex.csv

One entry of a batch, heads x features as given, a bias by relative position (a table of 33, learned
in ours and in the dense form). Who attends to whom is a share of blocks of 128 x 128, a share of
single pairs, or documents of unequal lengths side by side. FlexAttention's backward pass raises on
a CPU, so its rows are forward alone, the table a constant. Outputs, and gradients where there are
two, are compared before anything is timed. What is done once is timed once in a process that has
done it for another length: a mask of torch's, a neighborhood of ours, and FlexAttention's first
call, which compiles.

Beside these, the spatial bias of attention-gym's Graphormer: all pairs of a graph attend to each
other, and the pair (i, j) gets the entry of its distance, `table[h, distance[b, i, j]]`, from int32
distances [graphs, nodes, nodes]. A batch of molecules is padded for it to the largest one, and a
last entry of -inf keeps the padding out. Ours takes the pairs of each molecule alone, and in a row
of its own those within two hops, which is another function of the input.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import tyro
from _graphs import Shape, molecules, power_law
from _rows import beside, clock_of, save, seconds, show
from ops import assert_equal, step
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask
from torch.nn.attention.flex_attention import flex_attention as torch_flex
from torch.nn.functional import scaled_dot_product_attention

from graphtheory import Neighborhood, cliques, ops
from graphtheory.integrations.flex import flex_attention, neighborhood_of
from graphtheory.lab.bench.rows import Row
from graphtheory.structure import UNREACHABLE, hop_ball, shortest_path_distance

OURS, ADAPTER = "graphtheory", "graphtheory's flex_attention"
FLEX, DENSE = "FlexAttention, compiled", "dense kernel with a bias"
BALL = f"{OURS}, pairs within two hops"
_BLOCK, REACH = 128, 16  # of a mask; positions to each side with an entry of their own
FAR, PADDING = 21, 22  # distances of 20 hops and fewer have their own entry, as in attention-gym
Mask = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def blocks(length: int, share: float) -> Mask:
    """A share of the blocks, those on the diagonal among them."""
    count = -(-length // _BLOCK)
    kept = torch.rand(count, count, generator=torch.Generator().manual_seed(0))
    kept[torch.arange(count), torch.arange(count)] = -1.0
    allowed = kept <= kept.flatten().sort().values[max(count, round(share * count**2)) - 1]
    return lambda b, h, i, j: allowed[i // _BLOCK, j // _BLOCK]


def pairs(length: int, share: float) -> Mask:
    """A share of the pairs, and everyone itself."""
    allowed = torch.rand(length, length, generator=torch.Generator().manual_seed(0)) < share
    allowed |= torch.eye(length, dtype=torch.bool)
    return lambda b, h, i, j: allowed[i, j]


def documents(length: int, share: float) -> Mask:
    """Documents side by side; their lengths are drawn so that about a share of the pairs is in."""
    generator = torch.Generator().manual_seed(0)
    mean = max(2, round(0.75 * share * length))
    ends = torch.randint(mean // 2, mean + mean // 2 + 1, (length,), generator=generator).cumsum(0)
    document = torch.bucketize(torch.arange(length), ends, right=True)
    return lambda b, h, i, j: document[i] == document[j]


Kind = Literal["blocks", "pairs", "documents"]
KINDS = {"blocks": blocks, "pairs": pairs, "documents": documents}


def bias_of(table: Tensor) -> Callable[..., Tensor]:
    """A `score_mod`: the entry of the head and of the relative position, clipped."""
    return lambda score, b, h, i, j: score + table[h, (i - j).clamp(-REACH, REACH) + REACH]


def times(kind: str, share: float, length: int, heads: int, dim: int, repeats: int) -> list[Row]:
    """Rows of time of one mask."""
    mask = KINDS[kind](length, share)
    once: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        found = work()
        once[name] = time.perf_counter() - start
        return found

    block_mask = timed(
        "mask, torch's", partial(create_block_mask, mask, None, None, length, length, "cpu")
    )
    nb = timed(f"neighborhood, {OURS}", partial(neighborhood_of, block_mask, 1, length, length))
    nb.transpose()
    generator = torch.Generator().manual_seed(1)
    query, key, value, grad = (
        torch.randn(1, heads, length, dim, generator=generator) for _ in range(4)
    )
    table = torch.randn(heads, 2 * REACH + 1, generator=generator)
    leaves = [t.requires_grad_() for t in (query, key, value, table)]
    place = torch.arange(length)
    offset = (place[:, None] - place).clamp(-REACH, REACH) + REACH
    absent = ~mask(place, place, place[:, None], place)

    sources, targets = nb.edge_index().long()
    bucket = offset[targets, sources].to(torch.uint8)

    def ours(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        q, k, v = (t[0].transpose(0, 1) for t in (q, k, v))
        out = ops.attention(q, k, v, nb, bias=ops.BucketedBias(bucket, table.t()))
        return out.transpose(0, 1)[None]

    def adapter(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        return flex_attention(q, k, v, bias_of(table), block_mask)

    def dense(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        bias = table[:, offset].masked_fill(absent, -torch.inf)
        return scaled_dot_product_attention(q, k, v, attn_mask=bias[None])

    constant = table.detach()
    compiled = torch.compile(torch_flex)

    def flex(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        return compiled(q, k, v, score_mod=bias_of(constant), block_mask=block_mask)

    plain = [t.detach() for t in leaves]
    with torch.no_grad():
        first = timed(f"first call, {FLEX}", partial(flex, *plain))
        assert_equal(FLEX, (ours(*plain),), (first,))
    for name, form in ((DENSE, dense), (ADAPTER, adapter)):
        # The table's gradient is a sum over up to millions of pairs, in float32 and another order.
        assert_equal(name, step(ours, leaves, grad), step(form, leaves, grad), within=1e-4)
    works: dict[str, dict[str, Callable[[], object]]] = {
        "forward": {
            name: partial(torch.no_grad()(form), *plain)
            for name, form in ((OURS, ours), (ADAPTER, adapter), (DENSE, dense), (FLEX, flex))
        },
        "forward+backward": {
            name: partial(step, form, leaves, grad)
            for name, form in ((OURS, ours), (ADAPTER, adapter), (DENSE, dense))
        },
    }
    about: dict[str, Any] = {
        "mask": kind, "share": share, "edges": nb.num_edges, "length": length, "heads": heads,
        "head_dim": dim, "threads": torch.get_num_threads(),
    }  # fmt: skip
    clock = clock_of(torch.get_num_threads())
    rows = [Row.of(f"once, {name}", [taken], "s", **about) for name, taken in once.items()]
    for what, work in works.items():
        rows += beside(OURS, what, seconds(work, repeats, clock=clock), **about)
    return rows


Graph = Literal["molecules", "power-law"]


def graph_of(kind: Graph, nodes: int) -> tuple[Neighborhood, Tensor]:
    """Molecules side by side, or one graph, of about `nodes` nodes; and the size of each graph."""
    if kind == "molecules":
        count = max(2, nodes // 23)  # atoms of one of them on average
        graph = molecules(count)
        apart = (shortest_path_distance(graph) == UNREACHABLE).int()
        first = torch.nonzero(apart.argmin(1) == torch.arange(graph.num_dst)).flatten()
        return graph, torch.cat([first, torch.tensor([graph.num_dst])]).diff()
    source, target = power_law(nodes, 2 * nodes, 0.5).edge_index()
    both = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    return Neighborhood.from_edge_index(both.unique(dim=1), nodes), torch.tensor([nodes])


def graphormer(kind: Graph, nodes: int, heads: int, dim: int, repeats: int) -> list[Row]:
    """Rows of time of Graphormer's bias by distance."""
    graph, sizes = graph_of(kind, nodes)
    every, (near, hops) = cliques(sizes), hop_ball(graph, 2)
    sources, targets = every.edge_index().long()
    bucket = shortest_path_distance(graph, cutoff=FAR)[targets, sources].clamp(max=FAR)
    of = torch.repeat_interleave(sizes)  # the graph of a node, and its place there
    place = torch.arange(len(of)) - (sizes.cumsum(0) - sizes)[of]
    real = torch.arange(int(sizes.max())) < sizes[:, None]
    distance = torch.where(real[:, None], 0, PADDING).int().repeat(1, real.shape[1], 1)
    distance[of[targets], place[targets], place[sources]] = bucket.int()

    generator = torch.Generator().manual_seed(1)
    query, key, value, grad = (
        torch.randn(len(of), heads, dim, generator=generator) for _ in range(4)
    )
    table = torch.randn(heads, FAR + 1, generator=generator)
    leaves = [t.requires_grad_() for t in (query, key, value, table)]

    def padded(nodes: Tensor) -> Tensor:
        out = nodes.new_zeros(*real.shape, heads, dim)
        return out.index_put((of, place), nodes).transpose(1, 2).contiguous()

    def kept_out(table: Tensor) -> Tensor:
        return torch.cat([table, table.new_full((heads, 1), -torch.inf)], 1)

    def attend(nb: Neighborhood, by: Tensor, *given: Tensor) -> Tensor:
        return ops.attention(*given[:3], nb, bias=ops.BucketedBias(by, given[3].t()))

    def dense(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        bias = kept_out(table)[:, distance].transpose(0, 1)
        return scaled_dot_product_attention(q, k, v, attn_mask=bias)

    constant, compiled = kept_out(table.detach()), torch.compile(torch_flex)

    def flex(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
        def spatial(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + constant[h, distance[b, i, j]]

        return compiled(q, k, v, score_mod=spatial)

    def packed(form: Callable[..., Tensor], *given: Tensor) -> Tensor:
        return form(*map(padded, given[:3]), given[3]).transpose(1, 2)[of, place]

    ours, ball = partial(attend, every, bucket), partial(attend, near, hops)
    plain = [t.detach() for t in leaves]
    wide = [*map(padded, plain[:3]), plain[3]]
    wide_leaves = [t.clone().requires_grad_() for t in wide]
    with torch.no_grad():
        assert_equal(FLEX, (ours(*plain),), (packed(flex, *plain),))
    found = step(partial(packed, dense), leaves, grad)
    assert_equal(DENSE, step(ours, leaves, grad), found, within=1e-4)
    works: dict[str, dict[str, Callable[[], object]]] = {
        "forward": {
            OURS: partial(torch.no_grad()(ours), *plain),
            BALL: partial(torch.no_grad()(ball), *plain),
            DENSE: partial(torch.no_grad()(dense), *wide),
            FLEX: partial(torch.no_grad()(flex), *wide),
        },
        "forward+backward": {
            OURS: partial(step, ours, leaves, grad),
            BALL: partial(step, ball, leaves, grad),
            DENSE: partial(step, dense, wide_leaves, padded(grad)),
        },
    }
    about: dict[str, Any] = {
        "graph": kind, "graphs": len(sizes), "nodes": len(of), "padded_to": real.shape[1],
        "pairs": every.num_edges, "near": near.num_edges, "heads": heads, "head_dim": dim,
        "threads": torch.get_num_threads(),
    }  # fmt: skip
    rows, clock = [], clock_of(torch.get_num_threads())
    for what, work in works.items():
        rows += beside(OURS, f"Graphormer {what}", seconds(work, repeats, clock=clock), **about)
    return rows


def main(
    length: int = 2048,
    shares: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0),
    kinds: tuple[Kind, ...] = get_args(Kind),
    graphs: tuple[Graph, ...] = get_args(Graph),
    shape: Shape = "8x16",
    threads: int = 2,
    repeats: int = 7,
    quick: bool = False,
    out: Path | None = None,
) -> None:
    """Measure masked attention beside torch's flex_attention.

    Args:
        length: Tokens.
        shares: Of all pairs that attend.
        kinds: Of masks.
        graphs: For Graphormer's bias: molecules of about 1,000 nodes together, one graph of 4,000.
        shape: Heads x features of a head.
        threads: Of torch and of the kernels.
        repeats: Rounds; every round runs everything once.
        quick: One round on 256 tokens, to see that everything runs.
        out: CSV file to put the rows in, after the conformance tests.
    """
    torch.set_num_threads(threads)
    if quick:
        length, shares, repeats = 256, (0.3,), 1
    heads, dim = map(int, shape.split("x"))
    times("blocks", 0.5, 192, heads, dim, 1)  # compiles what all share
    for kind in kinds:
        for share in shares:
            torch._dynamo.reset()
            found = times(kind, share, length, heads, dim, repeats)
            show(found)
            if out is not None:
                save(found, out)
    for graph in graphs:
        torch._dynamo.reset()
        nodes = 100 if quick else {"molecules": 1000, "power-law": 4000}[graph]
        found = graphormer(graph, nodes, heads, dim, repeats)
        show(found)
        if out is not None:
            save(found, out)


if __name__ == "__main__":
    tyro.cli(main)
