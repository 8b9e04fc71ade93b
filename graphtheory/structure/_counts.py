"""Kernels: counts of nodes by distance and class, and hops to the nearest of some nodes."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def count_columns(table, group, count):
    """count[k, table[s, k], group[s]] += 1 for all s, k whose distance is within `count`."""
    num_distances = count.shape[1]
    for s in range(table.shape[0]):
        for k in range(table.shape[1]):
            if table[s, k] < num_distances:
                count[k, table[s, k], group[s]] += 1


@njit(cache=True, nogil=True)
def nearest(indptr, indices, targets, cutoff, out):
    """Set out[v], for every v within `cutoff` hops, to the hops from v to the nearest target."""
    queue = np.empty(len(indptr) - 1, np.int64)
    for i in range(len(targets)):
        queue[i] = targets[i]
        out[targets[i]] = 0
    start, stop = 0, len(targets)
    while start < stop:
        v = queue[start]
        start += 1
        if out[v] + 1 >= cutoff:
            continue
        for e in range(indptr[v], indptr[v + 1]):
            if out[indices[e]] > out[v] + 1:
                out[indices[e]] = out[v] + 1
                queue[stop] = indices[e]
                stop += 1
