"""Products of matrices in a cache against numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from graphtheory.ops.backends.cpu.vector.products import TILE, matrix, multiply, whole

SIZES = [(1, 1, 1), (7, 63, 5), (6, 16, 16), (63, 7, 257), (66, 197, 64), (257, 20, 33)]


@njit
def product(x, y, n, depth, m, turned, times):
    """Entries in the order of `matrix`, all else NaN."""
    left = matrix(depth, n, x) if turned else matrix(n, depth, x)
    right, out = matrix(depth, m, x), matrix(n, m, x)
    left[:], right[:], out[:] = np.nan, np.nan, np.nan
    right[:depth, :m] = y
    if turned:
        left[:depth, :n] = x.T
    else:
        left[:n, :depth] = x
    for more in range(times):
        if turned:
            multiply(left.T, right, out, n, depth, m, more > 0)
        else:
            multiply(left, right, out, n, depth, m, more > 0)
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("n", "depth", "m"), SIZES)
def test_it_is_the_product(n: int, depth: int, m: int, turned: bool, dtype: type) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(dtype) for shape in ((n, depth), (depth, m)))
    close = {"rtol": 0, "atol": 100 * np.finfo(dtype).eps * depth**0.5}
    for times in (1, 2):
        out = product(x, y, n, depth, m, turned, times)
        np.testing.assert_allclose(out[:n, :m], times * (x.astype(float) @ y), **close)
        assert np.isnan(out[-1]).all()  # beyond the tiles nothing is written


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_a_matrix_share_no_place_of_the_cache(dtype: type) -> None:
    for columns in (1, 16, 17, 64, 128, 200):
        found = matrix(13, columns, np.zeros(1, dtype))
        assert found.shape[0] == 3 * TILE + 1
        assert found.shape[1] >= whole(columns) >= columns
        assert found.strides[0] % 128 == 64
        assert not found.any()
