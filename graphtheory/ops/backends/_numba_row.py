"""What k-nearest attention does to one row of logits, as functions that compiled loops call.

Four numbers are the facts of a row: a threshold, a last place, the largest logit, and one over the
sum of exponentials. Chosen are the entries above the threshold, and those equal to it up to the
last place. The threshold lies below the k-th largest entry wherever the next one leaves room, so
that logits computed anew choose the same entries even if they differ by a rounding.
Loops over a row are as simple as they must be to run in vector registers.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload

from graphtheory.ops.backends._numba_kernels import kept
from graphtheory.ops.backends._numba_lanes import MATH


def exp(x):
    """The exponential; compiled for float32 it is arithmetic that fits a vector register."""
    return math.exp(x)


@njit(cache=True, fastmath={"contract"})
def _exp32(x):
    """2^n times a polynomial in the rest, for x up to 0; below -87 the smallest normal number."""
    real = np.float32
    x = real(-87) if x < real(-87) else x
    n = np.floor(x * real(1.44269504) + real(0.5))
    r = x - n * real(0.693359375) + n * real(2.12194440e-4)
    y = real(1.9875691500e-4)
    y = y * r + real(1.3981999507e-3)
    y = y * r + real(8.3334519073e-3)
    y = y * r + real(4.1665795894e-2)
    y = y * r + real(1.6666665459e-1)
    y = y * r + real(5.0000001201e-1)
    y = y * (r * r) + r + real(1)
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23))
    return y * power.view(real)


@overload(exp)
def _exp(x):
    if x == types.float32:
        return lambda x: _exp32(x)
    return lambda x: math.exp(x)


@njit(cache=True, fastmath=MATH)
def at_least(x, t):
    """How many entries are t or more, in the type of x: float32 is exact up to 2^24 of them."""
    real = x.dtype.type
    total = real(0)
    for j in range(x.shape[0]):
        total += real(1) if x[j] >= t else real(0)
    return total


@intrinsic
def pick(typing, condition, a, b):
    """Of two numbers one, as an instruction instead of a branch."""

    def generate(context, builder, signature, args):
        return builder.select(*args)

    return a(types.boolean, a, a), generate


@intrinsic
def larger(typing, a, b):
    """The larger of two numbers, neither NaN, as an instruction of which a reduction is made."""

    def generate(context, builder, signature, args):
        flags = ("nnan", "nsz")
        above = builder.fcmp_ordered(">", *args, flags=flags)
        return builder.select(above, *args, flags=flags)

    return a(a, a), generate


@njit(cache=True, fastmath=MATH)
def unbounded(x):
    """How many entries are NaN or +inf."""
    real = x.dtype.type
    total = real(0)
    for j in range(x.shape[0]):
        total += real(0) if x[j] < real(np.inf) else real(1)
    return total


@njit(cache=True, fastmath=MATH)
def extent(x, low, high):
    """Smallest and largest of the entries from low on and below high; of none, high and low."""
    least, most = -high, low
    for j in range(x.shape[0]):
        least = larger(pick(x[j] >= low, -x[j], -high), least)
        most = larger(pick(x[j] < high, x[j], low), most)
    return -least, most


@njit(cache=True, fastmath=MATH)
def choose(x, k):
    """Threshold, last place and largest entry of a row, by bisection."""
    real = x.dtype.type
    n = x.shape[0]
    if unbounded(x) > 0:
        return real(np.nan), n, real(np.nan)
    low, high = extent(x, np.finfo(x.dtype).min, real(np.inf))
    top = high
    if k >= n:
        return np.finfo(x.dtype).min, n, top
    if at_least(x, low) <= k:
        return low, n, top
    steps = 0
    while True:  # more than k entries reach low; fewer than k reach high, unless it still is top
        t = real(0.5) * low + real(0.5) * high
        if t <= low or t >= high:
            break
        found = at_least(x, t)
        if found == k:
            return t, n, top
        if found > k:
            low = t
        else:
            high = t
        steps += 1
        if steps % 12 == 0:  # no threshold parts equal entries
            low, most = extent(x, low, high)
            if low >= most:
                break
    if at_least(x, high) >= k:
        low = high
    missing = k
    for j in range(n):
        missing -= x[j] > low
    last = -1
    while missing > 0 and last < n - 1:
        last += 1
        missing -= x[last] == low
    return low, last, top


@njit(cache=True, fastmath=MATH)
def chosen(x, j, t, last):
    """Whether entry j stays; NaN is not below any threshold."""
    return not (x[j] < t or (x[j] == t and j > last))


@njit(cache=True, fastmath=MATH)
def scores(x, scale, bias, bucket, table, e, h):
    """Scale a row of dot products, the first of which is edge e, and add its bias, if any."""
    for j in range(x.shape[0]):
        x[j] *= scale
    if bias.shape[0] > 0:
        for j in range(x.shape[0]):
            x[j] += bias[e + j, h]
    if table.shape[0] > 0:
        for j in range(x.shape[0]):
            x[j] += table[bucket[e + j], h]


@njit(cache=True, fastmath=MATH)
def bar_late_ties(x, t, last):
    """Mask the entries equal to the threshold that come after the last place."""
    for j in range(last + 1, x.shape[0]):
        if x[j] == t:
            x[j] = -np.inf


@njit(cache=True, fastmath=MATH)
def drop(x, counter, heads, p, seed):
    """Dropout in place; entry j has the number counter + j * heads, that of its edge and head."""
    real = x.dtype.type
    for j in range(x.shape[0]):
        x[j] = x[j] / real(1 - p) if kept(counter + j * heads, p, seed) else real(0)


@njit(cache=True, fastmath=MATH)
def weigh(x, k, facts):
    """Softmax of the k largest of a row of logits in place, zeros elsewhere; writes the facts."""
    real = x.dtype.type
    t, last, top = choose(x, k)
    bar_late_ties(x, t, last)
    total = real(0)
    for j in range(x.shape[0]):
        w = exp(x[j] - top)
        w = real(0) if x[j] < t else w
        x[j] = w
        total += w
    share = real(1) / total if total != 0 else real(0)
    for j in range(x.shape[0]):
        x[j] *= share
    facts[0], facts[1], facts[2], facts[3] = t, last, top, share


@njit(cache=True, fastmath=MATH)
def weigh_backward(x, g, facts):
    """The same weights in place of x, and in place of their gradient g that of the logits."""
    real = x.dtype.type
    t, top, share = facts[0], facts[2], facts[3]
    bar_late_ties(x, t, int(facts[1]))
    mean = real(0)
    for j in range(x.shape[0]):
        w = exp(x[j] - top) * share
        w = real(0) if x[j] < t else w
        x[j] = w
        mean += w * g[j]
    for j in range(x.shape[0]):
        g[j] = x[j] * (g[j] - mean)
