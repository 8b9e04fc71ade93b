"""Orthonormal patterns."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def orthonormal(count: int, dim: int, generator: Generator) -> Tensor:
    """Random orthonormal rows [count, dim].

    Raises:
        ValueError: If there are more rows than dimensions, or none.

    Example:
        >>> rows = orthonormal(2, 3, Generator().manual_seed(0))
        >>> torch.allclose(rows @ rows.t(), torch.eye(2), atol=1e-6)
        True
    """
    if not 0 < count <= dim:
        raise ValueError(f"count: got {count}, expected 1 to dim={dim}")
    return torch.linalg.qr(torch.randn(dim, count, generator=generator))[0].t().contiguous()
