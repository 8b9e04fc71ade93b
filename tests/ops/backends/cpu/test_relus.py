"""ReLUs of sums in registers against numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from graphtheory.ops.backends.cpu.vector import relus
from graphtheory.ops.backends.cpu.vector.relus import words_of

SIZES = [1, 3, 15, 16, 17, 31, 32, 100, 128, 200]
AT = 3  # numbers before those that are asked for


@njit
def dot(slope, x, y, z, att, n):
    return relus.leaky_dot(slope, x, AT, y, AT, z, AT, att, AT, n)


@njit
def gradients(ups, slope, x, y, z, att, bits, flows, of_y, of_att, n):
    relus.leaky_gradients(
        ups, slope, x, AT, y, AT, z, AT, att[AT:], bits, 1, flows, AT, of_y, of_att, AT, n
    )


@njit
def add_where(out, bits, x, n):
    relus.add_where(out, AT, bits, 1, x, AT, n)


@njit
def add_by_sign(out, bits, slope, x, n):
    relus.add_by_sign(out, AT, bits, 1, slope, x, AT, n)


@njit
def keep_where(out, bits, x, n):
    relus.keep_where(out, AT, bits, 1, x, AT, n)


@njit
def add_relu(out, bits, x, y, n):
    relus.add_relu(out, AT, bits, 1, x, AT, y, AT, n)


def draw(count: int, n: int, dtype: type) -> list[np.ndarray]:
    """Numbers at `AT`; before and after them NaN, which nothing reads."""
    found = np.full((count, n + 2 * AT), np.nan, dtype)
    found[:, AT : AT + n] = np.random.default_rng(0).standard_normal((count, n))
    return list(found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("slope", [0.2, 0.0, -0.5])
@pytest.mark.parametrize("n", SIZES)
def test_sums_and_gradients(n: int, slope: float, dtype: type) -> None:
    close = {"rtol": 0, "atol": 50 * np.finfo(dtype).eps}
    x, y, z, att, of_y, of_att, flows = draw(7, n, dtype)
    ups = np.linspace(-1, 1, n, dtype=dtype)
    here = slice(AT, AT + n)
    total = (x + y + z)[here]
    wanted = np.where(total > 0, total, slope * total)
    np.testing.assert_allclose(dot(dtype(slope), x, y, z, att, n), wanted @ att[here], **close)
    before = [t.copy() for t in (of_y, of_att)]
    bits = np.full(words_of(n) + 2, 7, np.int16)
    gradients(ups, dtype(slope), x, y, z, att, bits, flows, of_y, of_att, n)
    flow = ups * np.where(total > 0, 1, slope) * att[here]
    np.testing.assert_allclose(flows[here], flow, **close)
    np.testing.assert_allclose(of_y[here], before[0][here] + flow, **close)
    np.testing.assert_allclose(of_att[here], before[1][here] + ups * wanted, **close)
    for touched in (flows, of_y, of_att):
        assert np.isnan(touched[:AT]).all() and np.isnan(touched[AT + n :]).all()
    assert (signs_of(bits, n) == (total > 0)).all()


def signs_of(bits: np.ndarray, n: int) -> np.ndarray:
    """The bits of n numbers; no bit beyond them is set, and no word beyond theirs written."""
    assert bits[0] == bits[-1] == 7
    signs = np.unpackbits(bits[1:-1].view(np.uint8), bitorder="little").astype(bool)
    assert not signs[n:].any()
    return signs[:n]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", SIZES)
def test_relu_and_what_its_bits_let_through(n: int, dtype: type) -> None:
    x, y, out, other = draw(4, n, dtype)
    here, bits = slice(AT, AT + n), np.full(words_of(n) + 2, 7, np.int16)
    x[AT], before = np.nan, (out.copy(), other.copy())
    add_relu(out, bits, x, y, n)
    total = (x + y)[here]
    signs = ~(total <= 0)  # NaN is let through
    assert (signs_of(bits, n) == signs).all()
    close = {"rtol": 0, "atol": 10 * np.finfo(dtype).eps}
    np.testing.assert_allclose(out[here], before[0][here] + np.where(signs, total, 0), **close)
    y[here][~signs] = np.nan  # which nothing lets through
    add_where(other, bits, y, n)
    wanted = before[1][here] + np.where(signs, y[here], 0)
    np.testing.assert_allclose(other[here], wanted, **close)
    other[here] = 1
    add_by_sign(other, bits, dtype(0.5), out, n)
    wanted = 1 + np.where(signs, 1, dtype(0.5)) * out[here]
    np.testing.assert_allclose(other[here], wanted, **close)
    keep_where(other, bits, y, n)
    np.testing.assert_array_equal(other[here], np.where(signs, y[here], 0))
    for touched in (out, other):
        assert np.isnan(touched[:AT]).all() and np.isnan(touched[AT + n :]).all()


def test_of_nothing_there_is_no_word() -> None:
    assert words_of(0) == 0
    assert dot(np.float64(0.2), *draw(4, 0, np.float64), 0) == 0


def test_a_sum_that_is_no_number_is_not_positive() -> None:
    x, y, z, att, of_y, of_att, flows = draw(7, 17, np.float32)
    x[AT + 2], bits = np.nan, np.zeros(4, np.int16)
    gradients(np.ones(17, np.float32), np.float32(0.2), x, y, z, att, bits, flows, of_y, of_att, 17)
    assert not bits[1] >> 2 & 1
    assert np.isnan(of_att[AT + 2]) and np.isfinite(of_att[AT : AT + 2]).all()
    np.testing.assert_allclose(flows[AT + 2], 0.2 * att[AT + 2], rtol=1e-6)
