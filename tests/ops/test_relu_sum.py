"""Sums of ReLU(source + edge) beside their formula; `tests/conformance` has every backend."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheory import Neighborhood, cliques, ops
from graphtheory.ops.relu_sum import _sum, _sum_grad

BACKENDS = ["numba_csr", "torch_csr", "reference"]


def case(seed, num_src, num_dst, num_edges, heads, dim, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(n, (num_edges,), generator=generator) for n in (num_src, num_dst)]
    nb = Neighborhood.from_edge_index(torch.stack(ends), num_src=num_src, num_dst=num_dst)
    tensors = [
        torch.randn(n, heads, dim, generator=generator, dtype=dtype) for n in (num_src, num_edges)
    ]
    return torch.stack(ends), nb, [t.requires_grad_() for t in tensors]


def definition(edge_index, num_dst, value, features):
    """The formula as it stands, on the given edges."""
    messages = (value[edge_index[0]] + features).relu()
    return messages.new_zeros(num_dst, *messages.shape[1:]).index_add(0, edge_index[1], messages)


@pytest.mark.parametrize("given_order", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 40)),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 37)),
)
def test_equals_the_definition(backend, given_order, seed, sizes, shape) -> None:
    edge_index, nb, (value, features) = case(seed, *sizes, *shape)
    wanted = definition(edge_index, nb.num_dst, value, features)
    ours = features if given_order else features[nb.perm]
    out = ops.relu_sum(value, ours, nb, given_order=given_order, backend=backend)
    up = torch.arange(out.numel(), dtype=out.dtype).view_as(out).cos()
    results = [
        (sums, *torch.autograd.grad((sums * up).sum(), (value, features))) for sums in (out, wanted)
    ]
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_gradients(backend) -> None:
    _, nb, tensors = case(2, 4, 3, 9, 2, 3)

    def sums(*given):
        return ops.relu_sum(*given, nb, given_order=True, backend=backend).square()

    assert torch.autograd.gradcheck(sums, tensors)
    assert torch.autograd.gradgradcheck(sums, tensors)


@pytest.mark.parametrize("given_order", [False, True])
def test_is_a_proper_torch_op(given_order) -> None:
    _, nb, (value, features) = case(3, 5, 4, 12, 2, 3)
    order, t = nb.perm if given_order else nb.perm[:0], nb.transpose()
    parts = [nb.indptr, nb.indices, order, t.indptr, order[t.perm] if given_order else t.perm]
    torch.library.opcheck(_sum.op, (value, features, parts, "numba_csr"))
    grad = torch.randn(4, 2, 3, dtype=value.dtype, requires_grad=True)
    torch.library.opcheck(_sum_grad.op, (grad, value, features, parts, "numba_csr"))


def test_only_the_gradient_that_is_asked_for() -> None:
    _, nb, (value, features) = case(4, 5, 4, 12, 2, 3)
    wanted = torch.autograd.grad(ops.relu_sum(value, features, nb).sum(), (value, features))
    alone = ops.relu_sum(value.detach(), features, nb).sum()
    torch.testing.assert_close(torch.autograd.grad(alone, features)[0], wanted[1])
    alone = ops.relu_sum(value, features.detach(), nb).sum()
    torch.testing.assert_close(torch.autograd.grad(alone, value)[0], wanted[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_zero_passes_nothing_and_nan_stays_in_its_row(backend) -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    value = torch.tensor([[[0.0]], [[torch.nan]]], requires_grad=True)
    out = ops.relu_sum(value, torch.zeros(2, 1, 1), nb, backend=backend)
    assert out.flatten().isnan().tolist() == [True, False]
    (grad,) = torch.autograd.grad(out[1].sum(), value)
    assert grad[0].item() == 0


def test_under_compile_and_vmap() -> None:
    _, nb, (value, features) = case(5, 5, 4, 12, 2, 3)
    wanted = ops.relu_sum(value, features, nb, given_order=True)
    compiled = torch.compile(
        lambda v, f: ops.relu_sum(v, f, nb, given_order=True), fullgraph=True, backend="eager"
    )
    assert torch.equal(compiled(value, features), wanted)
    many = torch.stack([value, 2 * value]).detach()
    mapped = torch.func.vmap(lambda v: ops.relu_sum(v, features.detach(), nb))(many)
    assert torch.equal(mapped[1], ops.relu_sum(many[1], features.detach(), nb))


def test_wrong_input_is_named() -> None:
    nb, value = cliques([2, 2]), torch.zeros(4, 2, 3)
    features = torch.zeros(nb.num_edges, 2, 3)
    for tensors, error, message in (
        ((value.long(), features), TypeError, "value: dtype torch.int64, expected a floating"),
        ((value[:3], features), ValueError, r"value: shape \(3, 2, 3\), expected \[4, heads"),
        ((value, features.double()), TypeError, "edge_features: got torch.float64, expected"),
        ((value, None), TypeError, "edge_features: got NoneType, expected torch.float32"),
        ((value, features[:5]), ValueError, r"edge_features: shape \(5, 2, 3\), expected \(8, 2"),
        ((value, features[:, :, :1]), ValueError, r"edge_features: shape \(8, 2, 1\), expected"),
        ((value, features.to("meta")), ValueError, "edge_features: on meta, expected cpu"),
    ):
        with pytest.raises(error, match=message):
            ops.relu_sum(*tensors, nb)
    with pytest.raises(ValueError, match="given_order: got True, but the neighborhood has no perm"):
        ops.relu_sum(value, features, nb, given_order=True)
