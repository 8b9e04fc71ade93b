"""The type that sums are taken in."""

from __future__ import annotations

import torch
from torch import Tensor


def widened(*tensors: Tensor) -> list[Tensor]:
    """Detached and contiguous, in one type: float32, or float64 where a tensor has it."""
    dtype = torch.float32
    for t in tensors:
        if t.dtype != dtype:
            dtype = torch.promote_types(dtype, t.dtype)
    found = list(tensors)
    for k, t in enumerate(found):
        if t.dtype != dtype or t.requires_grad or not t.is_contiguous():
            found[k] = t.detach().to(dtype).contiguous()
    return found
