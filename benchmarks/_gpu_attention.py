"""Attention on one graph, shape and precision, by graphtheory and by others on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import torch
from _gpu import Step, recorded
from _graphs import GRAPHS as ON_CPU
from _graphs import gathered
from torch import Tensor
from torch_geometric import nn as pyg

from graphtheory import Neighborhood, cliques, nn, ops
from graphtheory.ops import BucketedBias

BUCKETS = 20
GRAPHS = ON_CPU | {"long": lambda: cliques([1024] * 4)}
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp16": torch.float16}
DENSE = 20_000  # nodes up to which a mask of all pairs is made for FlexAttention

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
SMALL = ("pubmed", "molecules")  # bound by launches: also replayed as a CUDA graph


@cache
def there(graph: str) -> Neighborhood:
    """A graph on the GPU."""
    return GRAPHS[graph]().to("cuda")


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
        nb = there(graph)
        generator = torch.Generator("cuda").manual_seed(1)

        def normal(nodes: int) -> Tensor:
            return torch.randn(nodes, heads, dim, generator=generator, device="cuda").to(dtype)

        leaves = [normal(n).requires_grad_() for n in (nb.num_dst, nb.num_src, nb.num_src)]
        bucket = torch.randint(BUCKETS, (nb.num_edges,), generator=generator, device="cuda")
        # Zeros: read for every edge, without an effect that the others would have to match.
        table = torch.zeros(BUCKETS, heads, device="cuda", requires_grad=True)
        return cls(graph, nb, leaves, normal(nb.num_dst), BucketedBias(bucket.byte(), table))

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
    """Run a forward and a backward pass."""
    out = attention(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def attention(case: Case) -> Attention:
    """Our attention over the edges of the case."""
    return partial(ops.attention, neighborhood=case.nb, backend="triton_csr")


def nearest_half(case: Case) -> Attention:
    """Ours to the nearest half of equal sets."""
    assert case.nb.blocks is not None, f"{case.graph} is not made of equal sets"
    k = case.nb.blocks[2] // 2
    return partial(ops.topk_attention, neighborhood=case.nb, k=k, backend="blocks")


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
    rows = nb.targets()

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


def replayed(case: Case, attention: Attention) -> Step:
    """Forward and backward as one CUDA graph.

    Its leaves are new, for those that another stream has given gradients are tied to that stream.
    """
    leaves = [t.detach().clone().requires_grad_() for t in case.leaves]
    return recorded(partial(step, attention, leaves, case.grad))


def contestants(case: Case, compiled: bool) -> Iterator[tuple[str, Callable[[], Step]]]:
    """(name, what makes the step); making it may fail where a rival cannot run the case.

    Args:
        case: What to compute.
        compiled: Whether those are among them that `torch.compile` takes tens of seconds for.
    """

    def plain(make: Callable[[Case], Attention]) -> Callable[[], Step]:
        return lambda: partial(step, make(case), case.leaves, case.grad)

    yield "graphtheory", plain(attention)
    yield "graphtheory, bucket bias", lambda: with_table(case)
    if case.nb.blocks is not None:
        yield "graphtheory, blocks", plain(lambda _: partial(ops.attention, neighborhood=case.nb))
        yield "graphtheory, nearest half of blocks", plain(nearest_half)
    yield "TransformerConv", plain(transformer_conv)
    if compiled:
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
        yield "graphtheory, CUDA graph", lambda: replayed(case, attention(case))
