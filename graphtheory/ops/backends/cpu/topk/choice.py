"""Which entries of a row are its k largest, as functions that compiled loops call.

Chosen are the entries above a threshold, and those equal to it up to a last place. The threshold
lies below the k-th largest entry wherever the next one leaves room, so that logits computed again
choose the same entries even if they differ by a rounding.
A row fills whole vectors; what lies beyond its n entries is -inf.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from graphtheory.ops.backends.cpu.decorators import MATH, part
from graphtheory.ops.backends.cpu.vector.llvm import FULL, Vectors, fixed
from graphtheory.ops.backends.cpu.vector.products import whole

_INTERPOLATED = 6  # thresholds that are guessed from counts, before the interval is halved


@intrinsic
def extent(_, x, at, n, low, high):
    """Smallest and largest of the entries from low on and below high, and if any is NaN or inf.

    Of no entries the smallest is high, and the largest low.
    """

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
def choose(x, step, rows, n, k, facts, first, h):
    """Write threshold, last place and largest of the n entries of each row, `step` apart in x.

    All rows take a step before any takes the next, since of one row alone a step waits for the
    count of the step before.
    """
    real, lowest, full = x.dtype.type, np.finfo(x.dtype).min, whole(n)
    if k >= n:
        for i in range(rows):
            facts[first + i, h, 0], facts[first + i, h, 1] = lowest, n
            facts[first + i, h, 2] = highest(x, i * step, full)
        return
    bounds, reach = np.empty((rows, 2), x.dtype), np.zeros((rows, 2), np.int64)
    todo, left, steps = np.empty(rows, np.int64), 0, 0
    for i in range(rows):
        low, top, strange = extent(x, i * step, full, lowest, real(np.inf))
        normal = strange == 0
        facts[first + i, h, 0] = lowest if normal else real(np.nan)
        facts[first + i, h, 1] = n
        facts[first + i, h, 2] = top if normal else real(np.nan)
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
                facts[first + i, h, 0], facts[first + i, h, 1] = low, last_equal(x, at, n, k, low)
                continue
            found = at_least(x, at, full, t)
            side = 0 if found >= k else 1
            bounds[i, side], reach[i, side] = t, found
            facts[first + i, h, 0] = bounds[i, 0]
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
