"""Aggregation by sum, mean, and by the largest or smallest value of each feature."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphtheory.ops import kernels, reference
from graphtheory.ops.backend import Backend
from graphtheory.ops.call import Call
from graphtheory.ops.fused_op import FusedOp


def _sum_type(*tensors: Tensor) -> torch.dtype:
    dtype = torch.float32
    for t in tensors:
        dtype = torch.promote_types(dtype, t.dtype)
    return dtype


def _definition(a: Any) -> Tensor:
    wide, nb = _sum_type(a.weights, a.value), kernels.neighborhood_of(a.parts, a.value.size(0))
    return reference.aggregate(a.weights.to(wide), a.value.to(wide), nb, "max")


_max = FusedOp(
    "aggregate_max",
    "weights:EH value:MHD parts:parts",
    "NHD",
    run=lambda kernels, a: kernels.aggregate_max(*a.parts[:2], a.weights, a.value),
    gradients=lambda kernels, a, grads, kept, needs: kernels.aggregate_max_backward(
        *a.parts, *grads, *kept, a.weights, a.value, needs[0]
    ),
    definition=_definition,
    kept="NHD",
    keep=lambda a, output: (output,),
    fake=lambda a: a.value.new_empty(
        a.parts[0].size(0) - 1, *a.value.shape[1:], dtype=_sum_type(a.weights, a.value)
    ),
)


def aggregate(call: Call, backend: Backend) -> Tensor:
    """Reduced values [num_dst, H, D]; see `ops.aggregate`."""
    weights, value = call.tensors
    assert weights is not None and value is not None
    if not call.options:
        return kernels.aggregate(call, backend)
    nb = call.neighborhood
    if call.options == ("mean",):
        wide = torch.promote_types(weights.dtype, torch.float32)
        share = 1 / nb.degree().clamp(min=1).to(wide)
        weights = weights * share.index_select(0, nb.targets())[:, None]
        return kernels.aggregate(call._replace(tensors=(weights, value)), backend)
    parts = kernels.structure(call, backend)
    if call.options == ("min",):
        return -_max(-weights, value, parts, backend.name).to(value.dtype)
    return _max(weights, value, parts, backend.name).to(value.dtype)
