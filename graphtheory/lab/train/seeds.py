"""Randomness that is a function of a seed and a position, so that nothing needs to be stored."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from graphtheory.patterns.draw import derive as derive


def seed_all(seed: int) -> None:
    """Seed torch (CPU and CUDA), numpy and Python, for layers that draw from global state."""
    torch.default_generator.manual_seed(seed)  # torch.manual_seed costs 1 ms without a GPU
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  what others may draw from
    random.seed(seed)


@contextmanager
def borrowed_randomness() -> Iterator[None]:
    """Global random state may be changed inside; the caller's comes back afterwards."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
