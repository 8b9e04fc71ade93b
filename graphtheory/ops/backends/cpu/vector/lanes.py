"""Operations on short vectors in registers: what loops over heads and over features are made of.

LLVM turns a loop into vector code for 32 numbers at a time and does what remains one by one, which
for the features of small heads and the heads of an edge is everything. These functions do 16
numbers at a time, and what remains by vectors of 8, 4, 2 and 1. In ``add(out, at, w, x, at_x, n)``
w is a number, x an array with a flat position, since a view of a row may count references, and n
how many numbers are added; w may be an array with a position, too. Arrays are contiguous.
"""

from __future__ import annotations

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from graphtheory.ops.backends.cpu.compiling import part
from graphtheory.ops.backends.cpu.vector.llvm import (
    Vectors,
    call_llvm,
    fixed,
    lane_by_lane,
    over_lanes,
    pointer,
)

_LINE = 64  # bytes of a cache line


def _leaky(v, total, slope):
    low = v.where(">", total, float("-inf"), v.times(total, slope), total)
    return v.where(">", total, 0.0, total, low)


def _leaky_sum(v, old, slope, x, y, z):
    total = v.plus(v.plus(x, y), z)
    return v.where("==", z, float("-inf"), float("-inf"), _leaky(v, total, slope))


def _leaky_grad(v, old, slope, x, y, z):
    return v.where(">", v.plus(v.plus(x, y), z), 0.0, old, v.times(old, slope))


def _add_relu(v, old, x, y):
    total = v.plus(x, y)
    return v.plus(old, v.where("<=", total, 0.0, 0.0, total))


def _sigmoid(v, old, x, y, z):
    total = v.plus(v.plus(x, y), z)
    minus = v.where("<", total, -80.0, 80.0, v.minus(fixed(total, 0.0), total))
    return v.over(1.0, v.plus(fixed(total, 1.0), v.exp(minus)))


def _maximum_product(v, old, w, x):
    product = v.times(w, x)
    return v.where("!=", product, product, product, v.where(">", product, old, product, old))


# Out = 0; an assignment to a view of a row takes as long as all else that is done to it.
clear = lane_by_lane(lambda v, old: fixed(old, 0.0))
fill = lane_by_lane(lambda v, old, w: w)
scale_into = lane_by_lane(lambda v, old, w, x: v.times(w, x))
add = lane_by_lane(lambda v, old, w, x: v.plus(old, v.times(w, x)))
add_product = lane_by_lane(lambda v, old, x, y: v.plus(old, v.times(x, y)))
sigmoid = lane_by_lane(_sigmoid)  # of x + y + z
# Out += x * s * (1 - s), the gradient of a sigmoid s by that of its result.
sigmoid_grad = lane_by_lane(
    lambda v, old, x, s: v.plus(old, v.times(x, v.times(s, v.minus(fixed(s, 1.0), s))))
)
multiply = lane_by_lane(lambda v, old, x: v.times(old, x))
subtract = lane_by_lane(lambda v, old, x: v.minus(old, x))
invert = lane_by_lane(lambda v, old: v.where("!=", old, 0.0, v.over(1.0, old), 1.0))  # 1 if 0
exp = lane_by_lane(lambda v, old: v.exp(old))  # of numbers up to 80
no_infinity = lane_by_lane(lambda v, old: v.where("==", old, float("-inf"), 0.0, old))
softmax_grad = lane_by_lane(lambda v, old, w, mean: v.times(w, v.minus(old, mean)))
maximum_ = lane_by_lane(lambda v, old, x: v.larger(x, old))  # NaN is passed over
maximum_product_ = lane_by_lane(_maximum_product)  # of out and w * x; NaN stays
# x + y + z, times the slope where it is negative but not -inf; -inf where z is.
leaky_sum = lane_by_lane(_leaky_sum)
# Out *= slope where x + y + z is not positive.
leaky_grad = lane_by_lane(_leaky_grad)
# Out += x + y where that is positive or NaN.
add_relu = lane_by_lane(_add_relu)
# Out = z where x + y is positive or NaN, else 0.
relu_grad = lane_by_lane(lambda v, old, x, y, z: v.where("<=", v.plus(x, y), 0.0, 0.0, z))
# Out += 1, and out += w * z, where w * x = y.
count_hits = lane_by_lane(
    lambda v, old, w, x, y: v.plus(old, v.where("==", v.times(w, x), y, 1.0, 0.0))
)
add_hits = lane_by_lane(
    lambda v, old, w, x, y, z: v.plus(old, v.where("==", v.times(w, x), y, v.times(w, z), 0.0))
)


# Sums of x * y; of x * z where w * x = y; the largest |x|, NaN passed over, of nothing 0.
dot = over_lanes(lambda v, x, y: v.times(x, y))
dot_hits = over_lanes(lambda v, w, x, y, z: v.where("==", v.times(w, x), y, v.times(x, z), 0.0))
largest = over_lanes(lambda v, x: v.size(x), Vectors.larger, Vectors.largest)


@intrinsic
def store_strided(_, out, at, step, x, at_x, n):
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
def prefetch(x, at, n):
    """Begin to load n numbers: the processor does not guess which come next."""
    for place in range(at, at + n, _LINE // x.itemsize):
        _prefetch(x, place)


@part
def prefetch_rows(indices, low, high, x, width):
    """Prefetch rows of x, of `width` numbers each, of those of entries low..high-1 there are."""
    for t in range(min(low, indices.shape[0]), min(high, indices.shape[0])):
        prefetch(x, indices[t] * width, width)
