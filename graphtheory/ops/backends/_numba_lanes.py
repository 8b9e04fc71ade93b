"""Short vectors in registers: what loops over a head's features are made of.

LLVM turns a loop into vector code for 32 numbers at a time and does what remains one by one, which
for heads of 8 or 16 features is everything. These two take 16 and 8 at a time as well.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

MATH = {"reassoc", "contract", "nsz", "arcp"}
"""Sums may be reassociated; NaN and infinity keep their meaning."""


def _pointer(context: Any, builder: Any, kind: Any, array: Any, offset: Any, vector: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), vector.as_pointer())


def _lanes(width: int) -> tuple[Any, Any]:
    """Dot product of `width` numbers of two arrays, from flat positions; their sum onto such."""

    @intrinsic
    def dot(_, x, at_x, y, at_y):
        def code(context, builder, _signature, args):
            number = context.get_value_type(x.dtype)
            vector = ir.VectorType(number, width)
            align = x.dtype.bitwidth // 8
            a, b = (
                builder.load(_pointer(context, builder, kind, array, at, vector), align=align)
                for kind, array, at in ((x, *args[:2]), (y, *args[2:]))
            )
            total = cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(number, [number, vector]),
                f"llvm.vector.reduce.fadd.v{width}f{x.dtype.bitwidth}",
            )
            zero = ir.Constant(number, 0.0)
            return builder.call(total, [zero, builder.fmul(a, b)], fastmath=("reassoc", "nsz"))

        return x.dtype(x, at_x, y, at_y), code

    @intrinsic
    def add(_, out, at_out, weight, x, at_x):
        def code(context, builder, _signature, args):
            vector = ir.VectorType(context.get_value_type(x.dtype), width)
            align = x.dtype.bitwidth // 8
            place = _pointer(context, builder, out, args[0], args[1], vector)
            more = builder.load(
                _pointer(context, builder, x, args[3], args[4], vector), align=align
            )
            none, lane = ir.Constant(vector, ir.Undefined), ir.IntType(32)
            first = builder.insert_element(none, args[2], ir.Constant(lane, 0))
            weights = builder.shuffle_vector(
                first, none, ir.Constant(ir.VectorType(lane, width), [0] * width)
            )
            product = builder.fmul(weights, more, flags=("contract",))
            total = builder.fadd(builder.load(place, align=align), product, flags=("contract",))
            builder.store(total, place, align=align)
            return context.get_dummy_value()

        return types.void(out, at_out, weight, x, at_x), code

    return dot, add


_dot16, _add16 = _lanes(16)
_dot8, _add8 = _lanes(8)

_LINE = 64  # bytes of a cache line


@intrinsic
def _prefetch(_, x, at):
    def code(context, builder, _signature, args):
        place = _pointer(context, builder, x, args[0], args[1], ir.IntType(8))
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(fetch, [place, *(ir.Constant(number, n) for n in (0, 3, 1))])  # read, keep
        return context.get_dummy_value()

    return types.void(x, types.int64), code


@njit(cache=True)
def warm(indices, low, high, x, of_row, first, width):
    """Begin to load the `width` numbers from `first` on of row j of x, of entries low..high-1.

    The processor does not guess which rows come next; asked for ahead of their use they are there.
    Rows have `of_row` numbers; entries beyond the last are left out.
    """
    for t in range(min(low, indices.shape[0]), min(high, indices.shape[0])):
        at = indices[t] * of_row + first
        for place in range(at, at + width, _LINE // x.itemsize):
            _prefetch(x, place)


@njit(inline="always", fastmath=MATH)
def dot(x, i, y, j, h):
    """Dot product of x[i, h] and y[j, h]; arrays [N, H, D], contiguous."""
    heads, dim = x.shape[1], x.shape[2]
    total = x.dtype.type(0)
    if dim == 16:
        total = _dot16(x, (i * heads + h) * 16, y, (j * heads + h) * 16)
    elif dim == 8:
        total = _dot8(x, (i * heads + h) * 8, y, (j * heads + h) * 8)
    else:
        for d in range(dim):
            total += x[i, h, d] * y[j, h, d]
    return total


@njit(inline="always", fastmath=MATH)
def add(out, i, weight, x, j, h):
    """Add weight * x[j, h] to out[i, h]; arrays [N, H, D], contiguous."""
    heads, dim = x.shape[1], x.shape[2]
    if dim == 16:
        _add16(out, (i * heads + h) * 16, weight, x, (j * heads + h) * 16)
    elif dim == 8:
        _add8(out, (i * heads + h) * 8, weight, x, (j * heads + h) * 8)
    else:
        for d in range(dim):
            out[i, h, d] += weight * x[j, h, d]
