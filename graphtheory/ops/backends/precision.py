"""The type that sums are taken in: float32, or float64 where a tensor has it."""

from __future__ import annotations

from torch import Tensor

from graphtheory.ops.kernels import sum_type


def widened(*tensors: Tensor) -> list[Tensor]:
    """Detached and contiguous, in the type of their sums."""
    dtype, found = sum_type(*tensors), list(tensors)
    for k, t in enumerate(found):
        if t.dtype != dtype or t.requires_grad or not t.is_contiguous():
            found[k] = t.detach().to(dtype).contiguous()
    return found
