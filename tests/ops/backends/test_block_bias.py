"""A learned bias on dense sets, whose backward pass takes a few sets at a time."""

from __future__ import annotations

import pytest
import torch

from graphtheory import Neighborhood, causal, cliques, ops
from graphtheory.ops.backends import block_bias
from tests.conformance.check import draw_inputs


@pytest.mark.parametrize("bias", ["edges", "buckets"])
@pytest.mark.parametrize("nb", [cliques([5] * 7), cliques([3, 17, 4, 16, 5]), causal([5] * 7)])
def test_the_size_of_a_part_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, nb: Neighborhood, bias: str
) -> None:
    inputs = draw_inputs(nb, 2, 4, bias, torch.float64)
    leaves = list(inputs.leaves().values())

    def gradients(backend: str) -> tuple[torch.Tensor, ...]:
        nodes = (inputs.query, inputs.key, inputs.value)
        out = ops.attention(*nodes, nb, bias=inputs.bias, backend=backend)
        return out, *torch.autograd.grad(out, leaves, inputs.grad)

    true = gradients("reference")
    for places in (1, 2 * 2 * 25):  # one set at a time, and two
        monkeypatch.setattr(block_bias, "_TILE", places)
        for found, expected in zip(gradients("blocks"), true, strict=True):
            torch.testing.assert_close(found, expected)


def test_no_heads() -> None:
    nb = cliques([3, 3])
    x = torch.zeros(6, 0, 2, requires_grad=True)
    bias = torch.zeros(18, 0, requires_grad=True)
    out = ops.attention(x, x, x, nb, bias=bias, backend="blocks")
    assert torch.autograd.grad(out.sum(), bias)[0].shape == (18, 0)


def test_a_shared_bias_with_a_gradient_has_that_of_each_head() -> None:
    shared = torch.randn(18, 1).expand(-1, 4).detach().requires_grad_()
    weigh = torch.randn(2, 4, 3, 3)
    for bias in (shared, shared.detach().clone().requires_grad_()):
        mask = block_bias.of_edges(bias).mask((2, 3, 3), torch.float32)
        (grad,) = torch.autograd.grad((mask * weigh).sum(), bias)
        assert torch.equal(grad, weigh.transpose(0, 1).flatten(1).t())


def test_a_bias_that_heads_share_stays_one() -> None:
    shared = torch.randn(18, 1).expand(-1, 4)
    mask = block_bias.of_edges(shared).mask((2, 3, 3), torch.float32)
    assert mask.stride(1) == 0
    assert torch.equal(mask[1, 2], shared[9:, 0].view(3, 3))
    x = torch.randn(6, 4, 8)
    found, true = (
        ops.attention(x, x, x, cliques([3, 3]), bias=shared, backend=b)
        for b in ("blocks", "reference")
    )
    torch.testing.assert_close(found, true)
