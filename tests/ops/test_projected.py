"""Attention on linear maps beside its formula, edge by edge, and its derivatives."""

import pytest
import torch
from torch.nn.functional import linear
from torch_geometric.utils import softmax

from graphtheory import Neighborhood
from graphtheory.ops import BucketedBias
from graphtheory.ops.dropout import dropout_factor
from graphtheory.ops.projected import attention

SRC, DST, E, H, C, D = 9, 7, 40, 3, 5, 4
BUCKETS = 6
SEED = torch.tensor(12345)


def case(biases=True, ordered=True, bias=None, dtype=torch.float64):
    """Tensors by name, the neighborhood, the order, and where each edge goes."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        values = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return values.to(dtype).requires_grad_()

    edges = torch.stack([torch.randint(n, (E,), generator=generator) for n in (SRC, DST - 1)])
    nb = Neighborhood.from_edge_index(edges, num_src=SRC, num_dst=DST)  # the last row is empty
    order = nb.perm if ordered else None
    edges = edges[:, nb.perm]
    tensors = {"x_src": draw(SRC, 8), "x_dst": draw(DST, 6)}
    for name, channels in (("query", 6), ("key", 8), ("value", 8)):
        tensors[name] = draw(H * C, channels)
        tensors[f"{name} bias"] = draw(H * C) if biases else None
    tensors |= {"matrix": draw(H, D, C), "features": draw(E, D)}
    bucket = torch.randint(BUCKETS, (E,), generator=generator).to(torch.uint8)
    tensors["bias"] = draw(E, H) if bias == "by edge" else None
    tensors["table"] = draw(BUCKETS, H) if bias == "table" else None
    return tensors, nb, order, edges, bucket


def ours(tensors, nb, order, bucket, dropout=0.0):
    maps = [(tensors[n], tensors[f"{n} bias"]) for n in ("query", "key", "value")]
    bias = tensors["bias"]
    bias = bias if tensors["table"] is None else BucketedBias(bucket, tensors["table"])
    return attention(
        tensors["x_src"], tensors["x_dst"], maps, tensors["matrix"], tensors["features"], nb,
        order, bias, 0.4, dropout, SEED if dropout else None,
    )  # fmt: skip


def formula(tensors, order, edges, bucket, dropout=0.0):
    src, dst = edges
    query, key, value = (
        linear(tensors[x], tensors[n], tensors[f"{n} bias"]).view(-1, H, C)
        for x, n in (("x_dst", "query"), ("x_src", "key"), ("x_src", "value"))
    )
    features = tensors["features"] if order is None else tensors["features"][order]
    of_edges = torch.einsum("ed,hdc->ehc", features, tensors["matrix"])
    logits = 0.4 * (query[dst] * (key[src] + of_edges)).sum(-1)
    if tensors["bias"] is not None:
        logits = logits + tensors["bias"]
    if tensors["table"] is not None:
        logits = logits + tensors["table"][bucket.long()]
    weights = softmax(logits, dst, num_nodes=DST)
    if dropout:
        weights = weights * dropout_factor(dropout, SEED, weights)
    each = weights[..., None] * (value[src] + of_edges)
    return each.new_zeros(DST, H, C).index_add(0, dst, each)


def compared(tensors, found, wanted, **close):
    up = torch.arange(found.numel(), dtype=found.dtype).view_as(found).cos()
    leaves = {name: t for name, t in tensors.items() if t is not None and t.requires_grad}
    of = [torch.autograd.grad((o * up).sum(), leaves.values()) for o in (found, wanted)]
    torch.testing.assert_close(found, wanted, **close)
    for name, one, other in zip(leaves, *of, strict=True):
        torch.testing.assert_close(one, other, msg=lambda m, n=name: f"{n}: {m}", **close)


@pytest.mark.parametrize("bias", [None, "by edge", "table"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("ordered", [False, True])
def test_equals_its_formula(ordered, dropout, bias) -> None:
    tensors, nb, order, edges, bucket = case(ordered=ordered, bias=bias)
    found = ours(tensors, nb, order, bucket, dropout)
    compared(tensors, found, formula(tensors, order, edges, bucket, dropout))
    assert not found[-1].any()


def test_without_biases_in_float32_and_without_edges() -> None:
    tensors, nb, order, edges, bucket = case(biases=False, dtype=torch.float32)
    wanted = formula(tensors, order, edges, bucket)
    compared(tensors, ours(tensors, nb, order, bucket), wanted, rtol=1e-4, atol=1e-4)
    tensors, _, _, _, bucket = case()
    nothing = Neighborhood.from_edge_index(torch.empty(2, 0).long(), num_src=SRC, num_dst=DST)
    tensors["features"] = torch.empty(0, D, dtype=torch.float64, requires_grad=True)
    out = ours(tensors, nothing, nothing.perm, bucket)
    assert out.shape == (DST, H, C) and not out.any()
    out.sum().backward()
    assert not tensors["x_src"].grad.any()


@pytest.mark.parametrize("fixed", ["x_src", "x_dst", "features", "query", "matrix", "table"])
def test_where_one_has_no_gradient(fixed) -> None:
    tensors, nb, order, edges, bucket = case(bias="table")
    tensors[fixed].requires_grad_(False)
    found = ours(tensors, nb, order, bucket)
    compared(tensors, found, formula(tensors, order, edges, bucket))


@pytest.mark.parametrize("bias", ["by edge", "table"])
def test_derivatives_of_gradients(bias) -> None:
    tensors, nb, order, edges, bucket = case(bias=bias)
    leaves, found = [t for t in tensors.values() if t is not None], []
    for out in (ours(tensors, nb, order, bucket), formula(tensors, order, edges, bucket)):
        first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
        total = sum(g.square().sum() for g in first)
        second = torch.autograd.grad(total, leaves, create_graph=True)
        (third,) = torch.autograd.grad(second[0].square().sum(), leaves[2])
        found.append([*first, *second, third])
    torch.testing.assert_close(*found)
