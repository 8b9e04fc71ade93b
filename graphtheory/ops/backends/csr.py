"""What backends with kernels on CSR rows share: the torch ops run them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any

from graphtheory.ops import (
    additive,
    additive_attention,
    fused,
    fused_edges,
    fused_topk,
    kernels,
    reductions,
    relu_sum,
)
from graphtheory.ops.backend import Backend
from graphtheory.ops.call import AttentionCall, Call

_RUN: dict[str, Callable[[Any, Backend], Any]] = {
    "edge_dot": kernels.edge_dot,
    "edge_softmax": kernels.edge_softmax,
    "aggregate": reductions.aggregate,
    "relu_sum": relu_sum.run,
    "additive_score": additive.run,
    "additive_attention": additive_attention.run,
    "attention": fused.attention,
    "topk_attention": fused_topk.on_edges,
}


class CSRBackend(Backend):
    """A backend whose kernels are functions of row pointers, ids of source nodes and tensors."""

    module: str  # with the kernels; imported when one is first needed

    @cached_property
    def kernels(self) -> ModuleType:
        """For each operation a function of its name, and a `..._backward` for its gradients.

        `edge_dot` and `aggregate` are each other's. `torch_csr` has them all, with their arguments,
        but those of `topk_blocks`, `projected_attention` and `mapped_relu_sum`.
        """
        return import_module(self.module)

    def run(self, call: Call | AttentionCall) -> Any:
        """The result of a call, differentiable."""
        if isinstance(call, AttentionCall) and call.edges:
            return fused_edges.attention(call, self)
        return _RUN[call.operation](call, self)
