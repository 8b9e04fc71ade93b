"""The definition as a backend: plain torch, differentiable any number of times."""

from __future__ import annotations

from typing import Any

from graphtheory.ops import additive, reference
from graphtheory.ops.backend import Backend
from graphtheory.ops.call import AttentionCall, Call


class Reference(Backend):
    """The definitions of `ops.reference`, as a backend."""

    name = "reference"
    reads_ids = False

    def run(self, call: Call | AttentionCall) -> Any:
        if isinstance(call, AttentionCall):
            return reference.attention(call)
        if call.operation == "additive_attention":
            return additive.run_attention(call, self)
        definition = getattr(reference, call.operation)
        if call.operation == "relu_sum":
            *tensors, matrix = call.tensors
            return definition(*tensors, call.neighborhood, *call.options, matrix)
        if call.operation == "aggregate":
            return definition(*call.tensors, call.neighborhood, *call.options)
        return definition(*call.tensors, *call.options, call.neighborhood)
