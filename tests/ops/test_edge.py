"""The primitives: derivatives of first and second order, and what they say at the edge."""

import pytest
import torch
from torch import Tensor

from graphtheory import ops
from tests.conformance.check import GRAPHS


def double(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def test_they_compose_to_attention() -> None:
    nb = GRAPHS["random"](63)
    query, key, value = (double(63, 2, 5) for _ in range(3))
    logits = 5**-0.5 * ops.edge_dot(query, key, nb)
    composed = ops.aggregate(ops.edge_softmax(logits, nb), value, nb)
    fused = ops.attention(query, key, value, nb, backend="numba_csr")
    torch.testing.assert_close(composed, fused, rtol=1e-12, atol=1e-13)
    upstream = double(63, 2, 5).detach()
    torch.testing.assert_close(
        torch.autograd.grad(composed, (query, key, value), upstream),
        torch.autograd.grad(fused, (query, key, value), upstream),
        rtol=1e-12,
        atol=1e-13,
    )


def test_aggregate_counts_edges_without_weights_and_takes_those_of_another_type() -> None:
    nb = GRAPHS["random"](7)
    out = ops.aggregate(None, torch.ones(7, 2, 3), nb)
    assert torch.equal(out[:, 1, 2], nb.degree().float())
    nb = GRAPHS["random"](7)
    weights = double(nb.num_edges, 2)
    value = double(7, 2, 3).detach().float().requires_grad_()
    out = ops.aggregate(weights, value, nb)
    assert out.dtype == torch.float32
    grads = torch.autograd.grad(out.sum(), (weights, value))
    assert [g.dtype for g in grads] == [torch.float64, torch.float32]


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("graph", ["random", "more sources", "no edges", "hub"])
@pytest.mark.parametrize("reduce", ["mean", "max", "min"])
@pytest.mark.parametrize("backend", ["numba_csr", "torch_csr"])
def test_reductions_of_equal_numbers_by_every_backend(backend, reduce, graph, weighted) -> None:
    """Few different numbers: several edges of a row are the largest, and share its gradient."""
    nb, generator = GRAPHS[graph](9), torch.Generator().manual_seed(2)

    def few(*shape: int) -> Tensor:
        return torch.randint(-2, 3, shape, generator=generator).double().requires_grad_()

    weights, value = few(nb.num_edges, 2) if weighted else None, few(nb.num_src, 2, 3)
    leaves = [value] if weights is None else [weights, value]
    up = torch.randn(nb.num_dst, 2, 3, generator=generator).double()

    def run(backend: str) -> list[Tensor]:
        out = ops.aggregate(weights, value, nb, reduce, backend=backend)
        return [out, *torch.autograd.grad(out, leaves, up)]

    torch.testing.assert_close(run(backend), run("reference"))


def test_a_reduction_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="reduce: got 'median', expected one of"):
        ops.aggregate(None, torch.ones(4, 1, 1), GRAPHS["random"](4), "median")


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_the_largest_under_inference_and_compiled_is_the_same(reduce: str) -> None:
    nb, value = GRAPHS["random"](7), double(7, 2, 3)
    wanted = ops.aggregate(None, value, nb, reduce)
    with torch.inference_mode():
        assert torch.equal(ops.aggregate(None, value, nb, reduce), wanted.detach())
    compiled = torch.compile(lambda v: ops.aggregate(None, v, nb, reduce), backend="aot_eager")
    grads = [torch.autograd.grad(o.sin().sum(), value)[0] for o in (compiled(value), wanted)]
    assert torch.equal(*grads)
