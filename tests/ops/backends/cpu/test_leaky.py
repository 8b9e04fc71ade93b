"""Leaky ReLUs of sums in registers against numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from graphtheory.ops.backends.cpu.vector import leaky
from graphtheory.ops.backends.cpu.vector.leaky import words_of

SIZES = [1, 3, 15, 16, 17, 31, 32, 100, 128, 200]
AT = 3  # numbers before those that are asked for


@njit
def dot(slope, x, y, z, att, n):
    return leaky.leaky_dot(slope, x, AT, y, AT, z, AT, att, AT, n)


@njit
def gradients(ups, slope, x, y, z, att, bits, flows, of_y, of_att, n):
    leaky.leaky_gradients(
        ups, slope, x, AT, y, AT, z, AT, att[AT:], bits, 1, flows, AT, of_y, of_att, AT, n
    )


@njit
def add_where(out, bits, x, words):
    leaky.add_where(out, 0, bits, 1, x, 0, words)


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
    signs = np.unpackbits(bits[1:-1].view(np.uint8), bitorder="little").astype(bool)
    assert (signs[:n] == (total > 0)).all() and not signs[n:].any()
    assert bits[0] == bits[-1] == 7


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_are_added_where_a_bit_is_set(dtype: type) -> None:
    signs = np.random.default_rng(0).random(48) < 0.5
    bits = np.zeros(4, np.int16)
    bits[1:] = np.packbits(signs, bitorder="little").view(np.int16)
    x = np.where(signs, np.arange(48), np.nan).astype(dtype)
    out = np.ones(64, dtype)
    add_where(out, bits, x, 3)
    assert (out[:48] == np.where(signs, 1 + np.arange(48), 1)).all() and (out[48:] == 1).all()


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
