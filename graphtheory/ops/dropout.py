"""Dropout by a counter: the same edges drop on every backend and thread count."""

from __future__ import annotations

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


def draw_seed(
    generator: torch.Generator | None, device: torch.device | str | None = None
) -> Tensor:
    """Draw the 31-bit seed of one call, a scalar tensor.

    None takes torch's global generator of `device` and leaves the seed there: nothing waits, and a
    recorded CUDA graph draws again whenever it runs.
    """
    if generator is None:
        return torch.randint(2**31 - 1, (), device=device)
    if not isinstance(generator, torch.Generator):
        kind = type(generator).__name__
        raise TypeError(f"generator: got {kind}, expected a torch.Generator or None")
    return torch.randint(2**31 - 1, (), generator=generator, device=generator.device)


def _mix(x: Tensor) -> Tensor:
    """A 32-bit integer hash (xor-shift and multiply), in int64 arithmetic modulo 2^32."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _MASK
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _MASK
    return x ^ (x >> 16)


def dropout_factor(p: float, seed: Tensor, like: Tensor) -> Tensor:
    """Factor of each weight: 0 with probability p, else 1 / (1 - p).

    Entry (e, h) depends on the counter e * num_heads + h and `seed` alone: it is kept when its
    hash, a number in 0..2^32-1, is at least p * 2^32.

    Args:
        p: Probability in [0, 1).
        seed: 31 bits, a scalar tensor.
        like: The weights [num_edges, num_heads].

    Returns:
        The shape, dtype and device of `like`.
    """
    counter = torch.arange(like.numel(), device=like.device)
    draw = _mix(_mix((counter & _MASK) ^ seed.to(like.device)) ^ (counter >> 32))
    kept = (draw >= int(p * 2**32)).to(like.dtype)
    return (kept / (1 - p)).view(like.shape)
