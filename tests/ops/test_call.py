"""What a call must be: every message names the argument, what it was and what was expected."""

from typing import Any

import pytest
import torch

from graphtheory import Neighborhood, ops
from graphtheory.ops import BucketedBias
from graphtheory.ops.call import AttentionCall
from graphtheory.ops.derivatives import needs_grad

NB = Neighborhood.from_edge_index(torch.tensor([[0, 1, 2], [0, 0, 1]]), num_src=3, num_dst=2)
QUERY, KEY = torch.zeros(2, 4, 5), torch.zeros(3, 4, 5)
BUCKET, TABLE = torch.tensor([0, 1, 2], dtype=torch.uint8), torch.zeros(3, 4)


@pytest.mark.parametrize(("change", "error", "words"), [
    ({"query": KEY}, ValueError, r"query: shape \(3, 4, 5\), expected \[2, heads, head_dim\]"),
    ({"key": QUERY}, ValueError, r"key: shape \(2, 4, 5\), expected \[3, 4, 5\] .*num_src"),
    ({"value": KEY[:, 0]}, ValueError, r"value: shape \(3, 5\), expected \[3, 4, 5\]"),
    ({"query": [0.0]}, TypeError, "query: got list, expected a tensor"),
    ({"key": KEY.long()}, TypeError, r"key: dtype torch\.int64, expected a floating type"),
    ({"key": KEY[:, :3]}, ValueError, r"key: shape \(3, 3, 5\), expected \[3, 4, 5\]"),
    ({"value": KEY[..., :2]}, ValueError, r"value: shape \(3, 4, 2\), expected \[3, 4, 5\]"),
    ({"value": KEY.double()}, TypeError, r"value: dtype torch\.float64, expected torch\.float32"),
    ({"dropout": 1.0}, ValueError, r"dropout: got 1\.0, expected a probability in \[0, 1\)"),
    ({"dropout": -0.1}, ValueError, "dropout: got -0.1"),
    ({"dropout": float("nan")}, ValueError, "dropout: got nan"),
    ({"bias": TABLE[:2]}, ValueError, r"bias: shape \(2, 4\), expected \[3, 4\]"),
    ({"bias": TABLE[:, :2]}, ValueError, r"bias: shape \(3, 2\), expected \[3, 4\]"),
    ({"bias": TABLE.int()}, TypeError, r"bias: dtype torch\.int32, expected a floating type"),
    ({"bias": 1.0}, TypeError, "bias: got float"),
    ({"bias": (BUCKET, TABLE)}, TypeError, r"bias: got tuple, .* BucketedBias\(bucket, table"),
    ({"scale": "x"}, TypeError, "scale: got 'x', expected a number or None"),
    ({"dropout": 0.5, "generator": 3}, TypeError, "generator: got int, expected a torch.Gen"),
    ({"neighborhood": BUCKET}, TypeError, "neighborhood: got Tensor, expected a Neighborhood"),
    ({"bias": BucketedBias(BUCKET.long(), TABLE)}, ValueError,
     r"bias\.bucket: torch\.int64 of shape \(3,\), expected uint8 \[3\]"),
    ({"bias": BucketedBias(BUCKET[:2], TABLE)}, ValueError, r"bias\.bucket: .*\(2,\)"),
    ({"bias": BucketedBias(BUCKET, TABLE[:, :1])}, ValueError,
     r"bias\.table: shape \(3, 1\), expected \[3, 4\]"),
    ({"bias": BucketedBias(BUCKET, torch.zeros(257, 4))}, ValueError, r"bias\.table: .*257"),
    ({"bias": BucketedBias(BUCKET, TABLE[:0])}, ValueError, r"bias\.table: 0 rows, expected 1"),
    ({"bias": BucketedBias(BUCKET, TABLE.long())}, TypeError, r"bias\.table: dtype"),
    ({"bias": BucketedBias(BUCKET, TABLE[0])}, ValueError, r"bias\.table: shape \(4,\)"),
    ({"bias": BucketedBias([0], TABLE)}, TypeError, r"bias\.bucket: got list"),
    ({"bias": BucketedBias(BUCKET, TABLE.to("meta"))}, ValueError,
     r"bias\.table: on meta, expected cpu as the neighborhood is"),
    ({"bias": TABLE.to("meta")}, ValueError, "bias: on meta, expected cpu"),
    ({"query": QUERY.to("meta")}, ValueError, "query: on meta, expected cpu"),
])  # fmt: skip
def test_attention_refuses(change: dict[str, Any], error: type[Exception], words: str) -> None:
    arguments = {"query": QUERY, "key": KEY, "value": KEY, "neighborhood": NB} | change
    with pytest.raises(error, match=words):
        ops.attention(**arguments)


@pytest.mark.parametrize("backend", ["numba_csr", "torch_csr", "reference"])
def test_a_bucket_beyond_the_table_is_refused_by_all(backend: str) -> None:
    bias = BucketedBias(BUCKET, TABLE[:2])
    with pytest.raises(IndexError, match=r"bias\.bucket: entries 0 to 2, expected 0\.\.1"):
        ops.attention(QUERY, KEY, KEY, NB, bias=bias, backend=backend)


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: ops.edge_dot(KEY, KEY, NB), ValueError, r"query: shape \(3, 4, 5\)"),
    (lambda: ops.edge_dot(QUERY, QUERY, NB), ValueError, r"key: shape \(2, 4, 5\)"),
    (lambda: ops.edge_dot(QUERY, KEY[:, :2], NB), ValueError,
     r"key: shape \(3, 2, 5\), expected \[3, 4, 5\]"),
    (lambda: ops.edge_softmax(torch.zeros(3), NB), ValueError, r"logits: shape \(3,\)"),
    (lambda: ops.edge_softmax(BUCKET[:, None], NB), TypeError, r"logits: dtype torch\.uint8"),
    (lambda: ops.edge_softmax([0.0], NB), TypeError, "logits: got list"),
    (lambda: ops.aggregate(TABLE, QUERY, NB), ValueError, r"value: shape \(2, 4, 5\)"),
    (lambda: ops.aggregate(TABLE[:, :1], KEY, NB), ValueError, r"weights: shape \(3, 1\)"),
    (lambda: ops.aggregate(TABLE.T, KEY, NB), ValueError, r"weights: shape \(4, 3\)"),
])  # fmt: skip
def test_primitives_refuse(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_a_call_knows_whether_a_gradient_may_follow() -> None:
    table = TABLE.clone().requires_grad_()
    call = AttentionCall(QUERY, KEY, KEY, NB, BucketedBias(BUCKET, table), 1.0, 0.0, None)
    assert needs_grad(call.tensors) and call.tensors[-1] is table
    with torch.no_grad():
        assert not needs_grad(call.tensors)
    assert not needs_grad(AttentionCall(QUERY, KEY, KEY, NB, TABLE, 1.0, 0.0, None).tensors)


@pytest.mark.parametrize("backend", ["numba_csr", "torch_csr", "reference"])
@pytest.mark.parametrize("buckets", [1, 256])
def test_the_smallest_and_the_largest_table_are_taken(buckets: int, backend: str) -> None:
    bucket = torch.tensor([0, buckets - 1, buckets // 2], dtype=torch.uint8)
    table = torch.randn(buckets, 4)
    value = torch.randn(3, 4, 5)
    found, wanted = (
        ops.attention(QUERY, KEY, value, NB, bias=bias, backend=backend)
        for bias in (BucketedBias(bucket, table), table[bucket.long()])
    )
    torch.testing.assert_close(found, wanted)


def test_scales_dropouts_and_lengths_at_the_ends_of_their_ranges() -> None:
    query, key = torch.randn(2, 4, 5), torch.randn(3, 4, 5)
    whole = ops.attention(query, key, key, NB, scale=2)
    assert torch.equal(whole, ops.attention(query, key, key, NB, scale=2.0))
    assert not torch.equal(whole, ops.attention(query, key, key, NB, scale=1.0))
    even = ops.attention(query, key, key, NB, scale=0)
    torch.testing.assert_close(even, torch.stack([key[:2].mean(0), key[2]]))
    assert torch.equal(whole, ops.attention(query, key, key, NB, scale=2, dropout=0))
    empty = ops.attention(QUERY[..., :0], KEY[..., :0], KEY[..., :0], NB)
    assert empty.shape == (2, 4, 0)
