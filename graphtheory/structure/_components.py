"""Strongly and weakly connected components, the strong ones ordered: sources before targets."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def _close(root, count, component, waiting, held):
    """Assign component `count` to all waiting nodes down to `root`; returns how many still wait."""
    while component[root] < 0:
        held -= 1
        component[waiting[held]] = count
    return held


@njit(cache=True, nogil=True)
def strong_components(indptr, indices):
    """Tarjan's algorithm without recursion: component of each node, int64 [N].

    Row v lists the sources of v. A component is closed after all components that lead to it, so
    along every edge component[source] <= component[target], with equality inside a component.
    """
    num_nodes = len(indptr) - 1
    component = np.full(num_nodes, -1, np.int64)
    visit = np.full(num_nodes, -1, np.int64)  # order of first visit
    low = np.empty(num_nodes, np.int64)  # earliest visit reached from the subtree
    cursor = indptr[:-1].copy()  # next edge to follow
    path = np.empty(num_nodes, np.int64)  # from the root of the search to the current node
    waiting = np.empty(num_nodes, np.int64)  # visited, component not closed
    visited, held, closed = 0, 0, 0
    for root in range(num_nodes):
        depth = 0
        if visit[root] < 0:
            path[0], depth = root, 1
        while depth > 0:
            v = path[depth - 1]
            if visit[v] < 0:
                visit[v] = low[v] = visited
                waiting[held] = v
                visited, held = visited + 1, held + 1
            if cursor[v] < indptr[v + 1]:
                source = indices[cursor[v]]
                cursor[v] += 1
                if visit[source] < 0:
                    path[depth] = source
                    depth += 1
                elif component[source] < 0:
                    low[v] = min(low[v], visit[source])
                continue
            depth -= 1
            if depth > 0:
                low[path[depth - 1]] = min(low[path[depth - 1]], low[v])
            if low[v] == visit[v]:
                held = _close(v, closed, component, waiting, held)
                closed += 1
    return component


@njit(cache=True, nogil=True)
def _root(parent, node):
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


@njit(cache=True, nogil=True)
def weak_components(indptr, indices):
    """The smallest node of each node's component when directions are ignored, int64 [N]."""
    parent = np.arange(len(indptr) - 1)
    for v in range(len(parent)):
        for e in range(indptr[v], indptr[v + 1]):
            a, b = _root(parent, v), _root(parent, indices[e])
            parent[max(a, b)] = min(a, b)
    for v in range(len(parent)):
        parent[v] = parent[parent[v]]  # a parent is smaller than its child, so it is final
    return parent
