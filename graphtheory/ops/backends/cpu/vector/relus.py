"""ReLUs of sums, and their gradients, in registers; of a sum's sign a bit is kept.

Sixteen numbers at a time, whose signs are a word; what remains is loaded and stored by a mask.
Functions of `lanes`, one after the other, would write and read each vector again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from graphtheory.ops.backends.cpu.vector.llvm import (
    FULL,
    Vectors,
    call_llvm,
    fixed,
    over_lanes,
    pointer,
)

_WORD, _LANE = ir.IntType(FULL), ir.IntType(64)
_MASK = ir.VectorType(ir.IntType(1), FULL)


def words_of(n: int) -> int:
    """Words for the signs of n numbers."""
    return -(-n // FULL)


class _Masked(Vectors):
    """Vectors of sixteen numbers, of which only some may exist."""

    def each_full(self, n: Any, body: Callable[[Any, Any], None]) -> None:
        """Do body(place, mask) for vectors that hold n numbers; mask is None where all exist."""
        self._full(n, lambda at, _: body(at, None))
        count, none = self.builder.and_(n, ir.Constant(n.type, FULL - 1)), ir.Constant(n.type, 0)
        with self.builder.if_then(self.builder.icmp_signed("!=", count, none)):
            places = ir.Constant(ir.VectorType(_LANE, FULL), list(range(FULL)))
            mask = self.builder.icmp_signed("<", places, self.fill(count, FULL))
            body(self._without(n, FULL), mask)

    def take(self, kind: Any, array: Any, at: Any, mask: Any) -> Any:
        """The numbers of an array from a position on, 0 where none exists."""
        if mask is None:
            return self.load(kind, array, at, FULL)
        place = pointer(self.context, self.builder, kind, array, at, self.full)
        align = ir.Constant(ir.IntType(32), self.bits // 8)
        name = f"masked.load.v{FULL}f{self.bits}.p0"
        return call_llvm(self.builder, name, self.full, place, align, mask, fixed(self.full, 0.0))

    def give(self, vector: Any, kind: Any, array: Any, at: Any, mask: Any) -> None:
        """Put those that exist into an array from a position on."""
        if mask is None:
            self.store(vector, kind, array, at)
            return
        place = pointer(self.context, self.builder, kind, array, at, self.full)
        align = ir.Constant(ir.IntType(32), self.bits // 8)
        name = f"masked.store.v{FULL}f{self.bits}.p0"
        call_llvm(self.builder, name, ir.VoidType(), vector, place, align, mask)

    def word(self, kind: Any, words: Any, first: Any, place: Any) -> Any:
        """Where the word of the signs of the vector at a place is."""
        at = self.builder.add(first, self.builder.udiv(place, ir.Constant(place.type, FULL)))
        return pointer(self.context, self.builder, kind, words, at, _WORD)


def _leaky(v: Vectors, slope: Any, x: Any, y: Any, z: Any, att: Any) -> Any:
    total = v.plus(v.plus(x, y), z)
    return v.times(v.where(">", total, 0.0, total, v.times(total, slope)), att)


leaky_dot = over_lanes(_leaky)  # the sum of att * leaky(x + y + z)


@intrinsic
def leaky_gradients(
    _, ups, slope, x, at_x, y, at_y, z, at_z, att, bits, at_bits, grads, at_grads, of_y, of_att,
    at_att, n,
):  # fmt: skip
    """Gradients of sum(ups * att * leaky(x + y + z)): of sums, added to y's and att's; signs."""

    def code(context, builder, _signature, args):
        vectors = _Masked(context, builder, x.dtype)
        above, rate, a, at_a, b, at_b, c, at_c, d, *written = args
        words, at_w, out, at_out, of_b, of_d, at_d, n = written
        rate = vectors.fill(rate, FULL)

        def body(at: Any, mask: Any) -> None:
            def take(kind: Any, array: Any, first: Any = None) -> Any:
                place = at if first is None else builder.add(first, at)
                return vectors.take(kind, array, place, mask)

            def give(vector: Any, kind: Any, array: Any, first: Any) -> None:
                vectors.give(vector, kind, array, builder.add(first, at), mask)

            total = vectors.plus(vectors.plus(take(x, a, at_a), take(y, b, at_b)), take(z, c, at_c))
            up, signs = take(ups, above), builder.fcmp_ordered(">", total, fixed(total, 0.0))
            word = vectors.word(bits, words, at_w, at)
            builder.store(builder.bitcast(signs, _WORD), word)
            up = builder.select(signs, up, vectors.times(up, rate))
            share = vectors.times(up, total)
            give(vectors.plus(take(of_att, of_d, at_d), share), of_att, of_d, at_d)
            sum_grad = vectors.times(up, take(att, d))
            give(sum_grad, grads, out, at_out)
            give(vectors.plus(take(of_y, of_b, at_b), sum_grad), of_y, of_b, at_b)

        vectors.each_full(n, body)
        return context.get_dummy_value()

    given = (ups, slope, x, at_x, y, at_y, z, at_z, att, bits, at_bits, grads, at_grads, of_y)
    return types.void(*given, of_att, at_att, n), code


def _with_bits(formula: Callable[..., Any]) -> Any:
    """A function that replaces numbers of `out` by formula(bits, out, x, *numbers)."""

    @intrinsic
    def replace(_, out, at, bits, at_bits, x, at_x, *others):
        def code(context, builder, _signature, args):
            vectors = _Masked(context, builder, x.dtype)
            out_array, at, words, at_bits, array, at_x, others = args
            *numbers, n = cgutils.unpack_tuple(builder, others)
            numbers = [vectors.fill(number, FULL) for number in numbers]

            def body(place: Any, mask: Any) -> None:
                word = vectors.word(bits, words, at_bits, place)
                signs = builder.bitcast(builder.load(word), _MASK)
                here = builder.add(at, place)
                old = vectors.take(out, out_array, here, mask)  # LLVM drops it if it is not used
                given = vectors.take(x, array, builder.add(at_x, place), mask)
                new = formula(vectors, signs, old, given, *numbers)
                vectors.give(new, out, out_array, here, mask)

            vectors.each_full(n, body)
            return context.get_dummy_value()

        return types.void(out, at, bits, at_bits, x, at_x, types.StarArgTuple(others)), code

    return replace


# Where the bit is set out += x, or out = x and else 0; out += x, or slope * x where it is not set.
add_where = _with_bits(lambda v, bits, old, x: v.builder.select(bits, v.plus(old, x), old))
keep_where = _with_bits(lambda v, bits, old, x: v.builder.select(bits, x, fixed(x, 0.0)))
add_by_sign = _with_bits(
    lambda v, bits, old, x, slope: v.plus(old, v.builder.select(bits, x, v.times(x, slope)))
)


@intrinsic
def add_relu_signs(_, out, at, bits, at_bits, x, at_x, y, at_y, n):
    """Out += x + y where that is positive or NaN, which goes to int16 `bits`, of n numbers."""

    def code(context, builder, _signature, args):
        vectors = _Masked(context, builder, x.dtype)
        out_array, at, words, at_bits, a, at_a, b, at_b, n = args

        def body(place: Any, mask: Any) -> None:
            left = vectors.take(x, a, builder.add(at_a, place), mask)
            total = vectors.plus(left, vectors.take(y, b, builder.add(at_b, place), mask))
            signs = builder.fcmp_unordered(">", total, fixed(total, 0.0))
            word = vectors.word(bits, words, at_bits, place)
            builder.store(builder.bitcast(signs, _WORD), word)
            here = builder.add(at, place)
            old = vectors.take(out, out_array, here, mask)
            new = builder.select(signs, vectors.plus(old, total), old)
            vectors.give(new, out, out_array, here, mask)

        vectors.each_full(n, body)
        return context.get_dummy_value()

    return types.void(out, at, bits, at_bits, x, at_x, y, at_y, n), code
