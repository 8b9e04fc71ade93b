"""One row of k-nearest attention on blocks: the choice of the largest logits, and its sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from graphtheory.ops.backends.cpu.attention.rows import kept
from graphtheory.ops.backends.cpu.compiling import MATH, kept_on_disk, part
from graphtheory.ops.backends.cpu.topk.buckets import scale_and_look_up, tally
from graphtheory.ops.backends.cpu.vector.lanes import multiply, softmax_grad
from graphtheory.ops.backends.cpu.vector.llvm import FULL, Vectors, fixed
from graphtheory.ops.backends.cpu.vector.products import whole

_INTERPOLATED = 6  # thresholds that are guessed from counts, before the interval is halved


@intrinsic
def extent(_, x, at, n, low, high):
    """Smallest and largest of entries in low..high, of none high and low; if any is NaN or inf."""

    def code(context, builder, signature, args):
        v, (row, at, n, low, high) = Vectors(context, builder, x.dtype), args
        low, high = v.fill(low, FULL), v.fill(high, FULL)

        def more(place: Any, so_far: Any) -> Any:
            least, most, strange = so_far
            entries = v.load(x, row, builder.add(at, place), FULL)
            least = v.smaller(v.where(">=", entries, low, entries, high), least)
            most = v.larger(v.where("<", entries, high, entries, low), most)
            return least, most, v.where("<", entries, float("inf"), strange, 1.0)

        least, most, strange = v.sweep(n, (high, low, fixed(v.full, 0.0)), more)
        found = v.smallest(least), v.largest(most), v.largest(strange)
        return context.make_tuple(builder, signature.return_type, found)

    return types.UniTuple(x.dtype, 3)(x, at, n, x.dtype, x.dtype), code


@intrinsic
def highest(_, x, at, n):
    """The largest entry, NaN passed over."""

    def code(context, builder, _signature, args):
        v, (row, at, n) = Vectors(context, builder, x.dtype), args

        def more(place: Any, so_far: Any) -> Any:
            return (v.larger(v.load(x, row, builder.add(at, place), FULL), so_far[0]),)

        return v.largest(*v.sweep(n, (fixed(v.full, float("-inf")),), more))

    return x.dtype(x, at, n), code


@intrinsic
def at_least(_, x, at, n, t):
    """How many entries are t or more."""

    def code(context, builder, _signature, args):
        v, (row, at, n, t) = Vectors(context, builder, x.dtype), args
        t = v.fill(t, FULL)

        def more(place: Any, so_far: Any) -> Any:
            found = builder.fcmp_ordered(">=", v.load(x, row, builder.add(at, place), FULL), t)
            found = builder.ctpop(builder.bitcast(found, ir.IntType(FULL)))
            return (builder.add(so_far[0], builder.zext(found, n.type)),)

        return v.sweep(n, (ir.Constant(n.type, 0),), more)[0]

    return types.int64(x, at, n, x.dtype), code


@njit(forceinline=True, fastmath=MATH)
def choose(x, step, rows, n, k, stats, first, h):
    """Write threshold, last place and largest of the n entries of each row, `step` apart in x.

    All rows take a step before any takes the next, since of one row alone a step waits for the
    count of the step before.
    """
    real, lowest, full = x.dtype.type, np.finfo(x.dtype).min, whole(n)
    if k >= n:
        for i in range(rows):
            stats[first + i, h, 0], stats[first + i, h, 1] = lowest, n
            stats[first + i, h, 2] = highest(x, i * step, full)
        return
    bounds, reach = np.empty((rows, 2), x.dtype), np.zeros((rows, 2), np.int64)
    todo, left, steps = np.empty(rows, np.int64), 0, 0
    for i in range(rows):
        low, top, strange = extent(x, i * step, full, lowest, real(np.inf))
        normal = strange == 0
        stats[first + i, h, 0] = lowest if normal else real(np.nan)
        stats[first + i, h, 1] = n
        stats[first + i, h, 2] = top if normal else real(np.nan)
        if normal:
            bounds[i, 0], bounds[i, 1], reach[i, 0] = low, top, at_least(x, i * step, full, low)
            todo[left] = i
            left += reach[i, 0] > k
    while left > 0:  # k or more entries reach a lower bound, fewer an upper one that is no entry
        rest = 0
        for place in range(left):
            i = todo[place]
            at, low, high, share = i * step, bounds[i, 0], bounds[i, 1], real(0.5)
            if steps % 12 == 11:  # no threshold parts equal entries
                if at_least(x, at, full, high) >= k:
                    low = high
                else:
                    low, high, _ = extent(x, at, full, low, high)
            if steps < _INTERPOLATED:
                share = real(reach[i, 0] - k) / real(reach[i, 0] - reach[i, 1])
            t = (real(1) - share) * low + share * high
            if t <= low or t >= high:
                t = real(0.5) * low + real(0.5) * high
            if t <= low or t >= high:
                low = high if at_least(x, at, full, high) >= k else low  # high may be the largest
                stats[first + i, h, 0], stats[first + i, h, 1] = low, last_equal(x, at, n, k, low)
                continue
            found = at_least(x, at, full, t)
            side = 0 if found >= k else 1
            bounds[i, side], reach[i, side] = t, found
            stats[first + i, h, 0] = bounds[i, 0]
            todo[rest] = i
            rest += found != k
        left, steps = rest, steps + 1


@part
def last_equal(x, at, n, k, t):
    """Place of the last entry equal to t that is among the k largest."""
    missing, last = k, -1
    for j in range(n):
        missing -= x[at + j] > t
    while missing > 0 and last < n - 1:
        last += 1
        missing -= x[at + last] == t
    return last


@njit(forceinline=True, fastmath=MATH)
def chosen(x, j, t, last):
    """Whether entry j stays; NaN is not below any threshold."""
    return not (x[j] < t or (x[j] == t and j > last))


@intrinsic
def exponentials(_, x, at, n, t, top):
    """Replace entries by exp(x - top), and those below t by 0; returns their sum."""

    def code(context, builder, _signature, args):
        v, (row, at, n, t, top) = Vectors(context, builder, x.dtype), args
        t, top = v.fill(t, FULL), v.fill(top, FULL)

        def more(place: Any, so_far: Any) -> Any:
            place = builder.add(at, place)
            entries = v.load(x, row, place, FULL)
            weight = v.where("<", entries, t, 0.0, v.exp(v.minus(entries, top)))
            v.store(weight, x, row, place)
            return (v.plus(so_far[0], weight),)

        return v.sum(*v.sweep(n, (fixed(v.full, 0.0),), more))

    return x.dtype(x, at, n, x.dtype, x.dtype), code


@intrinsic
def weights(_, x, at, n, t, top, share, g):
    """Replace entries by exp(x - top) * share, those below t by 0; returns their sum times g."""

    def code(context, builder, _signature, args):
        v, (row, at, n, t, top, share, of_row) = Vectors(context, builder, x.dtype), args
        t, top, share = (v.fill(number, FULL) for number in (t, top, share))

        def more(place: Any, so_far: Any) -> Any:
            place = builder.add(at, place)
            entries = v.load(x, row, place, FULL)
            weight = v.times(v.exp(v.minus(entries, top)), share)
            weight = v.where("<", entries, t, 0.0, weight)
            v.store(weight, x, row, place)
            return (v.plus(so_far[0], v.times(weight, v.load(g, of_row, place, FULL))),)

        return v.sum(*v.sweep(n, (fixed(v.full, 0.0),), more))

    return x.dtype(x, at, n, x.dtype, x.dtype, x.dtype, g), code


@njit(forceinline=True, fastmath=MATH)
def scale_rows(planes, step, rows, n, scale, bucket, e, columns):
    """Scale rows of n dot products by head, `step` apart, from edge e on, and add their bias."""
    x, plane = planes.reshape(-1), planes.shape[1]
    for i in range(rows):
        if columns.shape[0] > 0:
            scale_and_look_up(x, i * step, plane, n, scale, bucket, e + i * n, columns)
        else:
            for g in range(planes.shape[0]):
                multiply(x, g * plane + i * step, scale, n)


@kept_on_disk
def tally_rows(sums, planes, step, rows, n, bucket, e):
    """Add rows of n entries from edge e on to sums by bucket, also of heads that are absent."""
    x, plane = planes.reshape(-1), planes.shape[1]
    for i in range(rows):
        tally(sums, x, i * step, plane, n, bucket, e + i * n)


@njit(forceinline=True, fastmath=MATH)
def finish(x, at, n, bias, e, h):
    """Add a bias by edge, if any, to n logits, the first of which is edge e."""
    if bias.shape[0] > 0:
        for j in range(n):
            x[at + j] += bias[e + j, h]
    for j in range(n, whole(n)):
        x[at + j] = -np.inf


@part
def bar_late_ties(x, at, n, t, last):
    """Mask the entries equal to the threshold that come after the last place."""
    for j in range(last + 1, n):
        if x[at + j] == t:
            x[at + j] = -np.inf


@njit(forceinline=True, fastmath=MATH)
def drop(x, at, n, counter, heads, p, seed):
    """Dropout in place; entry j has the number counter + j * heads, that of its edge and head."""
    real = x.dtype.type
    for j in range(n):
        stays = kept(counter + j * heads, p, seed)
        x[at + j] = x[at + j] / real(1 - p) if stays else real(0)


@njit(forceinline=True, fastmath=MATH)
def weigh(x, at, n, stats, i, h):
    """Replace chosen logits by exponentials, all else by 0, and write what makes them sum to 1."""
    t, last, top = stats[i, h, 0], int(stats[i, h, 1]), stats[i, h, 2]
    bar_late_ties(x, at, n, t, last)
    total = exponentials(x, at, whole(n), t, top)
    stats[i, h, 3] = x.dtype.type(1) / total if total != 0 else total


@njit(forceinline=True, fastmath=MATH)
def weigh_backward(x, g, at, n, stats, i, h):
    """The weights in place of the logits x, and in place of their gradient g that of the logits."""
    t, last, top, share = stats[i, h, 0], int(stats[i, h, 1]), stats[i, h, 2], stats[i, h, 3]
    bar_late_ties(x, at, n, t, last)
    for j in range(n, whole(n)):  # where a row before may have left NaN
        g[at + j] = 0
    mean = weights(x, at, whole(n), t, top, share, g)
    softmax_grad(g, at, x, at, mean, whole(n))
