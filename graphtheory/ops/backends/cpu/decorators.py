"""How the parts of compiled loops are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

MATH = {"reassoc", "contract", "nsz", "arcp"}
"""Sums may be reassociated; NaN and infinity keep their meaning."""


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile what a loop does to a chunk, a row or a tile into each loop that calls it.

    A part that stayed a function of its own would stand in the machine code of every loop that
    calls it, optimized with that loop and so with sums in an order of its own, and the linker would
    take the copy that the process met first: bits would depend on what was compiled or loaded from
    disk before. Arrays are not reference-counted: each that is named would cost an atomic call, and
    threads would wait for one another. So a part cannot allocate, and is given what it works in.
    """
    return njit(forceinline=True, fastmath=MATH, _nrt=False)(function)
