"""Random subsets of rows, and self-loops, in loops that numba compiles."""

from __future__ import annotations

import numpy as np
from numba import njit

from graphtheory.structure._bfs import _lowest_bit


@njit(cache=True, nogil=True)
def floyd(draws, limit, highest):
    """The subsets [rows, n] of Floyd's algorithm.

    Step k of a row takes draws[k, row], from 0..limit[row]-n+k, or the largest of these if that
    one is already taken. `limit` is at most `highest`.
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


@njit(cache=True, nogil=True)
def _take(shares, column, limit, taken):
    """Set the bits of the subset that `floyd` chooses if it draws these shares of its ranges."""
    n = shares.shape[0]
    for k in range(n):
        top = limit - n + k
        drawn = np.int64(shares[k, column] * (top + 1))
        if (taken[drawn >> 6] >> np.uint64(drawn & 63)) & np.uint64(1):
            drawn = top
        taken[drawn >> 6] |= np.uint64(1) << np.uint64(drawn & 63)


@njit(cache=True, nogil=True)
def sample_rows(start, degree, shares):
    """(indptr [rows + 1], edges): n edges of each row that has more, and all edges of other rows.

    Row i has the edges start[i]..start[i]+degree[i]-1; chosen ones ascend. The rows with more than
    n edges use the columns of `shares` [n, such rows], in [0, 1), one after the other.
    """
    n, rows = shares.shape[0], start.shape[0]
    indptr = np.zeros(rows + 1, np.int64)
    for i in range(rows):
        indptr[i + 1] = indptr[i] + min(degree[i], n)
    places = np.empty(indptr[rows], np.int64)
    taken = np.zeros((degree.max() if rows else 0) // 64 + 1, np.uint64)
    column = 0
    for i in range(rows):
        at = indptr[i]
        if degree[i] <= n:
            for k in range(degree[i]):
                places[at + k] = start[i] + k
            continue
        _take(shares, column, degree[i], taken)
        column += 1
        for w in range(degree[i] // 64 + 1):
            word = taken[w]
            taken[w] = 0
            while word != 0:
                places[at] = start[i] + 64 * w + np.int64(_lowest_bit(word))
                at += 1
                word &= word - np.uint64(1)
    return indptr, places


@njit(cache=True, nogil=True)
def with_loops(indptr, indices, targets):
    """(indptr, edges) of rows with their self-loop appended where it is missing.

    Edge e of the given rows is numbered e, the self-loop of row i num_edges + i.
    """
    rows, num_edges = targets.shape[0], indices.shape[0]
    longer = np.empty(rows + 1, np.int64)
    edges = np.empty(num_edges + rows, np.int64)
    longer[0] = at = 0
    for i in range(rows):
        lacks = True
        for e in range(indptr[i], indptr[i + 1]):
            lacks &= indices[e] != targets[i]
            edges[at] = e
            at += 1
        if lacks:
            edges[at] = num_edges + i
            at += 1
        longer[i + 1] = at
    return longer, edges[:at]
