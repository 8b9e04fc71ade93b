"""Time and memory of attention on a GPU, forward and backward, beside what else can do it there.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --graphs pubmed --shapes 4x64 --repeats 50

Before a shape is timed, output and gradients are held against float64: an error may be twice the
one of plain torch (PyG's `TransformerConv`) in the same precision. Linear maps are left out, except
from GATConv, which is timed as a whole layer on both sides. A rival that cannot run a case is left
out, and the run says why. Without a GPU the script says so and ends with code 2.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import tyro
from _graphs import GRAPHS as ON_CPU
from _graphs import gathered
from _rows import ratios, save, show
from torch import Tensor
from torch_geometric import nn as pyg

from graphtheory import Neighborhood, cliques, nn, ops
from graphtheory.experiments.rows import Row
from graphtheory.ops import BucketedBias

BUCKETS = 20
GRAPHS = ON_CPU | {"long": lambda: cliques([1024] * 4)}
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp16": torch.float16}
FLUSH = 256 * 2**20  # bytes, several times the last cache
DENSE = 20_000  # nodes up to which a mask of all pairs is made for FlexAttention
# Of the largest true entry: what the order of sums alone may cost where plain torch makes no error.
SLACK = {torch.bfloat16: 2**-8, torch.float32: 1e-6, torch.float16: 2**-10}

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
Step = Callable[[], Sequence[Tensor]]


SMALL = ("pubmed", "molecules")  # bound by launches: also replayed as a CUDA graph


@dataclass(frozen=True)
class Case:
    """One graph, shape and precision on the GPU."""

    graph: str
    nb: Neighborhood
    leaves: list[Tensor]
    grad: Tensor
    bias: BucketedBias

    @classmethod
    def of(cls, graph: str, heads: int, dim: int, dtype: torch.dtype) -> Case:
        nb = GRAPHS[graph]().to("cuda")
        generator = torch.Generator().manual_seed(1)

        def normal(nodes: int) -> Tensor:
            return torch.randn(nodes, heads, dim, generator=generator).to("cuda", dtype)

        leaves = [normal(n).requires_grad_() for n in (nb.num_dst, nb.num_src, nb.num_src)]
        bucket = torch.randint(BUCKETS, (nb.num_edges,), generator=generator).to(torch.uint8)
        # Zeros: read for every edge, without an effect that the others would have to match.
        table = torch.zeros(BUCKETS, heads, device="cuda", requires_grad=True)
        return cls(graph, nb, leaves, normal(nb.num_dst), BucketedBias(bucket.cuda(), table))

    @property
    def name(self) -> str:
        heads, dim = self.leaves[0].shape[1:]
        kind = next(k for k, dtype in DTYPES.items() if dtype == self.grad.dtype)
        return f"{self.graph} {heads}x{dim} {kind}"

    @property
    def gathered(self) -> int:
        """Bytes that a step moves when no cache helps and each node's row is read for each edge."""
        heads, dim = self.leaves[0].shape[1:]
        return gathered(self.nb, heads, dim, self.grad.element_size())


def step(attention: Attention, leaves: list[Tensor], grad: Tensor) -> list[Tensor]:
    """Forward and backward."""
    out = attention(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def with_table(case: Case) -> Step:
    """Forward and backward with a bucket bias, whose table has a gradient too."""

    def run() -> list[Tensor]:
        out = ops.attention(*case.leaves, case.nb, bias=case.bias, backend="triton_csr")
        leaves = [*case.leaves, case.bias.table]
        return [out.detach(), *torch.autograd.grad(out, leaves, case.grad)]

    return run


def transformer_conv(case: Case) -> Attention:
    """PyG's message passing of one layer, between its linear maps."""
    heads, dim = case.leaves[0].shape[1:]
    conv, edges = pyg.TransformerConv(1, dim, heads), case.nb.edge_index()
    size = (case.nb.num_src, case.nb.num_dst)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        parts = {"query": query, "key": key, "value": value}
        return conv.propagate(edges, **parts, edge_attr=None, size=size)

    return attention


def sampled_products(case: Case) -> Attention:
    """What DGL does: products on the edges, softmax over rows, product with a sparse matrix."""
    nb, heads = case.nb, case.leaves[0].size(1)
    if case.grad.dtype != torch.float32:
        raise NotImplementedError("sparse products of torch take float32")
    pattern = torch.sparse_csr_tensor(
        nb.indptr, nb.indices, torch.zeros(nb.num_edges, device=nb.device), (nb.num_dst, nb.num_src)
    )
    rows = nb.receivers()

    def head(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        logits = torch.sparse.sampled_addmm(pattern, query, key.T, beta=0.0).values()
        logits = logits * query.size(1) ** -0.5
        top = logits.new_full((nb.num_dst,), -math.inf)
        top = top.scatter_reduce(0, rows, logits.detach(), "amax")
        weights = (logits - top[rows]).exp()
        total = weights.new_zeros(nb.num_dst).index_add(0, rows, weights)
        weights = weights / total[rows]
        matrix = torch.sparse_csr_tensor(nb.indptr, nb.indices, weights, pattern.shape)
        return torch.sparse.mm(matrix, value)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.stack([head(query[:, h], key[:, h], value[:, h]) for h in range(heads)], 1)

    return attention


def flex(case: Case) -> Attention:
    """FlexAttention with a block mask of the edges."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    nb = case.nb
    if max(nb.num_dst, nb.num_src) > DENSE:
        raise NotImplementedError(f"a mask of all pairs of more than {DENSE} nodes")
    mask = nb.to_dense() > 0
    blocks = create_block_mask(lambda b, h, i, j: mask[i, j], None, None, nb.num_dst, nb.num_src)
    compiled = torch.compile(flex_attention)

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        sides = (t.transpose(0, 1)[None] for t in (query, key, value))  # [1, H, N, D]
        return compiled(*sides, block_mask=blocks)[0].transpose(0, 1)

    return attention


def turbo(case: Case) -> Attention:
    """turbo-gnn's graph transformer; of a directed graph it reads an edge the other way round."""
    if find_spec("turbo_gnn") is None:
        raise NotImplementedError("turbo-gnn is not installed")
    import turbo_gnn

    made = turbo_gnn.AdjacencyForwardBackwardWithNodeBuckets.from_edge_list(
        case.nb.edge_index().cpu(), num_nodes=case.nb.num_dst
    ).to("cuda")

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        given = {"Q": query, "K": key, "V": value, "scale": query.size(2) ** -0.5}
        return turbo_gnn.graph_transformer_aggr(made, query, **given, autotune=True)

    return attention


def gat_layer(case: Case, make: Callable[..., Any]) -> Step:
    """A whole layer of GAT with as many inputs as outputs."""
    heads, dim = case.leaves[0].shape[1:]
    width = heads * dim
    layer = make(width, dim, heads, add_self_loops=False).to(case.grad)
    x = case.leaves[0].detach().flatten(1).requires_grad_()
    leaves, grad, edges = [x, *layer.parameters()], case.grad.flatten(1), case.nb.edge_index()

    def run() -> list[Tensor]:
        out = layer(x, edges)
        return [out.detach(), *torch.autograd.grad(out, leaves, grad)]

    return run


def weighted_sums(case: Case) -> Step:
    """What a GCN layer does after its linear map."""
    weights = torch.rand(case.nb.num_edges, 1, device="cuda").to(case.grad.dtype)
    value = case.leaves[2]
    spread = weights.expand(-1, value.size(1)).contiguous()

    def run() -> Sequence[Tensor]:
        out = ops.aggregate(spread, value, case.nb)
        return out, *torch.autograd.grad(out, [value], case.grad)

    return run


def replayed(work: Step) -> Step:
    """The same as one CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = work()

    def run() -> Sequence[Tensor]:
        graph.replay()
        return results

    return run


def contestants(case: Case) -> Iterator[tuple[str, Callable[[], Step]]]:
    """(name, what makes the step); making it may fail where a rival cannot run the case."""

    def plain(make: Callable[[Case], Attention]) -> Callable[[], Step]:
        return lambda: partial(step, make(case), case.leaves, case.grad)

    ours = partial(ops.attention, neighborhood=case.nb, backend="triton_csr")
    yield "graphtheory", plain(lambda _: ours)
    yield "graphtheory, bucket bias", lambda: with_table(case)
    if case.nb.blocks is not None:
        yield "graphtheory, blocks", plain(lambda _: partial(ops.attention, neighborhood=case.nb))
        half = {"k": case.nb.blocks[2] // 2, "backend": "blocks"}
        nearest = partial(ops.topk_attention, neighborhood=case.nb, **half)
        yield "graphtheory, nearest half of blocks", plain(lambda _: nearest)
    yield "TransformerConv", plain(transformer_conv)
    yield "TransformerConv, compiled", plain(lambda c: torch.compile(transformer_conv(c)))
    yield "FlexAttention", plain(flex)
    yield "edge softmax and sparse products", plain(sampled_products)
    yield "turbo-gnn", plain(turbo)
    if case.nb.num_src == case.nb.num_dst:
        yield "GATConv layer, graphtheory", lambda: gat_layer(case, nn.conv.GATConv)
        yield "GATConv layer, PyG", lambda: gat_layer(case, pyg.GATConv)
        yield "GATv2Conv layer, graphtheory", lambda: gat_layer(case, nn.conv.GATv2Conv)
        yield "GATv2Conv layer, PyG", lambda: gat_layer(case, pyg.GATv2Conv)
        yield "weighted sums of graphtheory", lambda: weighted_sums(case)
    if case.graph in SMALL:
        yield "graphtheory, CUDA graph", lambda: replayed(plain(lambda _: ours)())


def runnable(case: Case) -> dict[str, Step]:
    """The steps that run; a rival's failure is printed, one of ours ends the run."""
    steps = {}
    for name, make in contestants(case):
        try:
            work = make()
            work()
            torch.cuda.synchronize()
            steps[name] = work
        except Exception as error:  # foreign code fails in its own ways
            if "graphtheory" in name:
                raise
            print(f"{case.name}: {name} left out: {str(error).splitlines()[0][:160]}")
    return steps


def check(case: Case, found: Sequence[Tensor], plain: Sequence[Tensor]) -> None:
    """Raise unless no error against float64 is more than twice that of plain torch."""
    exact = [t.detach().double().requires_grad_() for t in case.leaves]
    reference = partial(ops.attention, neighborhood=case.nb, backend="reference")
    true = step(reference, exact, case.grad.double())
    for name, ours, theirs, wanted in zip(
        ("output", "query", "key", "value"), found, plain, true, strict=True
    ):
        error, other = ((t.double() - wanted).abs().max().item() for t in (ours, theirs))
        allowed = 2 * other + SLACK[case.grad.dtype] * wanted.abs().max().item()
        if not error <= allowed:  # not a number is not
            raise SystemExit(f"{case.name}: {name} errs by {error:.2e}, allowed {allowed:.2e}")


def milliseconds(
    steps: dict[str, Step], repeats: int, cold: bool, warmup: int = 3
) -> dict[str, list[float]]:
    """Times by events on the stream; a round runs every step once, after a flush when `cold`."""
    flush = torch.empty(FLUSH, dtype=torch.uint8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in steps}
    for round_ in range(-warmup, repeats):
        for name, work in steps.items():
            if cold:
                flush.fill_(round_ % 2)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            work()
            end.record()
            end.synchronize()
            if round_ >= 0:
                times[name].append(begin.elapsed_time(end))
    return times


def extra_memory(work: Step) -> float:
    """MiB that a step holds at its peak on top of what lies there before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def measured(case: Case, repeats: int) -> list[Row]:
    """Check a case, time it, and say how it compares."""
    steps = runnable(case)
    check(case, steps["graphtheory"](), steps["TransformerConv"]())
    for name in ("graphtheory", "graphtheory, bucket bias"):
        once, again = ([t.clone() for t in steps[name]()] for _ in range(2))
        if not all(torch.equal(a, b) for a, b in zip(once, again, strict=True)):
            raise SystemExit(f"{case.name}: {name} gives other bits the second time")
    heads, dim = case.leaves[0].shape[1:]
    about = {"nodes": case.nb.num_dst, "edges": case.nb.num_edges, "heads": heads, "head_dim": dim}
    rows = []
    for state in ("cold", "warm"):
        times = milliseconds(steps, repeats, state == "cold")
        label = f"{case.name}, {state} cache"
        rows += [Row.of(f"{label}: {n}", t, "ms", **about) for n, t in times.items()]
        moved = [case.gathered / t * 1e-9 for t in times["graphtheory"]]
        rows.append(Row.of(f"{label}: gathered by graphtheory", moved, "TB/s", **about))
        for name, taken in times.items():
            if "graphtheory" not in name and " layer" not in name:
                faster = ratios(taken, times["graphtheory"])
                rows.append(Row.of(f"{label}: times faster than {name}", faster, "1", **about))
    for name, work in steps.items():
        if "CUDA graph" not in name:  # it has its memory already
            rows.append(
                Row.of(f"{case.name}: memory of {name}", extra_memory(work), "MiB", **about)
            )
    return rows


def ceilings(repeats: int) -> list[Row]:
    """What the memory can do, in bytes read and written: a copy, rows in random order."""
    rows, bytes_ = [], 2 * 2**30
    source = torch.zeros(bytes_ // 4, device="cuda")
    target = torch.empty_like(source)
    steps: dict[str, Step] = {"copy": lambda: [target.copy_(source)]}
    for width in (64, 128, 256):
        table = source.view(-1, width)
        order = torch.randperm(table.size(0), device="cuda")
        into = target.view(-1, width)
        steps[f"random gather of rows of {4 * width} bytes"] = partial(
            lambda t, o, i: [torch.index_select(t, 0, o, out=i)], table, order, into
        )
    for name, taken in milliseconds(steps, repeats, cold=False).items():
        rows.append(Row.of(f"ceiling: {name}", [2 * bytes_ / t * 1e-9 for t in taken], "TB/s"))
    return rows


def main(
    graphs: tuple[str, ...] = tuple(GRAPHS),
    shapes: tuple[str, ...] = ("8x16", "4x64", "1x128"),
    dtypes: tuple[str, ...] = tuple(DTYPES),
    repeats: int = 30,
    out: Path | None = Path(__file__).parent / "results" / "gpu.csv",
) -> None:
    """Time attention forward and backward on a GPU beside PyG, FlexAttention and others.

    Args:
        graphs: Of uniform, pubmed, arxiv, k16, molecules, vit, long, sentences.
        shapes: Heads x head_dim.
        dtypes: Of bf16, fp32, fp16.
        repeats: Rounds; every round runs everything once.
        out: CSV file to put the rows in, after the conformance tests; None writes nothing.
    """
    if not torch.cuda.is_available():
        print("gpu.py needs a GPU that torch can use, and finds none", file=sys.stderr)
        sys.exit(2)
    rows = ceilings(repeats)
    show(rows)
    for graph in graphs:
        for shape in shapes:
            for dtype in dtypes:
                heads, dim = (int(n) for n in shape.split("x"))
                torch._dynamo.reset()
                found = measured(Case.of(graph, heads, dim, DTYPES[dtype]), repeats)
                show(found)
                rows += found
                torch.cuda.empty_cache()
    if out is not None:
        save(rows, out)


if __name__ == "__main__":
    tyro.cli(main)
