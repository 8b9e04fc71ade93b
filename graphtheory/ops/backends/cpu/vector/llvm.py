"""Writes machine code for vectors of an array's numbers, of which `lanes` is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, typing
from numba.extending import intrinsic

FULL = 16
REGISTER = 64 if binding.get_host_cpu_features().get("avx512f") else 32  # bytes
_LESS = (8, 4, 2, 1)
_COMMON = (16, 8, 1)  # heads, or features of a head, that take one vector and one question
_FUSED = {"flags": ("contract",)}
_LOG2, _HIGH, _LOW = 1.44269504, 0.693359375, -2.12194440e-4  # the logarithm of 2 in two parts
_HALF_BINADE = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1,
)  # fmt: skip


def pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any, to: Any) -> Any:
    """To what lies at a flat position of an array, as something of another type."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), to.as_pointer())


def call_llvm(builder: Any, name: str, out: Any, *args: Any, **flags: Any) -> Any:
    """A call of a function that LLVM has."""
    kind = ir.FunctionType(out, [a.type for a in args])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}")
    return builder.call(function, args, **flags)


class Vectors:
    """Of float32 or float64, in the function that numba is writing."""

    def __init__(self, context: Any, builder: Any, kind: Any) -> None:
        self.context, self.builder = context, builder
        self.number, self.bits = context.get_value_type(kind), kind.bitwidth
        self.full = ir.VectorType(self.number, FULL)

    def _call(self, name: str, out: Any, *args: Any, **flags: Any) -> Any:
        kind = args[-1].type
        width = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
        return call_llvm(self.builder, f"{name}.{width}f{self.bits}", out, *args, **flags)

    def load(self, kind: Any, array: Any, at: Any, width: int) -> Any:
        """The numbers of an array from a position on."""
        vector = ir.VectorType(self.number, width)
        place = pointer(self.context, self.builder, kind, array, at, vector)
        return self.builder.load(place, align=self.bits // 8)

    def store(self, vector: Any, kind: Any, array: Any, at: Any) -> None:
        """Put numbers into an array from a position on."""
        place = pointer(self.context, self.builder, kind, array, at, vector.type)
        self.builder.store(vector, place, align=self.bits // 8)

    def picked(self, x: Any, y: Any, lanes: Sequence[int]) -> Any:
        """Lanes of two vectors, those of the second counted on from the first's."""
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
        return self.builder.shuffle_vector(x, y, mask)

    def fill(self, number: Any, width: int) -> Any:
        """One number in every lane."""
        none = ir.Constant(ir.VectorType(number.type, width), ir.Undefined)
        first = self.builder.insert_element(none, number, ir.Constant(ir.IntType(32), 0))
        return self.picked(first, none, [0] * width)

    def times(self, x: Any, y: Any) -> Any:
        """The product of two vectors, by lane."""
        return self.builder.fmul(x, y, **_FUSED)

    def plus(self, x: Any, y: Any) -> Any:
        """Sum; with a product one instruction."""
        return self.builder.fadd(x, y, **_FUSED)

    def minus(self, x: Any, y: Any) -> Any:
        """The difference of two vectors, by lane."""
        return self.builder.fsub(x, y)

    def over(self, x: float, y: Any) -> Any:
        """A quotient of a constant."""
        return self.builder.fdiv(fixed(y, x), y)

    def where(self, relation: str, x: Any, y: Any, yes: Any, no: Any) -> Any:
        """Choose by ``x relation y``, which for NaN is false but for "!="; numbers go to lanes."""
        x, y, yes, no = (fixed(x, v) if isinstance(v, float) else v for v in (x, y, yes, no))
        compare = self.builder.fcmp_unordered if relation == "!=" else self.builder.fcmp_ordered
        return self.builder.select(compare(relation, x, y), yes, no)

    def larger(self, x: Any, y: Any) -> Any:
        """The larger of two, of NaN and a number the number."""
        return self._call("maxnum", x.type, x, y)

    def smaller(self, x: Any, y: Any) -> Any:
        """The smaller of two, of NaN and a number the number."""
        return self._call("minnum", x.type, x, y)

    def size(self, x: Any) -> Any:
        """The absolute value of each lane."""
        return self._call("fabs", x.type, x)

    def sum(self, x: Any) -> Any:
        """The sum of all lanes of a vector."""
        zero, flags = ir.Constant(self.number, 0.0), {"fastmath": ("reassoc", "nsz")}
        return self._call("vector.reduce.fadd", self.number, zero, x, **flags)

    def largest(self, x: Any) -> Any:
        """Of the lanes; NaN is passed over."""
        return self._call("vector.reduce.fmax", self.number, x)

    def smallest(self, x: Any) -> Any:
        """Of the lanes; NaN is passed over."""
        return self._call("vector.reduce.fmin", self.number, x)

    def exp(self, x: Any) -> Any:
        """Exponentials of numbers up to 80.

        In float32 by a polynomial on half a binade; its error is below 2e-7 of the result, and
        results below 1e-38 are 0.
        """
        if self.bits == 64:
            return self._exp_one_by_one(x)
        whole = self.plus(self.times(x, fixed(x, _LOG2)), fixed(x, 0.5))
        whole = self._call("floor", x.type, whole)
        r = self.plus(self.times(whole, fixed(x, -_HIGH)), x)
        r = self.plus(self.times(whole, fixed(x, -_LOW)), r)
        y = fixed(x, _HALF_BINADE[0])
        for c in _HALF_BINADE[1:]:
            y = self.plus(self.times(y, r), fixed(x, c))
        y = self.plus(self.plus(self.times(self.times(y, r), r), r), fixed(x, 1.0))
        power = self.where(">", whole, -126.0, whole, -126.0)  # of NaN too
        bits = ir.VectorType(ir.IntType(32), x.type.count)
        power = self.builder.add(self.builder.fptosi(power, bits), fixed(bits, 127))
        binade = self.builder.bitcast(self.builder.shl(power, fixed(bits, 23)), x.type)
        return self.where("<", x, -87.0, 0.0, self.times(y, binade))

    def _exp_one_by_one(self, x: Any) -> Any:
        kind = types.float64
        exp = self.context.get_function(math.exp, typing.signature(kind, kind))
        for lane in range(x.type.count):
            place = ir.Constant(ir.IntType(32), lane)
            value = exp(self.builder, [self.builder.extract_element(x, place)])
            x = self.builder.insert_element(x, value, place)
        return x

    def fold(
        self,
        n: Any,
        element: Callable[[Any, int], Any],
        combine: Callable[[Any, Any], Any],
        across: Callable[[Any], Any],
    ) -> Any:
        """Combine element(place, width) of n numbers, then across the lanes; of none it is 0."""
        total = cgutils.alloca_once_value(self.builder, ir.Constant(self.number, 0.0))

        def alone(width: int) -> None:
            self.builder.store(across(element(ir.Constant(n.type, 0), width)), total)

        def many() -> None:
            so_far = cgutils.alloca_once_value(self.builder, element(ir.Constant(n.type, 0), FULL))

            def more(at: Any, width: int) -> None:
                found = combine(element(at, width), self.builder.load(so_far))
                self.builder.store(found, so_far)

            self._full(n, more, FULL)
            self.builder.store(across(self.builder.load(so_far)), total)

        def remaining(at: Any, width: int) -> None:
            found = combine(across(element(at, width)), self.builder.load(total))
            self.builder.store(found, total)

        def any_number() -> None:
            full = ir.Constant(n.type, FULL)
            with self.builder.if_then(self.builder.icmp_signed(">=", n, full)):
                many()
            self._rest(n, remaining)

        self._if_common(n, alone, any_number)
        return self.builder.load(total)

    def sweep(
        self, n: Any, start: Sequence[Any], body: Callable[[Any, Sequence[Any]], Sequence[Any]]
    ) -> list[Any]:
        """Vectors that body(place, vectors) replaces for each full vector of n numbers."""
        so_far = [cgutils.alloca_once_value(self.builder, vector) for vector in start]

        def more(at: Any, _width: int) -> None:
            found = body(at, [self.builder.load(vector) for vector in so_far])
            for vector, place in zip(found, so_far, strict=True):
                self.builder.store(vector, place)

        self._full(n, more)
        return [self.builder.load(vector) for vector in so_far]

    def each(self, n: Any, body: Callable[[Any, int], None]) -> None:
        """Do body(place, width) for vectors that together are n numbers."""

        def any_number() -> None:
            self._full(n, body)
            self._rest(n, body)

        self._if_common(n, partial(body, ir.Constant(n.type, 0)), any_number)

    def _if_common(
        self,
        n: Any,
        alone: Callable[[int], None],
        other: Callable[[], None],
        widths: Sequence[int] = _COMMON,
    ) -> None:
        if not widths:
            other()
            return
        same = self.builder.icmp_signed("==", n, ir.Constant(n.type, widths[0]))
        with self.builder.if_else(same) as (yes, no):
            with yes:
                alone(widths[0])
            with no:
                self._if_common(n, alone, other, widths[1:])

    def _full(self, n: Any, body: Callable[[Any, int], None], start: int = 0) -> None:
        first, stop = ir.Constant(n.type, start), self._without(n, FULL)
        step = ir.Constant(n.type, FULL)
        with cgutils.for_range_slice(self.builder, first, stop, step, n.type) as (at, _):
            body(at, FULL)

    def _rest(self, n: Any, body: Callable[[Any, int], None]) -> None:
        with self._if_any(n, FULL - 1):
            for width in _LESS:
                with self._if_any(n, width):
                    body(self._without(n, 2 * width), width)

    def _without(self, n: Any, size: int) -> Any:
        """The largest multiple of a power of 2 that is not above n."""
        return self.builder.and_(n, ir.Constant(n.type, -size))

    @contextmanager
    def _if_any(self, n: Any, bits: int) -> Iterator[None]:
        left = self.builder.and_(n, ir.Constant(n.type, bits))
        with self.builder.if_then(self.builder.icmp_unsigned("!=", left, ir.Constant(n.type, 0))):
            yield


def fixed(like: Any, number: float) -> Any:
    """A constant in every lane of a vector like this one, or of this type."""
    kind = getattr(like, "type", like)
    return ir.Constant(kind, [number] * kind.count)


def _given(vectors: Vectors, kinds: Any, values: Any, at: Any, width: int) -> list[Any]:
    """A vector of each number, and of each array from `at` after the position that follows it."""
    found = []
    for kind, value, position in zip_longest(kinds, values, values[1:]):
        if isinstance(kind, types.Array):
            place = vectors.builder.add(position, at)
            found.append(vectors.load(kind, value, place, width))
        elif isinstance(kind, types.Float):
            found.append(vectors.fill(value, width))
    return found


def lane_by_lane(formula: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled function (out, at, ..., n) that replaces n numbers of `out` from a position on.

    Between are numbers, and arrays each followed by a position, of which the formula gets a vector,
    after `Vectors` and the old numbers of `out`.
    """

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (of_out, _, kinds), (out, at_out, values) = signature.args, args
        values = cgutils.unpack_tuple(builder, values)
        vectors = Vectors(context, builder, of_out.dtype)

        def body(at: Any, width: int) -> None:
            place, given = builder.add(at_out, at), _given(vectors, kinds, values, at, width)
            old = vectors.load(of_out, out, place, width)  # no instruction where it is not used
            vectors.store(formula(vectors, old, *given), of_out, out, place)

        vectors.each(values[-1], body)
        return context.get_dummy_value()

    @intrinsic
    def replace(_, out, at, *others):
        return types.void(out, at, types.StarArgTuple(others)), code

    return replace


def over_lanes(
    formula: Callable[..., Any], combine: Callable[..., Any] = Vectors.plus,
    across: Callable[[Vectors, Any], Any] = Vectors.sum,
) -> Callable[..., Any]:  # fmt: skip
    """A compiled function (..., n): the sum of a formula of n numbers; see `lane_by_lane`."""

    @intrinsic
    def total(_, *kinds):
        number = next(kind.dtype for kind in kinds if isinstance(kind, types.Array))

        def code(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            values = cgutils.unpack_tuple(builder, args[0])
            vectors = Vectors(context, builder, number)

            def element(at: Any, width: int) -> Any:
                return formula(vectors, *_given(vectors, kinds, values, at, width))

            ways = partial(combine, vectors), partial(across, vectors)
            return vectors.fold(values[-1], element, *ways)

        return number(types.StarArgTuple(kinds)), code

    return total
