"""Sums and dot products of rows in registers against numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from graphtheory.ops.backends.cpu.vector import rows
from graphtheory.ops.backends.cpu.vector.rows import add_rows, write_dots

SCALE = 0.5

# Registers are 4, 8 or 16 numbers: heads of several, of one, of half of one, and of neither.
SHAPES = [
    (1, 1), (1, 7), (8, 7), (3, 2), (8, 4), (5, 8), (13, 8), (1, 16), (9, 16), (6, 32), (3, 24),
    (1, 64), (3, 64), (2, 128), (1, 136), (2, 256),
]  # fmt: skip
ROWS, ENTRIES = 9, 21
LOW, HIGH = 2, 19  # of the entries


@njit
def add(out, at, step, edges, weights, at_w, of, x, row, apart, heads, dim):
    low, high, scale = LOW, HIGH, weights.dtype.type(SCALE)
    return add_rows(
        out, at, step, low, high, edges, weights, at_w, scale, of, x, row, apart, heads, dim
    )


@njit
def write(out, at_out, edges, more, x, at, step, of, y, row, apart, heads, dim):
    low, high = LOW, HIGH
    return write_dots(
        out, at_out, edges, more, x, at, step, low, high, of, y, row, apart, heads, dim
    )


def sums_taken(dim, dtype):
    """Whether heads are whole registers, or half ones."""
    size = dim * np.dtype(dtype).itemsize
    return size % rows.REGISTER in (0, rows.REGISTER // 2)


def dots_taken(dim, dtype):
    """The same of dot products, of up to 8 registers."""
    return 2 * dim * np.dtype(dtype).itemsize in [n * rows.REGISTER for n in (1, 2, 4, 8, 16)]


def case(heads, dim, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x, y = (rng.standard_normal((ROWS, heads, dim)).astype(dtype) for _ in range(2))
    weights = rng.standard_normal((ENTRIES, heads)).astype(dtype)
    return rng, x, y, weights


def order(rng, name, count):
    """Numbers of rows or edges, or nothing: then entry t is number t."""
    if name == "none":
        return np.empty(0, np.int64), np.arange(ENTRIES) % count
    chosen = rng.permutation(ENTRIES) if count == ENTRIES else rng.integers(count, size=ENTRIES)
    return chosen.astype(name), chosen


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("heads", "dim"), SHAPES)
def test_sums(heads, dim, dtype) -> None:
    rng, out, x, weights = case(heads, dim, dtype)
    for edges, of in (("none", "int64"), ("int32", "int32"), ("int64", "int64")):
        (given, edge), (source, row) = order(rng, edges, ENTRIES), order(rng, of, ROWS)
        found = out.copy()
        width = heads * dim
        done = add(found, 3 * width, dim, given, weights, 0, source, x, width, dim, heads, dim)
        assert done == sums_taken(dim, dtype)
        wanted, chosen = out.copy(), slice(LOW, HIGH)
        wanted[3] += done * SCALE * np.einsum("th,thd->hd", weights[edge[chosen]], x[row[chosen]])
        np.testing.assert_allclose(found, wanted, rtol=0, atol=500 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("heads", "dim"), SHAPES)
def test_dot_products(heads, dim, dtype) -> None:
    rng, x, y, before = case(heads, dim, dtype)
    close = {"rtol": 0, "atol": 100 * np.finfo(dtype).eps * dim**0.5}
    for more in (False, True):
        for edges, of in (("none", "int64"), ("int32", "int32"), ("int64", "int64")):
            (given, edge), (source, row) = order(rng, edges, ENTRIES), order(rng, of, ROWS)
            found, width = before.copy(), heads * dim
            at, to = 3 * width, 0
            done = write(found, to, given, more, x, at, dim, source, y, width, dim, heads, dim)
            assert done == dots_taken(dim, dtype)
            wanted, chosen = before.copy(), slice(LOW, HIGH)
            dots = np.einsum("hd,thd->th", x[3], y[row[chosen]])
            if done:
                wanted[edge[chosen]] = dots + (before[edge[chosen]] if more else 0)
            np.testing.assert_allclose(found, wanted, **close)


@pytest.mark.parametrize("heads", [1, 4, 6])
@pytest.mark.parametrize("dim", [16, 32])
def test_rows_that_heads_share_beside_wider_ones(heads, dim) -> None:
    rng, wide, _, weights = case(heads, dim + 5, np.float32)
    shared = rng.standard_normal((ENTRIES, dim)).astype(np.float32)
    none, begin = np.empty(0, np.int64), 3 * heads * (dim + 5)
    out, logits = wide.copy(), weights.copy()
    add(out, begin, dim + 5, none, weights, 0, none, shared, dim, 0, heads, dim)
    write(logits, 0, none, True, wide, begin, dim + 5, none, shared, dim, 0, heads, dim)
    wanted, chosen = wide.copy(), slice(LOW, HIGH)
    wanted[3, :, :dim] += SCALE * weights[chosen].T @ shared[chosen]
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)
    dots = weights.copy()
    dots[chosen] += shared[chosen] @ wide[3, :, :dim].T
    np.testing.assert_allclose(logits, dots, rtol=1e-5, atol=1e-5)


def test_infinities_and_nans_stay_in_their_head() -> None:
    _, x, y, weights = case(4, 16, np.float32)
    y[:, 2, 5] = np.inf
    weights[LOW, 1] = np.nan
    of, none = np.arange(ENTRIES) % ROWS, np.empty(0, np.int64)
    found, sums = weights.copy(), np.zeros_like(x)
    write(found, 0, none, False, x, 0, 16, of, y, 64, 16, 4, 16)
    add(sums, 0, 16, none, weights, 0, of, x, 64, 16, 4, 16)
    assert np.isinf(found[LOW:HIGH, 2]).all()
    assert np.isfinite(found[LOW:HIGH, [0, 1, 3]]).all()
    assert np.isnan(sums[0, 1]).all()
    assert np.isfinite(sums[0, [0, 2, 3]]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("register", [16, 32, 64])
def test_registers_of_other_processors(register, dtype, monkeypatch) -> None:
    monkeypatch.setattr(rows, "REGISTER", register)
    these = [njit(f.py_func) for f in (add, write)]  # compiled anew
    for heads, dim in SHAPES:
        _, x, y, weights = case(heads, dim, dtype)
        of, none, width = np.arange(ENTRIES) % ROWS, np.empty(0, np.int64), heads * dim
        sums, dots = x.copy(), weights.copy()
        added = these[0](sums, 0, dim, none, weights, 0, of, y, width, dim, heads, dim)
        wrote = these[1](dots, 0, none, False, x, 0, dim, of, y, width, dim, heads, dim)
        assert (added, wrote) == (sums_taken(dim, dtype), dots_taken(dim, dtype))
        chosen, wanted = y[of[LOW:HIGH]], x.copy()
        wanted[0] += added * SCALE * np.einsum("th,thd->hd", weights[LOW:HIGH], chosen)
        close = {"rtol": 0, "atol": 500 * np.finfo(dtype).eps * dim**0.5}
        np.testing.assert_allclose(sums, wanted, **close)
        found = np.einsum("hd,thd->th", x[0], chosen) if wrote else weights[LOW:HIGH]
        np.testing.assert_allclose(dots[LOW:HIGH], found, **close)


def test_few_entries_are_left_to_the_caller() -> None:
    @njit
    def few(out, weights, of, x):
        none = of[:0]
        one, heads, dim = weights.dtype.type(1), 1, 16
        added = add_rows(out, 0, 16, 0, 11, none, weights, 0, one, of, x, 16, 16, heads, dim)
        wrote = write_dots(weights, 0, none, False, x, 0, 16, 0, 11, of, x, 16, 16, heads, dim)
        return added, wrote

    _, x, _, weights = case(1, 16, np.float32)
    assert few(x.copy(), weights, np.arange(ENTRIES) % ROWS, x) == (False, False)
