"""Loops that numba compiles: counts by distance, paths, random subsets, self-loops, parts."""

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from graphtheory.structure._bfs import _count_bits, _levels, _mark, kept


@kept
def count_columns(table, group, count):
    """count[k, table[s, k], group[s]] += 1 for all s, k whose distance is within `count`."""
    num_distances = count.shape[1]
    for s in range(table.shape[0]):
        for k in range(table.shape[1]):
            if table[s, k] < num_distances:
                count[k, table[s, k], group[s]] += 1


@kept
def path_edges(indptr, indices, names, start, stop, out):
    """Fill out[i - start, s, :], -1 before, with the edges of a path from s to i, from i on."""
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


@kept
def floyd(draws, limit, highest):
    """Floyd's subsets [rows, n]: draw k, in 0..limit[row]-n+k, or that range's end if taken."""
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


@kept
def _take(shares, column, limit, taken):
    """Set the bits of the subset that `floyd` chooses if it draws these shares of its ranges."""
    n = shares.shape[0]
    for k in range(n):
        top = limit - n + k
        drawn = np.int64(shares[k, column] * (top + 1))
        if (taken[drawn >> 6] >> np.uint64(drawn & 63)) & np.uint64(1):
            drawn = top
        taken[drawn >> 6] |= np.uint64(1) << np.uint64(drawn & 63)


@kept
def sample_rows(start, degree, shares):
    """(indptr [rows + 1], edges): n of longer rows, by columns of `shares`; all of others."""
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
                places[at] = start[i] + 64 * w + np.int64(trailing_zeros(word))
                at += 1
                word &= word - np.uint64(1)
    return indptr, places


@kept
def _sort(keys, copy):
    """Put different keys into ascending order; few of them by how many are smaller, no branch."""
    number = len(keys)
    if number > 64:
        keys.sort()
        return
    copy[:number] = keys
    for i in range(number):
        smaller = 0
        for k in range(number):
            smaller += copy[k] < copy[i]
        keys[smaller] = copy[i]


@kept
def draw_ball(
    indptr, indices, centers, start, stop, inner, radius, most, shares, count, keys,
    queue, taken,
):  # fmt: skip
    """Fill keys [balls, n] with source << 8 | hops, ascending, of what is drawn from each ball.

    At most n are drawn, by columns of `shares`; `count` says how many. The bitmap `taken` is zero
    before and after.
    """
    level_end, n = np.empty(radius + 2, np.int64), shares.shape[0]
    for c in range(start, stop):
        _levels(indptr, indices, centers[c], radius, most, queue, taken, level_end)
        first, hops, at = level_end[inner], inner, 0
        size = level_end[radius + 1] - first
        if size > n:
            _take(shares, c, size, taken)
        else:
            for k in range(size):
                taken[k >> 6] |= np.uint64(1) << np.uint64(k & 63)
        for w in range((size + 63) >> 6):
            word = taken[w]
            taken[w] = 0
            while word != 0:
                place = first + 64 * w + np.int64(trailing_zeros(word))
                word &= word - np.uint64(1)
                while place >= level_end[hops + 1]:
                    hops += 1
                keys[c, at] = queue[place] << 8 | hops
                at += 1
        count[c] = at
        _sort(keys[c, :at], queue)


@kept
def _rank(words, before, id):
    """How many ids of a bitmap are smaller than this one, where `before` counts up to each word."""
    lower = (np.uint64(1) << np.uint64(id & 63)) - np.uint64(1)
    return before[id >> 6] + np.int64(_count_bits(words[id >> 6] & lower))


@kept
def renumber(first, ids, limit):
    """(nodes, place of each id in them): `first`, then the others of the ids, ascending.

    Without sorting, by a bitmap of two levels, of which what is not met is not touched.
    """
    words = np.zeros((limit + 63) // 64, np.uint64)
    used = np.zeros((len(words) + 63) // 64, np.uint64)
    before = np.empty(len(words), np.int64)
    _mark(first, words, used)
    _mark(ids, words, used)
    count = 0
    for block in range(len(used)):
        left = used[block]
        while left != 0:
            w = 64 * block + np.int64(trailing_zeros(left))
            left &= left - np.uint64(1)
            before[w] = count
            count += np.int64(_count_bits(words[w]))
    nodes, place = np.empty(len(first) + count, np.int64), np.full(count, -1, np.int64)
    local = np.empty(len(ids), np.int64)
    for i in range(len(first)):
        nodes[i], place[_rank(words, before, first[i])] = first[i], i
    rank, end = 0, len(first)
    for block in range(len(used)):
        while used[block] != 0:
            w = 64 * block + np.int64(trailing_zeros(used[block]))
            used[block] &= used[block] - np.uint64(1)
            left = words[w]
            while left != 0:
                if place[rank] < 0:
                    nodes[end], place[rank] = 64 * w + np.int64(trailing_zeros(left)), end
                    end += 1
                left &= left - np.uint64(1)
                rank += 1
    for e in range(len(ids)):
        local[e] = place[_rank(words, before, ids[e])]
    return nodes[:end], local


@kept
def with_loops(indptr, indices, targets):
    """(indptr, edges) with the loops that rows lack; that of row i is num_edges + i."""
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


@kept
def stream_parts(indptr, indices, num_parts, penalty, most):
    """The part of each node, taken in order: most neighbors, less a penalty of its size."""
    num_nodes = len(indptr) - 1
    part = np.full(num_nodes, -1, np.int64)
    size, near = np.zeros(num_parts, np.int64), np.zeros(num_parts, np.int64)
    for v in range(num_nodes):
        for e in range(indptr[v], indptr[v + 1]):
            if part[indices[e]] >= 0:
                near[part[indices[e]]] += 1
        best, highest = -1, 0.0
        for k in range(num_parts):
            score = near[k] - penalty * np.sqrt(size[k])
            if size[k] < most and (best < 0 or score > highest):
                best, highest = k, score
            near[k] = 0
        part[v] = best
        size[best] += 1
    return part
