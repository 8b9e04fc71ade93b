"""What backends with kernels on CSR rows share: the torch ops run them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from importlib import import_module
from types import ModuleType
from typing import Any

from graphtheory.ops import additive, edge, fused, fused_topk, kernels
from graphtheory.ops.backend import Backend
from graphtheory.ops.call import AttentionCall, Call

_RUN: dict[str, Callable[..., Any]] = {
    "edge_dot": kernels.edge_dot,
    "edge_softmax": kernels.edge_softmax,
    "aggregate": kernels.aggregate,
    "relu_sum": edge.run_relu_sum,
    "gated_sum": edge.run_gated_sum,
    "additive_score": additive.run_score,
    "additive_attention": additive.run_attention,
    "attention": fused.attention,
    "topk_attention": fused_topk.on_edges,
}


class CSRBackend(Backend):
    """A backend whose kernels are functions of row pointers, ids of source nodes and tensors."""

    module: str  # with the kernels; imported when one is first needed

    @cached_property
    def kernels(self) -> ModuleType:
        """For each operation a function of its name, and a `..._backward` for its gradients."""
        return import_module(self.module)

    def runner(self, operation: str) -> Callable[[Any], Any]:
        """What `run` does for calls of one operation."""
        return partial(_RUN[operation], backend=self)

    def run(self, call: Call | AttentionCall) -> Any:
        """The result of a call, differentiable."""
        return _RUN[call.operation](call, self)
