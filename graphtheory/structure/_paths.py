"""Kernel: the edges along one shortest path of every pair."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def path_edges(indptr, indices, names, start, stop, out):
    """Fill out[i - start, s, :], i in start..stop-1, with edges of a path from s to i, from i on.

    `out` is -1 before. Nodes are visited breadth first, edges in the order of the rows, so that a
    path is that of the node before its source and one edge more.
    """
    num_nodes, steps = out.shape[1], out.shape[2]
    mark = np.full(num_nodes, -1, np.int64)
    hops = np.empty(num_nodes, np.int64)
    queue = np.empty(num_nodes, np.int64)
    for i in range(start, stop):
        paths = out[i - start]
        mark[i], hops[i], queue[0] = i, 0, i
        first, last = 0, 1
        while first < last:
            v = queue[first]
            first += 1
            for e in range(indptr[v], indptr[v + 1]):
                s = indices[e]
                if mark[s] == i:
                    continue
                mark[s], hops[s], queue[last] = i, hops[v] + 1, s
                last += 1
                known = min(hops[v], steps)
                for step in range(known):
                    paths[s, step] = paths[v, step]
                if known < steps:
                    paths[s, known] = names[e]
