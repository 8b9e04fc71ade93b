"""How the parts of compiled loops are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

MATH = {"reassoc", "contract", "nsz", "arcp"}
"""Sums may be reassociated; NaN and infinity keep their meaning."""


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile what a loop does to a chunk, a row or a tile, without counts of references.

    Counting, each array that is named costs an atomic call, and threads wait for one another. So a
    part cannot allocate, and is given what it works in.
    """
    return njit(cache=True, fastmath=MATH, _nrt=False)(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a part that becomes part of those that call it."""
    return njit(forceinline=True, fastmath=MATH, _nrt=False)(function)
