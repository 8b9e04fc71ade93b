"""A bias by buckets on one row of logits, as functions that compiled loops call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from graphtheory.ops.backends._numba_vectors import Vectors, pointer

SUMS = 8  # of a bucket, which entries take in turn


@intrinsic
def scale_and_look_up(_, x, at, n, scale, bucket, e, column):
    """Scale n entries, the first of which is edge e, and add to each the number of its bucket."""

    def code(context, builder, _signature, args):
        v, (row, at, n, scale, buckets, e, numbers) = Vectors(context, builder, x.dtype), args

        def some(place: Any, width: int) -> None:
            of_row, of_edge = builder.add(at, place), builder.add(e, place)
            found = ir.Constant(ir.VectorType(v.number, width), ir.Undefined)
            for lane, where in _places(context, builder, bucket, buckets, of_edge, width):
                number = builder.load(pointer(context, builder, column, numbers, where, v.number))
                found = builder.insert_element(found, number, lane)
            scaled = v.times(v.load(x, row, of_row, width), v.fill(scale, width))
            v.store(v.plus(scaled, found), x, row, of_row)

        v.each(n, some)
        return context.get_dummy_value()

    return types.void(x, at, n, x.dtype, bucket, e, column), code


@intrinsic
def tally(_, sums, x, at, n, bucket, e):
    """Add each of n entries, the first of which is edge e, to one of `SUMS` sums of its bucket.

    They are several, bucket by bucket, lest an entry wait for the one before in the same bucket.
    """

    def code(context, builder, _signature, args):
        v, (of_buckets, row, at, n, buckets, e) = Vectors(context, builder, x.dtype), args

        def some(place: Any, width: int) -> None:
            of_edge = builder.add(e, place)
            for lane, where in _places(context, builder, bucket, buckets, of_edge, width):
                where = builder.mul(where, ir.Constant(where.type, SUMS))
                where = builder.add(where, ir.Constant(where.type, lane.constant % SUMS))
                total = pointer(context, builder, sums, of_buckets, where, v.number)
                entry = builder.add(builder.add(at, place), ir.Constant(at.type, lane.constant))
                entry = pointer(context, builder, x, row, entry, v.number)
                builder.store(builder.fadd(builder.load(total), builder.load(entry)), total)

        v.each(n, some)
        return context.get_dummy_value()

    return types.void(sums, x, at, n, bucket, e), code


def _places(
    context: Any, builder: Any, kind: Any, buckets: Any, first: Any, width: int
) -> Iterator[tuple[Any, Any]]:
    """Number of a lane, and bucket of its edge."""
    for lane in range(width):
        edge = builder.add(first, ir.Constant(first.type, lane))
        bucket = builder.load(pointer(context, builder, kind, buckets, edge, ir.IntType(8)))
        yield ir.Constant(ir.IntType(32), lane), builder.zext(bucket, first.type)


@njit(cache=True)
def settle(sums, column):
    """Add each bucket's sums to its number in the column, and begin them anew."""
    for z in range(column.shape[0]):
        total = column.dtype.type(0)
        for place in range(SUMS):
            total += sums[z * SUMS + place]
            sums[z * SUMS + place] = 0
        column[z] += total
