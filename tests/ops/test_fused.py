"""Attention as a torch op: registered as torch demands, saving no more than it must."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from graphtheory import Neighborhood, ops
from tests.conformance.check import BIASES, GRAPHS, draw_inputs

TABLE_FREE = [b for b in BIASES if b in ("none", "edges", "buckets")]


@pytest.mark.parametrize("bias", TABLE_FREE)
def test_data_as_keys_and_values_needs_no_transposed_structure(bias: str) -> None:
    def gradients(of_sources: bool) -> tuple[list[torch.Tensor], Neighborhood]:
        nb = GRAPHS["more sources"](7)
        inputs = draw_inputs(nb, 2, 3, bias)
        sources = (t.detach().requires_grad_(of_sources) for t in (inputs.key, inputs.value))
        given = inputs.bias.table if isinstance(inputs.bias, ops.BucketedBias) else inputs.bias
        leaves = [inputs.query, *([] if given is None else [given])]
        out = ops.attention(inputs.query, *sources, nb, bias=inputs.bias, backend="numba_csr")
        return list(torch.autograd.grad(out, leaves, inputs.grad)), nb

    (found, alone), (wanted, turned) = gradients(False), gradients(True)
    assert alone._transpose is None and turned._transpose is not None
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def test_nothing_saved_has_an_edge_axis_and_a_feature_axis() -> None:
    nb = GRAPHS["random"](63)
    inputs = draw_inputs(nb, 4, 32, "buckets")
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        ops.attention(inputs.query, inputs.key, inputs.value, nb, bias=inputs.bias)
    assert nb.num_edges == 189 and max(t.numel() for t in saved if t.size(0) == 189) == 189 * 4
    assert not [t for t in saved if t.is_floating_point() and t.shape == (189, 4, 32)]


def test_without_a_gradient_nothing_is_transposed_and_a_loss_may_skip_the_output() -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), 2)
    x = torch.ones(2, 1, 1)
    ops.attention(x, x, x, nb)
    assert nb._transpose is None
    ops.attention(x, x, x.clone().requires_grad_(), nb)
    assert nb._transpose is not None
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), 2)
    x = torch.ones(2, 1, 1, requires_grad=True)
    out = ops.attention(x, x, x, nb)
    grads = torch.autograd.grad((out * 0).sum() + x.sum(), x)
    assert torch.equal(grads[0], torch.ones_like(x))


@pytest.mark.parametrize("name", ["attention", "additive_attention", "additive_score"])
def test_checkpoints_without_reentrance(name: str) -> None:
    nb = GRAPHS["random"](6)
    x = torch.randn(6, 2, 3, requires_grad=True)

    def of(x: torch.Tensor) -> torch.Tensor:
        if name == "attention":
            return ops.attention(x, x, x, nb, backend="numba_csr")
        if name == "additive_attention":
            return ops.additive_attention(x, x.sum(-1), None, nb)
        return ops.additive_score(x, x, x[0], nb)

    again = checkpoint(of, x, use_reentrant=False)
    found, wanted = (torch.autograd.grad(out.square().sum(), x)[0] for out in (again, of(x)))
    assert torch.equal(found, wanted)
