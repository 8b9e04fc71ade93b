"""A row of targets and the rows of its sources, with what stays the same in registers.

Heads of a whole number of registers are done so, and those of half a register.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from graphtheory.ops.backends.cpu.compiling import call_shared
from graphtheory.ops.backends.cpu.vector.llvm import REGISTER, Vectors

_MANY = 8  # registers for what stays the same; twice as many leave none for the rest
_FEW = 12  # entries below which to begin and to end costs more than it saves
_INT = ir.IntType(64)


def _number(value: int) -> Any:
    return ir.Constant(_INT, value)


class _Rows:
    """Entries and places, in a function of LLVM's on pointers and flat positions."""

    def __init__(self, context: Any, builder: Any, kind: Any) -> None:
        self.builder, self.vectors = builder, Vectors(context, builder, kind)
        self.lanes = REGISTER * 8 // kind.bitwidth

    def sum(self, first: Any, *others: Any) -> Any:
        """The sum over positions of a row."""
        for one in others:
            first = self.builder.add(first, one)
        return first

    def place(self, array: Any, at: Any, lanes: int) -> Any:
        """Where the next numbers of an array are."""
        kind = ir.VectorType(self.vectors.number, lanes)
        return self.builder.bitcast(self.builder.gep(array, [at]), kind.as_pointer())

    def load(self, array: Any, at: Any, lanes: int) -> Any:
        """The numbers of an array from a position on."""
        return self.builder.load(self.place(array, at, lanes), align=self.vectors.bits // 8)

    def store(self, vector: Any, array: Any, at: Any) -> None:
        """Put numbers into an array from a position on."""
        place = self.place(array, at, vector.type.count)
        self.builder.store(vector, place, align=self.vectors.bits // 8)

    def across(self, xs: Sequence[Any]) -> Any:
        """Sums of the lanes of 1, 2 or 4 vectors, side by side: halves of several at a time."""
        size = xs[0].type.count  # lanes that belong to one vector
        while len(xs) > 1 or size > 1:
            pairs = [(x,) for x in xs] if len(xs) == 1 else zip(xs[::2], xs[1::2], strict=True)
            xs = [self._halved(size, *some) for some in pairs]
            size = max(size // 2, 1)
        return xs[0]

    def _halved(self, size: int, *xs: Any) -> Any:
        """The first half of each `size` lanes plus the second; of 1 lane, all side by side."""
        half, count = size // 2, len(xs) * xs[0].type.count
        if size == 1:
            return self.vectors.picked(xs[0], xs[-1], range(count))
        first = [place for place in range(count) if place % size < half]
        halves = (
            self.vectors.picked(xs[0], xs[-1], lanes)
            for lanes in (first, [place + half for place in first])
        )
        return self.vectors.plus(*halves)

    def each(self, numbers: Any, count: int) -> list[Any]:
        """The first numbers of an array."""
        places = (self.builder.gep(numbers, [_number(k)]) for k in range(count))
        return [self.builder.load(place) for place in places]

    def chosen(self, array: Any, size: Any, entry: Any) -> Any:
        """array[entry], or the entry itself where the array is empty."""
        builder, found = self.builder, cgutils.alloca_once_value(self.builder, entry)
        with builder.if_then(builder.icmp_signed(">", size, _number(0))):
            value = builder.load(builder.gep(array, [entry]))
            same = value.type == entry.type
            builder.store(value if same else builder.sext(value, entry.type), found)
        return builder.load(found)

    def entries(self, low: Any, high: Any) -> AbstractContextManager[Any]:
        """Loop over the entries low to high - 1."""
        return cgutils.for_range_slice(self.builder, low, high, _number(1), _INT)

    def groups(self, count: Any, sizes: Sequence[int], body: Callable[[Any, int], None]) -> Any:
        """Do body(first, size) for groups of `count`, the large ones first; returns how many."""
        done = _number(0)
        for size in sizes:
            left = self.builder.and_(self.builder.sub(count, done), _number(-size))
            stop = self.sum(done, left)
            with cgutils.for_range_slice(self.builder, done, stop, _number(size), _INT) as (at, _):
                body(at, size)
            done = stop
        return done


def _write_sums(
    rows: _Rows, out: Any, edges: Any, weights: Any, scale: Any, of: Any, x: Any, numbers: Any
) -> Any:
    at, step, low, high, by_edge, at_w, by_of, row, apart, heads, dim = rows.each(numbers, 11)
    builder, vectors, zero = rows.builder, rows.vectors, ir.Constant(rows.vectors.number, 0.0)
    done, head, within = (cgutils.alloca_once_value(builder, _number(0)) for _ in range(3))

    def some(lanes: int, _first: Any, size: int) -> None:
        places, sums = [], []
        for _ in range(0, size, lanes):
            own, offset = builder.load(head), builder.load(within)
            near = rows.sum(at, builder.mul(own, step), offset)
            places.append((own, near, rows.sum(builder.mul(own, apart), offset)))
            sums.append(cgutils.alloca_once_value(builder, vectors.fill(zero, lanes)))
            offset = rows.sum(offset, _number(lanes))
            ends = builder.icmp_signed("==", offset, dim)
            builder.store(builder.select(ends, _number(0), offset), within)
            builder.store(builder.select(ends, rows.sum(own, _number(1)), own), head)
        with rows.entries(low, high) as (entry, _):
            edge = rows.sum(at_w, builder.mul(rows.chosen(edges, by_edge, entry), heads))
            begin = builder.mul(rows.chosen(of, by_of, entry), row)
            for (own, _, far), total in zip(places, sums, strict=True):
                weight = builder.load(builder.gep(weights, [rows.sum(edge, own)]))
                more = rows.load(x, rows.sum(begin, far), lanes)
                more = vectors.times(vectors.fill(weight, lanes), more)
                builder.store(vectors.plus(builder.load(total), more), total)
        for (_, near, _), total in zip(places, sums, strict=True):
            scaled = vectors.times(vectors.fill(scale, lanes), builder.load(total))
            rows.store(vectors.plus(rows.load(out, near, lanes), scaled), out, near)

    for share in (2, 1):
        lanes = rows.lanes // share
        left = builder.and_(dim, _number(rows.lanes - 1))
        with builder.if_then(builder.icmp_signed("==", left, _number(lanes % rows.lanes))):
            sizes = _MANY * lanes, lanes
            numbers = builder.mul(heads, dim)
            builder.store(rows.groups(numbers, sizes, partial(some, lanes)), done)
    return builder.load(done)


def _write_dots(
    rows: _Rows, out: Any, edges: Any, x: Any, of: Any, y: Any, numbers: Any, more: bool = False
) -> Any:
    at_out, by_edge, at, step, low, high, by_of, row, apart, heads, dim = rows.each(numbers, 11)
    builder, vectors = rows.builder, rows.vectors
    done = cgutils.alloca_once_value(builder, _number(0))

    def some(registers: int, lanes: int, first: Any, count: int) -> None:
        own = []
        for place in range(count * registers):
            head = rows.sum(first, _number(place // registers))
            within = _number(place % registers * lanes)
            near = rows.sum(at, builder.mul(head, step), within)
            far = rows.sum(builder.mul(head, apart), within)
            own.append((rows.load(x, near, lanes), far))
        with rows.entries(low, high) as (entry, _):
            begin = builder.mul(rows.chosen(of, by_of, entry), row)
            sums: list[Any] = []
            for place, (near, far) in enumerate(own):
                product = vectors.times(near, rows.load(y, rows.sum(begin, far), lanes))
                new = place % registers == 0
                sums.append(product if new else vectors.plus(sums.pop(), product))
            edge = builder.mul(rows.chosen(edges, by_edge, entry), heads)
            place, found = rows.sum(at_out, edge, first), rows.across(sums)
            if more:
                found = vectors.plus(rows.load(out, place, count), found)
            rows.store(found, out, place)

    for registers in (0, 1, 2, 4, _MANY):  # 0: half of one
        lanes, each = rows.lanes if registers else rows.lanes // 2, max(registers, 1)
        sizes = (4, 1) if each <= 2 else (1,)  # heads at a time
        with builder.if_then(builder.icmp_signed("==", dim, _number(each * lanes))):
            builder.store(rows.groups(heads, sizes, partial(some, each, lanes)), done)
    return builder.load(done)


def _body(write: Callable[..., Any], *kinds: Any) -> tuple[Any, Callable[..., Any]]:
    """Types and code of a function whose code write(rows, *arguments) returns."""

    def code(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return write(_Rows(context, builder, kinds[0].dtype), *args)

    return types.int64(*kinds), code


@intrinsic
def _sums(_, out, edges, weights, scale, of, x, numbers):
    return _body(_write_sums, out, edges, weights, scale, of, x, numbers)


@intrinsic
def _dots(_, out, edges, x, of, y, numbers):
    return _body(_write_dots, out, edges, x, of, y, numbers)


@intrinsic
def _more_dots(_, out, edges, x, of, y, numbers):
    return _body(partial(_write_dots, more=True), out, edges, x, of, y, numbers)


def _sums_alone(out, edges, weights, scale, of, x, numbers):
    return _sums(out, edges, weights, scale, of, x, numbers)


def _dots_alone(out, edges, x, of, y, numbers):
    return _dots(out, edges, x, of, y, numbers)


def _more_dots_alone(out, edges, x, of, y, numbers):
    return _more_dots(out, edges, x, of, y, numbers)


def _call(function: Callable[..., Any]) -> Callable[..., Any]:
    """The code of a call of a shared function: of pointers, a scale, and all whole numbers."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given, kinds, numbers = [], [], []
        for kind, value in zip(signature.args, args, strict=True):
            if isinstance(kind, types.Array):
                if kind.layout != "C":
                    got = f"{function.__name__}: got an array of layout {kind.layout}"
                    raise TypeError(f"{got}, expected C")
                array = context.make_array(kind)(context, builder, value)
                given.append(array.data)
                kinds.append(types.CPointer(kind.dtype))
                if isinstance(kind.dtype, types.Integer):
                    numbers.append(array.nitems)
            elif isinstance(kind, types.Float):
                given.append(value)
                kinds.append(kind)
            else:
                numbers.append(context.cast(builder, value, kind, types.int64))
        places = cgutils.alloca_once(builder, _INT, _number(len(numbers)))
        for k, number in enumerate(numbers):
            builder.store(number, builder.gep(places, [_number(k)]))
        given, kinds = [*given, places], [*kinds, types.CPointer(types.int64)]
        return call_shared(context, builder, function, kinds, given)

    return code


@intrinsic
def _add(_, out, at, step, low, high, edges, weights, at_w, scale, of, x, row, apart, heads, dim):
    """What `add_rows` does in registers; returns how many numbers that are."""
    kinds = out, at, step, low, high, edges, weights, at_w, scale, of, x, row, apart, heads, dim
    return types.int64(*kinds), _call(_sums_alone)


def _writer(function: Callable[..., Any]) -> Callable[..., Any]:
    @intrinsic
    def write(_, out, at_out, edges, x, at, step, low, high, of, y, row, apart, heads, dim):
        """What `write_dots` does in registers; returns how many heads those are."""
        kinds = out, at_out, edges, x, at, step, low, high, of, y, row, apart, heads, dim
        return types.int64(*kinds), _call(function)

    return write


_write, _write_more = _writer(_dots_alone), _writer(_more_dots_alone)


@njit(inline="always")
def add_rows(
    out, at, step, low, high, edges, weights, at_w, scale, of, x, row, apart, heads, dim
):  # fmt: skip
    """Add scale * the rows of x of entries low..high-1, weighted by head, to a row of out.

    Head h of the row of out is at + h * step; that of entry t's row of x, of[t] * row + h * apart;
    its weight, at_w + edges[t] * heads + h. Where `edges` or `of` is empty, it is t. All are flat
    positions; `apart` is 0 where all heads share the `dim` numbers.

    Returns whether it did; few entries, and heads of other widths, are left to the caller.
    """
    if high - low < _FEW:
        return False
    given = out, at, step, low, high, edges, weights, at_w, scale, of, x, row, apart, heads, dim
    return _add(*given) > 0


@njit(inline="always")
def write_dots(out, at_out, edges, x, at, step, low, high, of, y, row, apart, heads, dim):
    """Write the dot products of a row of x and the rows of y of entries low..high-1, by head.

    That of entry t goes to at_out + edges[t] * heads + h. Head h of the row of x is at + h * step.
    Other conventions are those of `add_rows`.
    """
    if high - low < _FEW:
        return False
    given = out, at_out, edges, x, at, step, low, high, of, y, row, apart, heads, dim
    return _write(*given) > 0


@njit(inline="always")
def add_dots(out, at_out, edges, x, at, step, low, high, of, y, row, apart, heads, dim):
    """As `write_dots`, added to what is there."""
    if high - low < _FEW:
        return False
    given = out, at_out, edges, x, at, step, low, high, of, y, row, apart, heads, dim
    return _write_more(*given) > 0
