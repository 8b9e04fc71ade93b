"""Products of small matrices that lie in a cache, for compiled loops.

BLAS copies its factors into an order of its own before it multiplies, which for matrices of this
size takes as long as the product. These are multiplied where they lie: a tile of the result, some
rows by some vector registers, stays in registers until it is done.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from graphtheory.ops.backends.cpu.compiling import kept_on_disk
from graphtheory.ops.backends.cpu.vector.llvm import FULL, REGISTER, Vectors, fixed, pointer

TILE = 6  # rows; with 2 registers each, and one number and 2 registers of factors, 15 of 16
_REGISTERS = 2
_LINE = 64  # bytes of a cache line, and of the largest register


@kept_on_disk
def whole(n):
    """Numbers of the full vectors that hold n numbers."""
    return -(-n // FULL) * FULL


@kept_on_disk
def matrix(rows, columns, like):
    """Zeros, with room for whole tiles, see `matrices`."""
    return matrices(1, rows, columns, like)[0]


@kept_on_disk
def matrices(count, rows, columns, like):
    """Several of zeros, with room for whole tiles; rows are an odd number of cache lines apart.

    With an even number, the lines of a column would share few places of a cache. Into one row more
    the tiles of a transposed factor reach.
    """
    lines = whole(columns) * like.itemsize // _LINE
    shape = count, -(-rows // TILE) * TILE + 1, (lines | 1) * (_LINE // like.itemsize)
    return np.zeros(shape, like.dtype)


def _tile(registers: int) -> Any:
    """A function that computes a tile of this many registers."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, at_x, x_row, x_column, y, at_y, y_row, out, at_out, out_row, depth, more = args
        of_x, of_y, of_out = (kind for kind in signature.args if isinstance(kind, types.Array))
        vectors, lanes = Vectors(context, builder, of_x.dtype), REGISTER * 8 // of_x.dtype.bitwidth
        zero = fixed(ir.VectorType(vectors.number, lanes), 0.0)

        def place(first: Any, row: Any, of_row: Any, column: int = 0) -> Any:
            at = builder.add(first, builder.mul(ir.Constant(at_x.type, row), of_row))
            return builder.add(at, ir.Constant(at.type, lanes * column))

        spots = [(r, c) for r in range(TILE) for c in range(registers)]
        places = {(r, c): place(at_out, r, out_row, c) for r, c in spots}
        sums = {spot: cgutils.alloca_once_value(builder, zero) for spot in spots}
        with builder.if_then(more):
            for spot in spots:
                builder.store(vectors.load(of_out, out, places[spot], lanes), sums[spot])
        with cgutils.for_range(builder, depth) as loop:
            column = builder.add(at_x, builder.mul(loop.index, x_column))
            row = builder.add(at_y, builder.mul(loop.index, y_row))
            right = [
                vectors.load(of_y, y, place(row, 0, y_row, c), lanes) for c in range(registers)
            ]
            for r in range(TILE):
                left = pointer(context, builder, of_x, x, place(column, r, x_row), vectors.number)
                left = vectors.fill(builder.load(left), lanes)
                for c in range(registers):
                    total = vectors.plus(builder.load(sums[r, c]), vectors.times(left, right[c]))
                    builder.store(total, sums[r, c])
        for spot in spots:
            vectors.store(builder.load(sums[spot]), of_out, out, places[spot])
        return context.get_dummy_value()

    @intrinsic
    def tile(_, x, at_x, x_row, x_column, y, at_y, y_row, out, at_out, out_row, depth, more):
        given = x, at_x, x_row, x_column, y, at_y, y_row, out, at_out, out_row, depth, more
        return types.void(*given), code

    return tile


_wide_tile, _narrow_tile = _tile(_REGISTERS), _tile(1)


@kept_on_disk
def multiply(x, y, out, n, depth, m, more):
    """Write x @ y, [n, depth] @ [depth, m], or add it to `out`, of which more is overwritten."""
    x_row, x_column = x.strides[0] // x.itemsize, x.strides[1] // x.itemsize
    y_row, out_row = y.strides[0] // y.itemsize, out.strides[0] // out.itemsize
    lanes = REGISTER // x.itemsize
    for j in range(0, m, _REGISTERS * lanes):
        for i in range(0, n, TILE):
            at_x, at_out = i * x_row, i * out_row + j
            if m - j > lanes:
                _wide_tile(x, at_x, x_row, x_column, y, j, y_row, out, at_out, out_row, depth, more)
            else:
                _narrow_tile(
                    x, at_x, x_row, x_column, y, j, y_row, out, at_out, out_row, depth, more
                )
