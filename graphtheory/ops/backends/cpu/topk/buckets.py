"""A bias by buckets on rows of logits, as functions that compiled loops call.

A row is that of one head, or those of `TOGETHER` heads, `plane` numbers apart. Of several heads a
bucket is read once for all, and what they have at it lies side by side, in one vector: the numbers
of some edges are turned, so that a vector is either one head of several edges or the reverse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from graphtheory.ops.backends.cpu.compiling import kept_on_disk
from graphtheory.ops.backends.cpu.vector.llvm import Vectors, pointer

TOGETHER = 4  # heads
SUMS = 8  # of a bucket and head, which edges take in turn


def _look_up(heads: int) -> Any:
    @intrinsic
    def scale_and_look_up(_, x, at, plane, n, scale, bucket, e, columns):
        def code(context, builder, _signature, args):
            v = Vectors(context, builder, x.dtype)
            row, at, plane, n, scale, buckets, e, numbers = args

            def some(place: Any, width: int) -> None:
                found = []
                for z in _places(context, builder, bucket, buckets, builder.add(e, place), width):
                    first = builder.mul(z, ir.Constant(z.type, heads))
                    found.append(v.load(columns, numbers, first, heads))
                for head, bias in enumerate(_turned(v, found)):
                    here = builder.add(builder.add(at, place), _times(builder, plane, head))
                    scaled = v.times(v.load(x, row, here, width), v.fill(scale, width))
                    v.store(v.plus(scaled, bias), x, row, here)

            v.each(n, some)
            return context.get_dummy_value()

        return types.void(x, at, plane, n, x.dtype, bucket, e, columns), code

    return scale_and_look_up


def _tally(heads: int) -> Any:
    @intrinsic
    def tally(_, sums, x, at, plane, n, bucket, e):
        def code(context, builder, _signature, args):
            v = Vectors(context, builder, x.dtype)
            of_buckets, row, at, plane, n, buckets, e = args

            def some(place: Any, width: int) -> None:
                here = builder.add(at, place)
                if heads == 1:  # lanes are not taken from vectors that can be read from memory
                    spots = [builder.add(here, ir.Constant(here.type, i)) for i in range(width)]
                    entries = [v.load(x, row, spot, 1) for spot in spots]
                else:
                    spots = [builder.add(here, _times(builder, plane, h)) for h in range(heads)]
                    entries = _turned(v, [v.load(x, row, spot, width) for spot in spots])
                places = _places(context, builder, bucket, buckets, builder.add(e, place), width)
                for lane, (z, entry) in enumerate(zip(places, entries, strict=True)):
                    first = builder.mul(z, ir.Constant(z.type, SUMS * heads))
                    first = builder.add(first, ir.Constant(z.type, lane % SUMS * heads))
                    total = v.load(sums, of_buckets, first, heads)
                    v.store(v.plus(total, entry), sums, of_buckets, first)

            v.each(n, some)
            return context.get_dummy_value()

        return types.void(sums, x, at, plane, n, bucket, e), code

    return tally


def _places(
    context: Any, builder: Any, kind: Any, buckets: Any, first: Any, width: int
) -> Iterator[Any]:
    """The bucket of each of some edges."""
    for lane in range(width):
        edge = builder.add(first, ir.Constant(first.type, lane))
        bucket = builder.load(pointer(context, builder, kind, buckets, edge, ir.IntType(8)))
        yield builder.zext(bucket, first.type)


def _times(builder: Any, plane: Any, head: int) -> Any:
    return builder.mul(plane, ir.Constant(plane.type, head))


def _turned(v: Vectors, vectors: Sequence[Any]) -> list[Any]:
    """Lane i of vector j as lane j of vector i; where there are four of either, by fours."""
    n, width = len(vectors), vectors[0].type.count
    if min(n, width) < 4:
        return [_gathered(v, vectors, lane) for lane in range(width)]
    if n > 8:
        halves = _turned(v, vectors[: n // 2]), _turned(v, vectors[n // 2 :])
        return [v.picked(x, y, range(n)) for x, y in zip(*halves, strict=True)]
    if width > 4:
        parts = range(width // 2), range(width // 2, width)
        return [x for part in parts for x in _turned(v, [v.picked(y, y, part) for y in vectors])]
    if n == 8:
        vectors = [v.picked(vectors[i], vectors[i + 4], range(8)) for i in range(4)]
    return _turned_by_fours(v, *vectors)


def _turned_by_fours(v: Vectors, a: Any, b: Any, c: Any, d: Any) -> list[Any]:
    """Of each four lanes, lane i of vector j as lane j of vector i."""

    def from_both(x: Any, y: Any, *of_four: int) -> Any:
        """Lanes 0 to 3 of each four are those of x, 4 to 7 those of y."""
        width = x.type.count
        lanes = [i % 4 + width * (i // 4) for i in of_four]
        return v.picked(x, y, [start + i for start in range(0, width, 4) for i in lanes])

    rows = [
        (from_both(a, b, *lanes), from_both(c, d, *lanes)) for lanes in ((0, 4, 1, 5), (2, 6, 3, 7))
    ]
    return [from_both(*pair, *lanes) for pair in rows for lanes in ((0, 1, 4, 5), (2, 3, 6, 7))]


def _gathered(v: Vectors, vectors: Sequence[Any], lane: int) -> Any:
    """Gather one lane of each vector."""
    found = ir.Constant(ir.VectorType(v.number, len(vectors)), ir.Undefined)
    for i, vector in enumerate(vectors):
        number = v.builder.extract_element(vector, ir.Constant(ir.IntType(32), lane))
        found = v.builder.insert_element(found, number, ir.Constant(ir.IntType(32), i))
    return found


_look_up_one, _look_up_some = _look_up(1), _look_up(TOGETHER)
_tally_one, _tally_some = _tally(1), _tally(TOGETHER)


@kept_on_disk
def scale_and_look_up(x, at, plane, n, scale, bucket, e, columns):
    """Scale n entries of each head from edge e on, and add `columns` [Z, heads] by bucket."""
    if columns.shape[1] == 1:
        _look_up_one(x, at, plane, n, scale, bucket, e, columns)
    else:
        _look_up_some(x, at, plane, n, scale, bucket, e, columns)


@kept_on_disk
def tally(sums, x, at, plane, n, bucket, e):
    """Add n entries of each head from edge e on to sums [Z, SUMS, heads] by bucket, by turns."""
    if sums.shape[2] == 1:
        _tally_one(sums, x, at, plane, n, bucket, e)
    else:
        _tally_some(sums, x, at, plane, n, bucket, e)


@kept_on_disk
def settle(sums, heads, table, first):
    """Add each bucket's sums to the table from column `first` on, and set them to zero."""
    for z in range(sums.shape[0]):
        for h in range(heads):
            total = table.dtype.type(0)
            for place in range(SUMS):
                total += sums[z, place, h]
            table[z, first + h] += total
    sums[:] = 0
