"""What attention on blocks does to one row of logits, as functions that compiled loops call.

Four numbers are the facts of a row: the threshold and the last place of `choice`, the
largest logit, and one over the sum of exponentials.
A row fills whole vectors; what lies beyond its n entries is -inf.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.extending import intrinsic

from graphtheory.ops.backends.cpu.attention.rows import kept
from graphtheory.ops.backends.cpu.decorators import MATH, part
from graphtheory.ops.backends.cpu.topk.buckets import scale_and_look_up, tally
from graphtheory.ops.backends.cpu.vector.lanes import multiply_by, slope
from graphtheory.ops.backends.cpu.vector.llvm import FULL, Vectors, fixed
from graphtheory.ops.backends.cpu.vector.products import whole


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
    """Scale rows of n dot products, the first of edge e, and look up their bias.

    `planes` has a row of numbers for each head, in which rows of dot products are `step` apart. The
    last heads may be absent; what lies there is scaled, too, and nobody reads it.
    """
    x, plane = planes.reshape(-1), planes.shape[1]
    for i in range(rows):
        if columns.shape[0] > 0:
            scale_and_look_up(x, i * step, plane, n, scale, bucket, e + i * n, columns)
        else:
            for g in range(planes.shape[0]):
                multiply_by(x, g * plane + i * step, n, scale)


@njit(cache=True)
def tally_rows(sums, planes, step, rows, n, bucket, e):
    """Add rows of n entries, the first of edge e, to the sums of their buckets; see `scale_rows`.

    Those of absent heads are added, too: `settle` leaves them out, and comes before the next heads.
    """
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
def weigh(x, at, n, facts, i, h):
    """Replace chosen logits by their exponentials, and all else by 0.

    Writes the last of the facts, which makes them weights that sum to 1.
    """
    t, last, top = facts[i, h, 0], int(facts[i, h, 1]), facts[i, h, 2]
    bar_late_ties(x, at, n, t, last)
    total = exponentials(x, at, whole(n), t, top)
    facts[i, h, 3] = x.dtype.type(1) / total if total != 0 else total


@njit(forceinline=True, fastmath=MATH)
def weigh_backward(x, g, at, n, facts, i, h):
    """The weights in place of the logits x, and in place of their gradient g that of the logits."""
    t, last, top, share = facts[i, h, 0], int(facts[i, h, 1]), facts[i, h, 2], facts[i, h, 3]
    bar_late_ties(x, at, n, t, last)
    for j in range(n, whole(n)):  # where a row before may have left NaN
        g[at + j] = 0
    mean = weights(x, at, whole(n), t, top, share, g)
    slope(g, at, x, at, mean, whole(n))
