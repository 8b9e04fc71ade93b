"""Random subsets, in loops that numba compiles."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def floyd(draws, limit, highest):
    """The subsets [rows, n] of Floyd's algorithm.

    Step k of a row takes draws[k, row], from 0..limit[row]-n+k, or the highest of these if that one
    is taken already. `limit` is at most `highest`.
    """
    n, rows = draws.shape
    chosen = np.empty((rows, n), np.int64)
    taken = np.zeros(highest, np.bool_)
    for row in range(rows):
        top = limit[row] - n
        for k in range(n):
            drawn = draws[k, row]
            if taken[drawn]:
                drawn = top + k
            taken[drawn] = True
            chosen[row, k] = drawn
        for k in range(n):
            taken[chosen[row, k]] = False
    return chosen
