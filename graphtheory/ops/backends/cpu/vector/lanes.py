"""Short vectors in registers: what loops over heads and over a head's features are made of.

LLVM turns a loop into vector code for 32 numbers at a time and does what remains one by one, which
for the features of small heads and the heads of an edge is everything. These functions do 16
numbers at a time, and what remains by vectors of 8, 4, 2 and 1. Arrays are contiguous and entered
at flat positions, since a view of a row is made again, and may count references; `n` is how
many numbers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from graphtheory.ops.backends.cpu.decorators import part
from graphtheory.ops.backends.cpu.vector.llvm import (
    Vectors,
    call_llvm,
    dot_product,
    fixed,
    lane_by_lane,
    largest_size,
    pointer,
)

_LINE = 64  # bytes of a cache line


def _sum(v, x, y, z):
    return v.plus(v.plus(x, y), z)


def _leaky(v, x, slope):
    low = v.where(">", x, float("-inf"), v.times(x, slope), x)
    return v.where(">", x, 0.0, x, low)


def _relu(v, x):
    return v.where("<=", x, 0.0, 0.0, x)


def _or_nan(v, x, y):
    return v.where("!=", y, y, y, v.where(">", y, x, y, x))


_clear = lane_by_lane(lambda v, old: fixed(old, 0.0))
_fill = lane_by_lane(lambda v, old, w: w)
_put = lane_by_lane(lambda v, old, w, x: v.times(w, x))
_add = lane_by_lane(lambda v, old, w, x: v.plus(old, v.times(w, x)))
_multiply = lane_by_lane(lambda v, old, x: v.times(old, x))
_raise_to = lane_by_lane(lambda v, old, x: v.larger(x, old))
_subtract = lane_by_lane(lambda v, old, x: v.minus(old, x))
_exp = lane_by_lane(lambda v, old: v.exp(old))
_add_product = lane_by_lane(lambda v, old, x, y: v.plus(old, v.times(x, y)))
_slope = lane_by_lane(lambda v, old, w, mean: v.times(w, v.minus(old, mean)))
_no_infinity = lane_by_lane(lambda v, old: v.where("==", old, float("-inf"), 0.0, old))
_leaky_sum = lane_by_lane(
    lambda v, old, slope, x, y, z: v.where(
        "==", z, float("-inf"), float("-inf"), _leaky(v, _sum(v, x, y, z), slope)
    )
)
_leaky_flow = lane_by_lane(
    lambda v, old, slope, x, y, z: v.where(">", _sum(v, x, y, z), 0.0, old, v.times(old, slope))
)
_add_relu = lane_by_lane(lambda v, old, x, y: v.plus(old, _relu(v, v.plus(x, y))))
_relu_flow = lane_by_lane(lambda v, old, x, y, z: v.where("<=", v.plus(x, y), 0.0, 0.0, z))
_raise_by = lane_by_lane(lambda v, old, w, x: _or_nan(v, old, v.times(w, x)))
_count = lane_by_lane(
    lambda v, old, w, x, y: v.plus(old, v.where("==", v.times(w, x), y, 1.0, 0.0))
)
_add_hits = lane_by_lane(
    lambda v, old, w, x, y, z: v.plus(old, v.where("==", v.times(w, x), y, v.times(w, z), 0.0))
)
_invert = lane_by_lane(lambda v, old: v.where("!=", old, 0.0, v.over(1.0, old), 1.0))


@njit(inline="always")
def dot(x, at_x, y, at_y, n):
    """Sum of x * y."""
    return dot_product(x, at_x, y, at_y, n)


@njit(inline="always")
def largest(x, at, n):
    """The largest |x|, NaN passed over; of nothing 0."""
    return largest_size(x, at, n)


@njit(inline="always")
def clear(out, at, n):
    """Out = 0; an assignment to a view of a row takes as long as all else that is done to it."""
    _clear(out, at, n)


@njit(inline="always")
def fill(out, at, w, n):
    """Out = w, a number."""
    _fill(out, at, n, w)


@njit(inline="always")
def put(out, at, w, x, at_x, n):
    """Out = w * x, w a number."""
    _put(out, at, n, w, x, at_x)


@njit(inline="always")
def add(out, at, w, x, at_x, n):
    """Out += w * x, w a number."""
    _add(out, at, n, w, x, at_x)


@njit(inline="always")
def add_product(out, at, x, at_x, y, at_y, n):
    """Out += x * y."""
    _add_product(out, at, n, x, at_x, y, at_y)


@njit(inline="always")
def multiply(out, at, x, at_x, n):
    """Out *= x."""
    _multiply(out, at, n, x, at_x)


@njit(inline="always")
def raise_to(out, at, x, at_x, n):
    """Out = x where x is larger."""
    _raise_to(out, at, n, x, at_x)


@njit(inline="always")
def raise_by(out, at, w, x, at_x, n):
    """Out = w * x where that is larger or NaN, w a number."""
    _raise_by(out, at, n, w, x, at_x)


@njit(inline="always")
def count_hits(out, at, w, x, at_x, y, at_y, n):
    """Out += 1 where w * x = y, w a number."""
    _count(out, at, n, w, x, at_x, y, at_y)


@njit(inline="always")
def add_hits(out, at, w, x, at_x, y, at_y, z, at_z, n):
    """Out += w * z where w * x = y, w a number."""
    _add_hits(out, at, n, w, x, at_x, y, at_y, z, at_z)


@intrinsic
def dot_product_of_hits(_, w, x, at_x, y, at_y, z, at_z, n):
    """Of n numbers of the arrays x and z where w * x is y."""

    def code(context, builder, _signature, args):
        vectors, (w_, a, at_a, b, at_b, c, at_c, n) = Vectors(context, builder, x.dtype), args

        def products(at: Any, width: int) -> Any:
            own = vectors.load(x, a, builder.add(at_a, at), width)
            wanted = vectors.load(y, b, builder.add(at_b, at), width)
            product = vectors.times(own, vectors.load(z, c, builder.add(at_c, at), width))
            scaled = vectors.times(vectors.fill(w_, width), own)
            return vectors.where("==", scaled, wanted, product, 0.0)

        return vectors.fold(n, products, vectors.plus, vectors.sum)

    return x.dtype(w, x, at_x, y, at_y, z, at_z, n), code


@njit(inline="always")
def dot_hits(w, x, at_x, y, at_y, z, at_z, n):
    """Sum of x * z where w * x = y, w a number."""
    return dot_product_of_hits(w, x, at_x, y, at_y, z, at_z, n)


@njit(inline="always")
def no_infinity(out, at, n):
    """Out = 0 where it is -inf."""
    _no_infinity(out, at, n)


@njit(inline="always")
def subtract(out, at, x, at_x, n):
    """Out -= x."""
    _subtract(out, at, n, x, at_x)


@njit(inline="always")
def exp(out, at, n):
    """Out = the exponential of out, which is at most 80."""
    _exp(out, at, n)


@njit(inline="always")
def invert(out, at, n):
    """Out = 1 / out, and 1 where it is 0."""
    _invert(out, at, n)


@njit(inline="always")
def softmax_slope(out, at, w, at_w, mean, at_mean, n):
    """Out = w * (out - mean)."""
    _slope(out, at, n, w, at_w, mean, at_mean)


@njit(inline="always")
def slope(out, at, w, at_w, mean, n):
    """Out = w * (out - mean), mean a number."""
    _slope(out, at, n, w, at_w, mean)


@njit(inline="always")
def multiply_by(out, at, n, w):
    """Out *= w, w a number."""
    _multiply(out, at, n, w)


@njit(inline="always")
def leaky_sum(out, at, slope, x, at_x, y, at_y, z, at_z, n):
    """Out = x + y + z, times slope where it is negative but not -inf; -inf where z is."""
    _leaky_sum(out, at, n, slope, x, at_x, y, at_y, z, at_z)


@njit(inline="always")
def leaky_flow(out, at, slope, x, at_x, y, at_y, z, at_z, n):
    """Out *= slope where x + y + z is not positive."""
    _leaky_flow(out, at, n, slope, x, at_x, y, at_y, z, at_z)


@njit(inline="always")
def add_relu(out, at, x, at_x, y, at_y, n):
    """Out += x + y where that is positive or NaN."""
    _add_relu(out, at, n, x, at_x, y, at_y)


@njit(inline="always")
def relu_flow(out, at, x, at_x, y, at_y, z, at_z, n):
    """Out = z where x + y is positive or NaN, else 0."""
    _relu_flow(out, at, n, x, at_x, y, at_y, z, at_z)


@intrinsic
def turn(_, out, at, step, x, at_x, n):
    """Out = x, numbers `step` apart in out."""

    def code(context, builder, _signature, args):
        out_array, at, step, x_array, at_x, n = args
        number = context.get_value_type(x.dtype)
        with cgutils.for_range(builder, n) as loop:
            old = pointer(context, builder, x, x_array, builder.add(at_x, loop.index), number)
            place = builder.add(at, builder.mul(loop.index, step))
            new = pointer(context, builder, out, out_array, place, number)
            builder.store(builder.load(old), new)
        return context.get_dummy_value()

    return types.void(out, at, step, x, at_x, n), code


@intrinsic
def _prefetch(_, x, at):
    def code(context, builder, _signature, args):
        place = pointer(context, builder, x, args[0], args[1], ir.IntType(8))
        read_and_keep = (ir.Constant(ir.IntType(32), number) for number in (0, 2, 1))
        call_llvm(builder, "prefetch.p0", ir.VoidType(), place, *read_and_keep)
        return context.get_dummy_value()

    return types.void(x, types.int64), code


@njit(inline="always")
def ask_for(x, at, n):
    """Begin to load: the processor does not guess which numbers come next."""
    for place in range(at, at + n, _LINE // x.itemsize):
        _prefetch(x, place)


@part
def warm(indices, low, high, x, width):
    """Ask for the rows of x, of `width` numbers each, of those of entries low..high-1 there are."""
    for t in range(min(low, indices.shape[0]), min(high, indices.shape[0])):
        ask_for(x, indices[t] * width, width)
