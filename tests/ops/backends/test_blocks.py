"""Sets on torch's dense attention: how often it is called, with what, and what stays apart.

The backward pass of a learned bias takes a few sets at a time.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, bipartite, causal, cliques, ops, star
from graphtheory.ops.backends import blocks
from tests.conformance.check import draw_inputs

Calls = list[dict[str, Any]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The options of every call of the dense kernel."""
    found: Calls = []
    run = blocks.scaled_dot_product_attention

    def watched(query: Tensor, *rest: Tensor, **options: Any) -> Tensor:
        found.append({"shape": tuple(query.shape), **options})
        return run(query, *rest, **options)

    monkeypatch.setattr(blocks, "scaled_dot_product_attention", watched)
    return found


def dense(nb: Neighborhood, bias: str = "none") -> Tensor:
    inputs = draw_inputs(nb, 2, 4, bias)
    return ops.attention(
        inputs.query, inputs.key, inputs.value, nb, bias=inputs.bias, backend="blocks"
    )


@pytest.mark.parametrize(
    ("nb", "shapes"),
    [
        (cliques([300] * 3), [(3, 2, 300, 4)]),
        (causal([5] * 3), [(3, 2, 5, 4)]),
        (cliques([5] * 3), []),  # equal sets of few sources go to loops of our own
        (causal([5, 20, 3, 0, 17]), [(2, 2, 5, 4), (2, 2, 20, 4)]),
    ],
)
def test_sets_are_few_calls_without_a_mask_and_equal_ones_without_a_copy(nb, shapes, calls) -> None:
    dense(nb)
    assert [c["shape"] for c in calls] == shapes
    assert all(c["attn_mask"] is None and c["is_causal"] == nb.sets.causal for c in calls)
    assert (nb._groups is None) == nb.sets.equal


def test_ragged_sets_hide_their_padding_and_stars_of_a_size_class_are_one_call(calls) -> None:
    dense(cliques([5, 20, 3, 0]))
    assert calls[0]["attn_mask"].shape == (2, 1, 1, 5) and calls[0]["attn_mask"].isinf().sum() == 2
    assert calls[1]["attn_mask"] is None  # alone in its group
    dense(star(range(1, 17)))
    assert [c["shape"] for c in calls[2:]] == [(16, 2, 1, 4)]


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize(
    "nb", [cliques([4, 4]), cliques([4, 3, 20]), causal([4, 4]), causal([4, 5, 20])]
)
@pytest.mark.parametrize("row", [3, 5, 6])
def test_a_row_barred_by_its_bias_is_empty(nb: Neighborhood, row: int, trained: bool) -> None:
    inputs = draw_inputs(nb, 2, 4, "edges")
    barred = inputs.bias.detach().clone()
    barred[nb.targets() == row] = -torch.inf
    barred.requires_grad_(trained)
    nodes = [inputs.query, inputs.key, inputs.value]
    leaves = [*nodes, barred] if trained else nodes
    found, true = (
        ops.attention(*nodes, nb, bias=barred, backend=b) for b in ("blocks", "reference")
    )
    assert found[row].eq(0).all()
    torch.testing.assert_close(
        torch.autograd.grad(found, leaves, inputs.grad),
        torch.autograd.grad(true, leaves, inputs.grad),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("nb", [cliques([4, 3, 20]), causal([4, 5, 20]), bipartite([2, 3], [5, 7])])
def test_nan_stays_in_its_set(nb: Neighborhood) -> None:
    inputs = draw_inputs(nb, 2, 4)
    bad = 1  # of the first set, whose neighbors share its group
    mine, others = nb.sets.dst[0], slice(nb.sets.dst[0], None)
    key = inputs.key.detach().clone()
    key[bad] = torch.nan
    leaves = [inputs.query, key.requires_grad_(), inputs.value]
    out = ops.attention(*leaves, nb, backend="blocks")
    clean = ops.attention(inputs.query, inputs.key, inputs.value, nb, backend="blocks")
    assert torch.equal(out[others], clean[others])
    seen = nb.targets()[nb.indices == bad]
    assert out[seen].isnan().all()
    grads = torch.autograd.grad(out, leaves, inputs.grad)
    true = torch.autograd.grad(clean, [inputs.query, inputs.key, inputs.value], inputs.grad)
    for side, a, b in zip(("dst", "src", "src"), grads, true, strict=True):
        first = mine if side == "dst" else nb.sets.src[0]
        assert torch.equal(a[first:], b[first:])


def test_nodes_without_edges_get_zeros_and_pass_no_gradient() -> None:
    nb = bipartite([2, 3, 0, 4], [3, 0, 5, 2])
    inputs = draw_inputs(nb, 2, 4)
    out = ops.attention(inputs.query, inputs.key, inputs.value, nb, backend="blocks")
    assert out[2:5].eq(0).all()
    grads = torch.autograd.grad(out, [inputs.query, inputs.key, inputs.value], inputs.grad)
    assert grads[0][2:5].eq(0).all() and all(g[3:8].eq(0).all() for g in grads[1:])


@pytest.mark.parametrize("nb", [cliques([2, 3]), causal([2, 3])])
def test_a_second_derivative_where_the_kernel_has_one(nb: Neighborhood) -> None:
    inputs = draw_inputs(nb, 1, 2, "edges", torch.float64)

    def run(*leaves: Tensor) -> Tensor:
        return ops.attention(*leaves[:3], nb, bias=leaves[3], backend="blocks")

    assert torch.autograd.gradgradcheck(run, list(inputs.leaves().values()))


def test_a_table_in_half_precision_sums_its_gradient_in_single() -> None:
    nb = cliques([60, 70])
    inputs = draw_inputs(nb, 1, 4, "buckets", torch.bfloat16)
    found, true = (
        torch.autograd.grad(
            ops.attention(i.query, i.key, i.value, nb, bias=i.bias, backend=b).sum(), i.bias.table
        )[0].double()
        for i, b in ((inputs, "blocks"), (inputs.to(torch.float64), "reference"))
    )
    assert (found - true).abs().max() <= 0.03 * true.abs().max()


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
@pytest.mark.parametrize("nb", [cliques([3, 3]), cliques([3, 2]), causal([3, 2]), causal([2, 2])])
def test_no_heads_and_no_features(nb: Neighborhood, shape: tuple[int, int]) -> None:
    x = torch.zeros(nb.num_dst, *shape, requires_grad=True)
    learned = torch.zeros(nb.num_edges, shape[0], requires_grad=True)
    for bias in (None, learned):
        out = ops.attention(x, x, x, nb, bias=bias, backend="blocks")
        assert out.shape == x.shape
        out.sum().backward()
    assert nb.blocks is None or learned.grad.shape == learned.shape


@pytest.mark.parametrize("bias", ["edges", "buckets"])
@pytest.mark.parametrize("nb", [cliques([5] * 7), cliques([3, 17, 4, 16, 5]), causal([5] * 7)])
def test_the_size_of_a_part_does_not_matter(monkeypatch, nb, bias) -> None:
    inputs = draw_inputs(nb, 2, 4, bias, torch.float64)
    leaves = list(inputs.leaves().values())

    def gradients(backend: str) -> tuple[torch.Tensor, ...]:
        nodes = (inputs.query, inputs.key, inputs.value)
        out = ops.attention(*nodes, nb, bias=inputs.bias, backend=backend)
        return out, *torch.autograd.grad(out, leaves, inputs.grad)

    true = gradients("reference")
    for places in (1, 2 * 2 * 25):  # one set at a time, and two
        monkeypatch.setattr(blocks, "_TILE", places)
        torch.testing.assert_close(gradients("blocks"), true)


def test_a_bias_that_heads_share_stays_one_with_the_gradient_of_each() -> None:
    shared = torch.randn(18, 1).expand(-1, 4).detach().requires_grad_()
    weigh = torch.randn(2, 4, 3, 3)
    for bias in (shared, shared.detach().clone().requires_grad_()):
        mask = blocks.of_edges(bias).mask((2, 3, 3), torch.float32)
        (grad,) = torch.autograd.grad((mask * weigh).sum(), bias)
        assert torch.equal(grad, weigh.transpose(0, 1).flatten(1).t())
    shared = torch.randn(18, 1).expand(-1, 4)
    mask = blocks.of_edges(shared).mask((2, 3, 3), torch.float32)
    assert mask.stride(1) == 0 and torch.equal(mask[1, 2], shared[9:, 0].view(3, 3))
    x = torch.randn(6, 4, 8)
    found, true = (
        ops.attention(x, x, x, cliques([3, 3]), bias=shared, backend=b)
        for b in ("blocks", "reference")
    )
    torch.testing.assert_close(found, true)
