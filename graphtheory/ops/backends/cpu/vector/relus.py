"""ReLUs of sums, and their gradients, in registers; of a sum's sign a bit is kept.

Sixteen numbers at a time, whose signs are a word; what remains is loaded and stored by a mask.
Functions of `lanes`, one after the other, would write and read each vector again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from graphtheory.ops.backends.cpu.vector.llvm import FULL, Vectors, call_llvm, fixed, pointer

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
            lanes = ir.VectorType(_LANE, FULL)
            every = self.builder.insert_element(
                ir.Constant(lanes, ir.Undefined), count, ir.Constant(ir.IntType(32), 0)
            )
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), FULL), [0] * FULL)
            every = self.builder.shuffle_vector(every, ir.Constant(lanes, ir.Undefined), zeros)
            mask = self.builder.icmp_signed("<", ir.Constant(lanes, list(range(FULL))), every)
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


@intrinsic
def leaky_dot(_, slope, x, at_x, y, at_y, z, at_z, att, at_att, n):
    """Sum of att * leaky(x + y + z) of n numbers."""

    def code(context, builder, _signature, args):
        vectors = Vectors(context, builder, x.dtype)
        rate, a, at_a, b, at_b, c, at_c, d, at_d, n = args

        def terms(at: Any, width: int) -> Any:
            total = vectors.load(x, a, builder.add(at_a, at), width)
            for kind, array, first in ((y, b, at_b), (z, c, at_c)):
                total = vectors.plus(
                    total, vectors.load(kind, array, builder.add(first, at), width)
                )
            low = vectors.times(total, vectors.fill(rate, width))
            total = vectors.where(">", total, 0.0, total, low)
            return vectors.times(total, vectors.load(att, d, builder.add(at_d, at), width))

        return vectors.fold(n, terms, vectors.plus, vectors.sum)

    return x.dtype(slope, x, at_x, y, at_y, z, at_z, att, at_att, n), code


@intrinsic
def leaky_gradients(
    _, ups, slope, x, at_x, y, at_y, z, at_z, att, bits, at_bits, flows, at_flows, of_y, of_att,
    at_att, n,
):  # fmt: skip
    """Gradients of sum(ups * att * leaky(x + y + z)) of n numbers.

    That of the sums goes to flows, and is added to of_y[at_y]; that of att is added to
    of_att[at_att]. Which sums are positive goes to int16 `bits`.
    """

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
            flow = vectors.times(up, take(att, d))
            give(flow, flows, out, at_out)
            give(vectors.plus(take(of_y, of_b, at_b), flow), of_y, of_b, at_b)

        vectors.each_full(n, body)
        return context.get_dummy_value()

    given = (ups, slope, x, at_x, y, at_y, z, at_z, att, bits, at_bits, flows, at_flows, of_y)
    return types.void(*given, of_att, at_att, n), code


def _with_bits(formula: Callable[..., Any]) -> Any:
    """A function that replaces n numbers of `out` by formula(bits, w, x, out), w being a number."""

    @intrinsic
    def replace(_, out, at, bits, at_bits, w, x, at_x, n):
        def code(context, builder, _signature, args):
            vectors = _Masked(context, builder, x.dtype)
            out_array, at, words, at_bits, w, array, at_x, n = args
            w = vectors.fill(w, FULL)

            def body(place: Any, mask: Any) -> None:
                word = vectors.word(bits, words, at_bits, place)
                signs = builder.bitcast(builder.load(word), _MASK)
                here = builder.add(at, place)
                old = vectors.take(out, out_array, here, mask)  # LLVM drops it if it is not used
                given = vectors.take(x, array, builder.add(at_x, place), mask)
                vectors.give(formula(vectors, signs, w, given, old), out, out_array, here, mask)

            vectors.each_full(n, body)
            return context.get_dummy_value()

        return types.void(out, at, bits, at_bits, w, x, at_x, n), code

    return replace


_add_where = _with_bits(lambda v, bits, w, x, old: v.builder.select(bits, v.plus(old, x), old))
_keep_where = _with_bits(lambda v, bits, w, x, old: v.builder.select(bits, x, fixed(x, 0.0)))
_add_by_sign = _with_bits(
    lambda v, bits, w, x, old: v.plus(old, v.builder.select(bits, x, v.times(x, w)))
)


@njit(inline="always")
def add_where(out, at, bits, at_bits, x, at_x, n):
    """Out += x where the bit is set."""
    _add_where(out, at, bits, at_bits, x.dtype.type(0), x, at_x, n)


@njit(inline="always")
def keep_where(out, at, bits, at_bits, x, at_x, n):
    """Out = x where the bit is set, else 0."""
    _keep_where(out, at, bits, at_bits, x.dtype.type(0), x, at_x, n)


@njit(inline="always")
def add_by_sign(out, at, bits, at_bits, slope, x, at_x, n):
    """Out += x where the bit is set, else slope * x."""
    _add_by_sign(out, at, bits, at_bits, slope, x, at_x, n)


@intrinsic
def add_relu(_, out, at, bits, at_bits, x, at_x, y, at_y, n):
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
