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
    "edge_dot": kernels.edge_dot.of_call,
    "edge_softmax": kernels.edge_softmax,
    "aggregate": kernels.aggregate,
    "relu_sum": edge.run_relu_sum,
    "gated_sum": edge.gated.of_call,
    "additive_score": additive.score.of_call,
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
        return partial(_RUN[operation], backend=self)

    def run(self, call: Call | AttentionCall) -> Any:
        return _RUN[call.operation](call, self)
