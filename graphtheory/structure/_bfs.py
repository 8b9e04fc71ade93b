"""Breadth-first search kernels on rows of sources; each processes one chunk, without the GIL."""

from functools import partial
from pathlib import Path

import numpy as np
from numba import types
from numba.cpython.unsafe.numbers import trailing_zeros
from numba.extending import intrinsic

from graphtheory.graph.compiling import kept_on_disk

kept = partial(kept_on_disk, Path(__file__).parent, nogil=True)
WORDS = 8  # words of 64 sources that are searched together: one cache line per node
SOURCES_AT_ONCE = 64 * WORDS
UNREACHABLE = 255
ROWS_AT_ONCE = 64  # of a search: their ends fit the first cache


@intrinsic
def _count_bits(typingctx, word):
    """Number of set bits of a word."""

    def generate(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), generate


@kept
def _record(out, row, words, hops):
    """out[row, i] = hops for every set bit i."""
    for w in range(WORDS):
        word = words[w]
        while word != 0:
            out[row, 64 * w + trailing_zeros(word)] = hops
            word &= word - np.uint64(1)


@kept
def _pull(indptr, indices, v, front, active, seen, new):
    """Collect in `new` the sources that first reach v in this hop; true if there are any."""
    reached = False
    for w in range(WORDS):
        new[w] = 0
    for e in range(indptr[v], indptr[v + 1]):
        neighbor = indices[e]
        if active[neighbor]:
            reached = True
            for w in range(WORDS):
                new[w] |= front[neighbor, w]
    if not reached:
        return False
    found = np.uint64(0)
    for w in range(WORDS):
        new[w] &= ~seen[v, w]
        seen[v, w] |= new[w]
        found |= new[w]
    return found != 0


@kept
def _close(indptr, indices, order, component, seen, out, hops):
    """Set `hops` for all connected pairs not yet seen: one sweep over the components in order."""
    num_nodes = len(order)
    reach, new = np.empty(WORDS, np.uint64), np.empty(WORDS, np.uint64)
    start = 0
    while start < num_nodes:
        stop = start
        reach[:] = 0
        while stop < num_nodes and component[order[stop]] == component[order[start]]:
            v = order[stop]
            for w in range(WORDS):
                reach[w] |= seen[v, w]
            for e in range(indptr[v], indptr[v + 1]):
                for w in range(WORDS):
                    reach[w] |= seen[indices[e], w]
            stop += 1
        for i in range(start, stop):
            v = order[i]
            for w in range(WORDS):
                new[w] = reach[w] & ~seen[v, w]
                seen[v, w] |= new[w]
            _record(out, v, new, hops)
        start = stop


@kept
def from_sources(indptr, indices, order, component, sources, cutoff, out):
    """Fill out [N, S]: hops from up to 512 sources, one bit each, to every node."""
    num_nodes = len(indptr) - 1
    front = np.zeros((num_nodes, WORDS), np.uint64)
    after = np.empty((num_nodes, WORDS), np.uint64)
    active = np.zeros(num_nodes, np.bool_)
    active_after = np.empty(num_nodes, np.bool_)
    new = np.empty(WORDS, np.uint64)
    out[:] = UNREACHABLE
    for i in range(len(sources)):
        front[sources[i], i >> 6] |= np.uint64(1) << np.uint64(i & 63)
        active[sources[i]] = True
        out[sources[i], i] = 0
    seen = front.copy()
    for hops in range(1, cutoff):
        alive = False
        for v in range(num_nodes):
            active_after[v] = _pull(indptr, indices, v, front, active, seen, new)
            if active_after[v]:
                alive = True
                for w in range(WORDS):
                    after[v, w] = new[w]
                _record(out, v, new, hops)
        if not alive:
            return
        front, after = after, front
        active, active_after = active_after, active
    _close(indptr, indices, order, component, seen, out, cutoff)


@kept
def add_farness(indptr, indices, sources, farness):
    """farness[v] += sum of hops from up to 512 sources to v, over those that reach it."""
    num_nodes = len(indptr) - 1
    seen = np.zeros((num_nodes, WORDS), np.uint64)
    active = np.zeros(num_nodes, np.bool_)
    new = np.empty(WORDS, np.uint64)
    for i in range(len(sources)):
        seen[sources[i], i >> 6] |= np.uint64(1) << np.uint64(i & 63)
        active[sources[i]] = True
    front, after, active_after = seen.copy(), np.empty_like(seen), np.empty_like(active)
    hops, alive = 0, True
    while alive:
        hops, alive = hops + 1, False
        for v in range(num_nodes):
            active_after[v] = _pull(indptr, indices, v, front, active, seen, new)
            if active_after[v]:
                alive = True
                for w in range(WORDS):
                    after[v, w] = new[w]
                    farness[v] += hops * np.int64(_count_bits(new[w]))
        front, after = after, front
        active, active_after = active_after, active


@kept
def _expand(indptr, indices, queue, start, stop, mark, own, other):
    """Append the next level to `queue`: (its end, its edges); the end is -1 when the sides meet."""
    end, work = stop, 0
    for i in range(start, stop):
        for e in range(indptr[queue[i]], indptr[queue[i] + 1]):
            node = indices[e]
            if mark[node] == other:
                return -1, 0
            if mark[node] != own:
                mark[node] = own
                queue[end] = node
                end += 1
                work += indptr[node + 1] - indptr[node]
    return end, work


@kept
def _meet(rows, columns, s, t, limit, turn, mark, ahead, behind):
    """Hops from s to t, at most `limit`; -1 when one side is exhausted before they meet."""
    from_s, from_t = np.int32(turn), np.int32(turn + 1)
    indptr, indices = rows
    t_indptr, t_indices = columns
    mark[s], mark[t], ahead[0], behind[0] = from_s, from_t, s, t
    start_a, end_a, work_a = 0, 1, t_indptr[s + 1] - t_indptr[s]
    start_b, end_b, work_b = 0, 1, indptr[t + 1] - indptr[t]
    hops = 1
    while hops < limit:
        if work_a <= work_b:
            stop = end_a
            end_a, work_a = _expand(t_indptr, t_indices, ahead, start_a, stop, mark, from_s, from_t)
            start_a, end = stop, end_a
        else:
            stop = end_b
            end_b, work_b = _expand(indptr, indices, behind, start_b, stop, mark, from_t, from_s)
            start_b, end = stop, end_b
        if end < 0:
            break
        if end == stop:
            return -1
        hops += 1
    return hops


@kept
def between_pairs(rows, columns, strong, weak, pairs, cutoff, out, mark, ahead, behind, turn):
    """out[p] = hops from pairs[0, p] to pairs[1, p]; of two searches the cheaper one advances.

    Across strong components a search goes on beyond `cutoff`, until one side has no new nodes.
    """
    num_nodes = len(rows[0]) - 1
    for p in range(pairs.shape[1]):
        s, t = pairs[0, p], pairs[1, p]
        if s == t:
            out[p] = 0
        elif strong[s] > strong[t] or weak[s] != weak[t]:
            out[p] = UNREACHABLE
        else:
            limit = cutoff if strong[s] == strong[t] else num_nodes
            hops = _meet(rows, columns, s, t, limit, turn + 2 * p, mark, ahead, behind)
            out[p] = UNREACHABLE if hops < 0 else min(hops, cutoff)


@kept
def _levels(indptr, indices, row, radius, most, queue, words, level_end):
    """Search backward from `row`: distance h is in queue[level_end[h] : level_end[h + 1]].

    Nodes other than `row` that have more than `most` edges are found, but not passed through. Each
    source is written, and stays if it is new: there is no branch for the processor to guess. Before
    that the ends of some rows are read, none of which waits for another. The queue has a place more
    than there are nodes. The bitmap `words` is zero before and after.
    """
    queue[0], one, ends = row, np.uint64(1), np.int64(0)
    words[row >> 6] = one << np.uint64(row & 63)
    level_end[0], level_end[1] = 0, 1
    for hops in range(1, radius + 1):
        end = np.uint64(level_end[hops])
        for first in range(level_end[hops - 1], level_end[hops], ROWS_AT_ONCE):
            last = min(first + ROWS_AT_ONCE, level_end[hops])
            for i in range(first, last):
                begin, stop = np.uint64(indptr[queue[i]]), np.uint64(indptr[queue[i] + 1])
                if begin < stop:
                    ends += indices[begin] + indices[stop - one]
            for i in range(first, last):
                begin, stop = np.uint64(indptr[queue[i]]), np.uint64(indptr[queue[i] + 1])
                if np.int64(stop - begin) > most and hops > 1:
                    continue
                for e in range(begin, stop):
                    source = np.uint64(indices[e])
                    at, bit = source >> np.uint64(6), source & np.uint64(63)
                    word = words[at]
                    queue[end] = source
                    end += ~(word >> bit) & one
                    words[at] = word | (one << bit)
        level_end[hops + 1] = end
    for i in range(level_end[radius + 1]):
        words[queue[i] >> 6] = 0
    queue[level_end[radius + 1]] = ends  # so that no compiler leaves these reads out


@kept
def count_ball(indptr, indices, centers, start, stop, inner, radius, most, count, queue, words):
    """count[i] = nodes at inner..radius hops from centers[i], for i in start..stop-1."""
    level_end = np.empty(radius + 2, np.int64)
    for c in range(start, stop):
        _levels(indptr, indices, centers[c], radius, most, queue, words, level_end)
        count[c] = level_end[radius + 1] - level_end[inner]


@kept
def _mark(ids, words, used):
    """Set the bits of these ids in a bitmap, and of its words that are in use in another."""
    for id in ids:
        words[id >> 6] |= np.uint64(1) << np.uint64(id & 63)
        used[id >> 12] |= np.uint64(1) << np.uint64((id >> 6) & 63)


@kept
def _emit(words, used, hops_of, sources, distance, at):
    """Write the nodes of a two-level bitmap in ascending order, with their hops; clear it."""
    for block in range(len(used)):
        while used[block] != 0:
            w = 64 * block + trailing_zeros(used[block])
            used[block] &= used[block] - np.uint64(1)
            while words[w] != 0:
                node = 64 * w + trailing_zeros(words[w])
                words[w] &= words[w] - np.uint64(1)
                sources[at], distance[at] = node, hops_of[node]
                at += 1


@kept
def fill_ball(
    indptr, indices, centers, start, stop, inner, radius, most, ends, sources, distance,
    queue, words, hops_of, used,
):  # fmt: skip
    """Write what `count_ball` counted; the bitmaps `words` and `used` are zero before and after."""
    level_end = np.empty(radius + 2, np.int64)
    for c in range(start, stop):
        _levels(indptr, indices, centers[c], radius, most, queue, words, level_end)
        for hops in range(inner, radius + 1):
            for node in queue[level_end[hops] : level_end[hops + 1]]:
                hops_of[node] = hops
        _mark(queue[level_end[inner] : level_end[radius + 1]], words, used)
        _emit(words, used, hops_of, sources, distance, ends[c])
