"""Strongly connected components in an order that answers reachability: senders before receivers."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def strong_components(indptr, indices):
    """Tarjan's algorithm without recursion: component of each node, int64 [N].

    Row v lists the senders of v. A component is closed only after all components it hears from, so along every
    edge component[sender] <= component[receiver], with equality inside a component.
    """
    num_nodes = len(indptr) - 1
    component = np.full(num_nodes, -1, np.int64)
    visit = np.full(num_nodes, -1, np.int64)  # order of first visit
    low = np.empty(num_nodes, np.int64)  # earliest visit that the subtree still hears from
    cursor = indptr[:-1].copy()  # next edge to follow
    path = np.empty(num_nodes, np.int64)  # from the root of the search to the current node
    waiting = np.empty(num_nodes, np.int64)  # visited, component not closed
    visited, held, closed = 0, 0, 0
    for root in range(num_nodes):
        if visit[root] >= 0:
            continue
        path[0], depth = root, 1
        while depth > 0:
            v = path[depth - 1]
            if visit[v] < 0:
                visit[v] = low[v] = visited
                visited += 1
                waiting[held] = v
                held += 1
            if cursor[v] < indptr[v + 1]:
                sender = indices[cursor[v]]
                cursor[v] += 1
                if visit[sender] < 0:
                    path[depth] = sender
                    depth += 1
                elif component[sender] < 0:
                    low[v] = min(low[v], visit[sender])
                continue
            depth -= 1
            if depth > 0:
                low[path[depth - 1]] = min(low[path[depth - 1]], low[v])
            if low[v] == visit[v]:
                while component[v] < 0:
                    held -= 1
                    component[waiting[held]] = closed
                closed += 1
    return component


@njit(cache=True, nogil=True)
def weak_components(indptr, indices):
    """Union by smallest member: a label of each node's component when directions are ignored, int64 [N]."""
    num_nodes = len(indptr) - 1
    parent = np.arange(num_nodes)
    for v in range(num_nodes):
        for e in range(indptr[v], indptr[v + 1]):
            a, b = v, indices[e]
            while parent[a] != a:
                parent[a] = parent[parent[a]]
                a = parent[a]
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = parent[b]
            parent[max(a, b)] = min(a, b)
    for v in range(num_nodes):  # a parent is never larger than its child
        parent[v] = parent[parent[v]]
    return parent
