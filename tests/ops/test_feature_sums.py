"""Products and sums of features of edges beside their formulas, and each other's gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheory import Neighborhood
from graphtheory.ops.feature_sums import feature_dot, feature_sum

NONE = torch.empty(0, dtype=torch.int64)


def case(seed, num_dst, num_edges, heads, dim, dtype=torch.float64):
    """(indptr, order) of random edges, then queries, weights and features in the given order."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(num_dst, (2, num_edges), generator=generator)
    nb = Neighborhood.from_edge_index(edges, num_src=num_dst, num_dst=num_dst)
    shapes = (num_dst, heads, dim), (num_edges, heads), (num_edges, dim)
    tensors = [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]
    return (nb.indptr, nb.perm), edges[1][nb.perm], [t.requires_grad_() for t in tensors]


def products(query, features, rows, order):
    return torch.einsum("ehd,ed->eh", query[rows], features[order])


def sums(weights, features, rows, order, num_dst):
    each = torch.einsum("eh,ed->ehd", weights, features[order])
    return each.new_zeros(num_dst, *each.shape[1:]).index_add(0, rows, each)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.tuples(st.integers(1, 9), st.integers(0, 40)),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 37)),
)
def test_equal_their_formulas(seed, sizes, shape) -> None:
    (indptr, order), rows, (query, weights, features) = case(seed, *sizes, *shape)
    outs = (
        feature_dot(query, features, indptr, order),
        feature_sum(weights, features, indptr, order),
    )
    wanted = (
        products(query, features, rows, order), sums(weights, features, rows, order, len(query))
    )  # fmt: skip
    for out, other, first in zip(outs, wanted, (query, weights), strict=True):
        up = torch.arange(out.numel(), dtype=out.dtype).view_as(out).cos()
        found, right = (
            (o, *torch.autograd.grad((o * up).sum(), (first, features))) for o in (out, other)
        )
        torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-10)


def test_no_order_is_that_of_the_rows() -> None:
    (indptr, order), _, (query, weights, features) = case(1, 5, 30, 2, 3)
    sorted_features = features.detach()[order].requires_grad_()
    for op, first in ((feature_dot, query), (feature_sum, weights)):
        found = op(first, sorted_features, indptr, NONE)
        wanted = op(first, features, indptr, order)
        assert torch.equal(found, wanted)
        (of_sorted,) = torch.autograd.grad(found.square().sum(), sorted_features)
        (of_given,) = torch.autograd.grad(wanted.square().sum(), features)
        assert torch.equal(of_sorted, of_given[order])


def test_gradients_of_gradients() -> None:
    (indptr, order), _, (query, weights, features) = case(2, 4, 9, 2, 3)
    for op, first in ((feature_dot, query), (feature_sum, weights)):

        def squares(*given, op=op):
            return op(*given, indptr, order).square()

        assert torch.autograd.gradcheck(squares, (first, features))
        assert torch.autograd.gradgradcheck(squares, (first, features))


def test_a_gradient_that_nobody_asks_for_keeps_nothing() -> None:
    (indptr, order), _, (query, weights, features) = case(3, 4, 9, 2, 3)
    for op, first in ((feature_dot, query), (feature_sum, weights)):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda t: t):
            op(first, features.detach(), indptr, order)
        assert all(t.data_ptr() != first.data_ptr() for t in kept)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types_are_summed_in_float32(dtype) -> None:
    (indptr, order), rows, (query, weights, features) = case(4, 3, 500, 2, 16, dtype)
    with torch.no_grad():
        found = feature_dot(query, features, indptr, order)
        wanted = products(query.float(), features.float(), rows, order).to(dtype)
        torch.testing.assert_close(found, wanted)
        found = feature_sum(weights, features, indptr, order)
        wanted = sums(weights.float(), features.float(), rows, order, 3).to(dtype)
        torch.testing.assert_close(found, wanted)


def test_bits_do_not_depend_on_threads() -> None:
    (indptr, order), _, (query, weights, features) = case(5, 300, 40_000, 4, 16, torch.float32)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append([])
            for op, first in ((feature_dot, query), (feature_sum, weights)):
                out = op(first, features, indptr, order)
                grads = torch.autograd.grad(out.square().sum(), (first, features))
                found[-1] += [out, *grads]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
