"""All kernels that the backend `numba_csr` offers, under the names that the torch ops call."""
# ruff: noqa: F401

from graphtheory.ops.backends.cpu.attention.calls import (
    attention,
    attention_backward,
    edge_attention,
    edge_attention_backward,
)
from graphtheory.ops.backends.cpu.attention.projected import (
    projected_attention,
    projected_attention_backward,
)
from graphtheory.ops.backends.cpu.gat.attention import (
    additive_attention,
    additive_attention_backward,
)
from graphtheory.ops.backends.cpu.gat.score import additive_score, additive_score_backward
from graphtheory.ops.backends.cpu.gated_sums import gated_sum
from graphtheory.ops.backends.cpu.primitives import (
    aggregate,
    aggregate_max,
    aggregate_max_backward,
    edge_dot,
    edge_softmax,
    edge_softmax_backward,
)
from graphtheory.ops.backends.cpu.relu_sums import (
    mapped_relu_sum,
    mapped_relu_sum_backward,
    relu_sum,
    relu_sum_backward,
)
from graphtheory.ops.backends.cpu.topk.blocks import top_edges, topk_blocks, topk_blocks_backward
