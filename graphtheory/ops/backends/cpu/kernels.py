"""All kernels that the backend `numba_csr` offers, under the names that the torch ops call."""

from graphtheory.ops.backends.cpu.attention.calls import attention, attention_backward
from graphtheory.ops.backends.cpu.attention.feature_calls import attention as edge_attention
from graphtheory.ops.backends.cpu.attention.feature_calls import (
    attention_backward as edge_attention_backward,
)
from graphtheory.ops.backends.cpu.attention.projected import attention as projected_attention
from graphtheory.ops.backends.cpu.attention.projected import (
    attention_backward as projected_attention_backward,
)
from graphtheory.ops.backends.cpu.gat.attention import attention as additive_attention
from graphtheory.ops.backends.cpu.gat.attention import (
    attention_backward as additive_attention_backward,
)
from graphtheory.ops.backends.cpu.gat.score import score as additive_score
from graphtheory.ops.backends.cpu.gat.score import score_backward as additive_score_backward
from graphtheory.ops.backends.cpu.mapped_relu_sums import (
    mapped_relu_sum,
    mapped_relu_sum_backward,
)
from graphtheory.ops.backends.cpu.maxima import aggregate_max, aggregate_max_backward
from graphtheory.ops.backends.cpu.primitives import (
    aggregate,
    edge_dot,
    edge_softmax,
    edge_softmax_backward,
)
from graphtheory.ops.backends.cpu.relu_sums import relu_sum, relu_sum_backward
from graphtheory.ops.backends.cpu.topk.blocks import attention as topk_blocks
from graphtheory.ops.backends.cpu.topk.blocks import attention_backward as topk_blocks_backward
from graphtheory.ops.backends.cpu.topk.blocks import top_edges

__all__ = [
    "additive_attention",
    "additive_attention_backward",
    "additive_score",
    "additive_score_backward",
    "aggregate",
    "aggregate_max",
    "aggregate_max_backward",
    "attention",
    "attention_backward",
    "edge_attention",
    "edge_attention_backward",
    "edge_dot",
    "edge_softmax",
    "edge_softmax_backward",
    "mapped_relu_sum",
    "mapped_relu_sum_backward",
    "projected_attention",
    "projected_attention_backward",
    "relu_sum",
    "relu_sum_backward",
    "top_edges",
    "topk_blocks",
    "topk_blocks_backward",
]
