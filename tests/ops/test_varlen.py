"""Sequences side by side against torch's attention on each alone."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from graphtheory import ops


def offsets(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).int()


def one_by_one(q, k, v, queries, keys, is_causal, bias):
    out, first = [], 0
    for a, b, c in zip(q.split(queries), k.split(keys), v.split(keys), strict=True):
        a, b, c = (t.transpose(0, 1) for t in (a, b, c))
        shape = (a.size(1), b.size(1))
        edges = torch.ones(shape, dtype=torch.bool)
        edges = edges.tril() if is_causal else edges
        mask = torch.zeros(len(a), *shape, dtype=q.dtype)
        mask = mask.masked_fill(~edges, -torch.inf)
        if bias is not None:
            size = int(edges.sum())
            mask = mask.clone()
            mask[:, edges] = bias[first : first + size].t()
            first += size
        out.append(scaled_dot_product_attention(a, b, c, attn_mask=mask).transpose(0, 1))
    return torch.cat(out)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys", "is_causal"),
    [([5, 1, 70], None, False), ([5, 1, 70], None, True), ([3, 4], [6, 20], False)],
)
def test_equals_each_sequence_alone(queries, keys, is_causal, biased) -> None:
    of_keys = keys or queries
    cu = offsets(queries), None if keys is None else offsets(keys)
    nb = ops.varlen_neighborhood(*cu, is_causal=is_causal)
    assert ops.varlen_neighborhood(*cu, is_causal=is_causal) is nb
    leaves = [torch.randn(n, 2, 4, dtype=torch.float64, requires_grad=True)
              for n in (sum(queries), sum(of_keys), sum(of_keys))]  # fmt: skip
    bias = None
    if biased:
        bias = torch.randn(nb.num_edges, 2, dtype=torch.float64, requires_grad=True)
        leaves.append(bias)
    ours = ops.varlen_attention(*leaves[:3], *cu, is_causal=is_causal, bias=bias)
    theirs = one_by_one(*leaves[:3], queries, of_keys, is_causal, bias)
    torch.testing.assert_close(ours, theirs)
    grad = torch.randn_like(ours)
    torch.testing.assert_close(*(torch.autograd.grad(o, leaves, grad) for o in (ours, theirs)))


def test_bad_offsets() -> None:
    good, x = offsets([2, 3]), torch.randn(5, 1, 4)
    with pytest.raises(TypeError, match=r"cu_seqlens_q: got torch\.float32, expected a tensor"):
        ops.varlen_attention(x, x, x, good.float())
    with pytest.raises(TypeError, match="cu_seqlens_q: got list, expected a tensor"):
        ops.varlen_attention(x, x, x, [0, 2, 5])
    for bad in (good + 1, good.flip(0), good[:0], good[None]):
        with pytest.raises(ValueError, match=r"cu_seqlens_q: expected offsets"):
            ops.varlen_attention(x, x, x, bad)
    with pytest.raises(ValueError, match="cu_seqlens_k: 1 sequences, expected 2"):
        ops.varlen_attention(x, x, x, good, offsets([5]))
    for others in ([3, 2], [1, 4]):
        with pytest.raises(ValueError, match="is_causal: expected keys of the lengths"):
            ops.varlen_attention(x, x, x, good, offsets(others), is_causal=True)
    with pytest.raises(ValueError, match="query: shape"):
        ops.varlen_attention(x[:4], x, x, good)
