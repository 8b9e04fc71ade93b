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
    return [t if _plain(t, dtype) else t.detach().to(dtype).contiguous() for t in tensors]


def _plain(t: Tensor, dtype: torch.dtype) -> bool:
    return t.dtype == dtype and not t.requires_grad and t.is_contiguous()
