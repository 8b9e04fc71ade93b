"""The loops are plain Python too: what runs uncompiled must say what the compiled code says."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import TypingError

from graphtheory.ops.backends.cpu.attention import rows as loops
from graphtheory.ops.backends.cpu.decorators import part
from graphtheory.ops.backends.cpu.launch import _NEXT, _compiled, turns
from graphtheory.ops.backends.cpu.vector import lanes

INDPTR = np.array([0, 0, 3, 4, 6])
INDICES = np.array([2, 0, 2, 1, 3, 3])
T_INDPTR, TARGETS, PERM = np.array([0, 1, 2, 4, 6]), np.array([1, 2, 1, 1, 3, 3]), np.array(
    [1, 3, 0, 2, 4, 5]
)  # fmt: skip
BUCKET = np.array([0, 1, 1, 0, 2, 1])


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def none(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan)


NODES, EDGES = (4, 2, 3), (6, 2)
WEIGHTS = np.abs(draw(*EDGES))
CHUNKS = 5  # of ten rows and edges: rows are cut
CALLS: dict[str, tuple[tuple[object, ...], Callable[[], tuple[np.ndarray, ...]]]] = {
    "edge_dot": ((INDPTR, INDICES, draw(*NODES), draw(*NODES) + 1), lambda: (none(*EDGES),)),
    "softmax": (
        (INDPTR, draw(*EDGES), draw(*EDGES) + 1, BUCKET, draw(3, 2), 0.5),
        lambda: (none(*EDGES),),
    ),
    "softmax_backward": (
        (INDPTR, WEIGHTS, draw(*EDGES), BUCKET, 0.25, 9),
        lambda: (none(*EDGES), np.zeros((CHUNKS, 6))),  # which are added to
    ),
    "aggregate": (
        (T_INDPTR, TARGETS, PERM, WEIGHTS, draw(*NODES), 0.5, 0.25, 9),
        lambda: (none(*NODES), np.full(CHUNKS, -2), np.zeros((CHUNKS, 2, 3))),
    ),
}


@part
def allocate(n):
    return np.empty(n)


def test_parts_count_no_references() -> None:
    with pytest.raises(TypingError, match="array passed into the function"):  # as none is made
        allocate(3)


def test_every_loop_is_called_here() -> None:
    plain = {
        n
        for n, f in inspect.getmembers(loops, inspect.isfunction)
        if f.__module__ == loops.__name__
    }
    assert set(CALLS) | {"count_chunks", "merge"} == plain


@pytest.mark.parametrize("name", CALLS)
def test_python_and_machine_code_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, (inputs, outputs) = getattr(loops, name), CALLS[name]
    python, machine = outputs(), outputs()
    _compiled(loop)(turns(), CHUNKS, *inputs, *machine)
    for part_name, function in vars(loops).copy().items():
        if getattr(function, "__module__", "") == loops.__name__ and hasattr(function, "py_func"):
            monkeypatch.setattr(loops, part_name, function.py_func)
    loop(turns(), CHUNKS, *inputs, *python)
    for ours, theirs in zip(python, machine, strict=True):
        assert np.isfinite(ours).all()
        np.testing.assert_allclose(theirs, ours, rtol=1e-12, atol=1e-14)


@given(st.lists(st.integers(0, 300), max_size=200), st.integers(1, 40))
def test_chunks_cover_rows_and_edges_once_in_equal_parts(degrees: list[int], chunks: int) -> None:
    indptr = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)])
    first = [loops.first_row(indptr, chunk, chunks) for chunk in range(chunks + 1)]
    assert (first[0], first[-1]) == (0, len(degrees))
    assert first == sorted(first)
    items, seen = len(degrees) + sum(degrees), []
    for chunk in range(chunks):
        begin, end = (loops.first_item(indptr, c, chunks) for c in (chunk, chunk + 1))
        assert end - begin <= items // chunks + 1
        for i in range(max(first[chunk] - 1, 0), len(degrees)):
            if indptr[i] + i >= end:
                break
            seen += range(*loops.cut(indptr, i, begin, end))
    assert seen == list(range(sum(degrees)))


def test_a_hub_is_shared_out_and_summed_in_one_order() -> None:
    indptr, indices = np.array([0, 1, 1001, 1001]), np.arange(1001) % 7
    weights, value = draw(1001, 2), draw(7, 2, 3)
    true = np.zeros((3, 2, 3))
    np.add.at(true, np.repeat([0, 1, 2], np.diff(indptr)), weights[:, :, None] * value[indices])
    nothing = np.empty(0, np.int64)
    for starts in ([0], [5, 2, 0]):  # chunks 5 to 7 before 2 to 4, and those before 0 and 1
        out, carried, carry = none(3, 2, 3), np.full(8, -2), none(8, 2, 3)
        for start in starts:
            counters = turns()
            counters[_NEXT] = start
            _compiled(loops.aggregate)(
                counters, 8, indptr, indices, nothing, weights, value, 1.0, 0.0, 0,
                out, carried, carry,
            )  # fmt: skip
        _compiled(loops.merge)(turns(), 8, carried, carry, out)
        assert (carried == 1).sum() >= 6
        np.testing.assert_allclose(out, true, rtol=1e-12, atol=1e-12)
        bits = out if starts == [0] else bits  # noqa: F821
        assert np.array_equal(out, bits)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exponential(dtype: type) -> None:
    x = np.linspace(-86, 60, 4001)
    x = np.concatenate([x, [0.0, -1e-8, 1e-8, -500, -np.inf]]).astype(dtype)
    with np.errstate(under="ignore"):
        true = np.exp(x.astype(np.float64))
    out = x.copy()
    lanes.exp(out, 0, len(out))
    np.testing.assert_allclose(out, true, rtol=2e-7 if dtype == np.float32 else 1e-15, atol=2e-38)
    assert out[-1] == 0
    unknown = np.full(31, np.nan, dtype)
    lanes.exp(unknown, 0, 31)
    assert np.isnan(unknown).all()


def leaky(x: np.ndarray, slope: float) -> np.ndarray:
    return np.where(x > 0, x, x * slope)


LANES: dict[str, tuple[Callable[..., None], Callable[..., np.ndarray]]] = {
    "put": (lanes.put, lambda old, w, x: w * x),
    "add": (lanes.add, lambda old, w, x: old + w * x),
    "add_product": (lanes.add_product, lambda old, x, y: old + x * y),
    "multiply": (lanes.multiply, lambda old, x: old * x),
    "subtract": (lanes.subtract, lambda old, x: old - x),
    "raise_to": (lanes.raise_to, lambda old, x: np.maximum(old, x)),
    "softmax_slope": (lanes.softmax_slope, lambda old, x, y: x * (old - y)),
    "invert": (lanes.invert, lambda old: 1 / old),
    "clear": (lanes.clear, lambda old: 0 * old),
    "leaky_sum": (lanes.leaky_sum, lambda old, w, x, y, z: leaky(x + y + z, w)),
    "leaky_flow": (
        lanes.leaky_flow,
        lambda old, w, x, y, z: np.where(x + y + z > 0, old, old * w),
    ),
}


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 32, 33, 47])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lanes(n: int, dtype: type) -> None:
    x, y, z = (draw(size).astype(dtype) for size in (60, 61, 63))
    exact = 1e-5 if dtype == np.float32 else 1e-13
    u, v = x[5 : 5 + n], y[7 : 7 + n]
    assert lanes.dot(x, 5, y, 7, n) == pytest.approx((u * v).sum(), abs=exact)
    assert lanes.largest(x, 5, n) == np.abs(u).max()
    given = {"w": [dtype(0.5)], "x": [x, 5], "y": [y, 7], "z": [z, 2]}
    for name, (function, formula) in LANES.items():
        names = list(inspect.signature(formula).parameters)[1:]
        out = draw(62).astype(dtype)
        true = out.copy()
        values = {"w": dtype(0.5), "x": u, "y": v, "z": z[2 : 2 + n]}
        true[3 : 3 + n] = formula(true[3 : 3 + n], *(values[k] for k in names))
        function(out, 3, *(part for k in names for part in given[k]), n)
        np.testing.assert_allclose(out, true, rtol=exact, atol=exact, err_msg=name)


def test_lanes_of_no_numbers_and_of_special_ones() -> None:
    x = np.array([np.nan, -np.inf, 0.0, -3.0])
    assert lanes.dot(x, 0, x, 0, 0) == 0 == lanes.largest(x, 0, 0)
    assert lanes.largest(x, 0, 4) == np.inf
    assert lanes.largest(np.array([1.0, np.nan, -2.0]), 0, 3) == 2
    assert lanes.largest(np.array([np.nan, *np.ones(15), -9.0, *np.ones(30)]), 0, 47) == 9
    assert lanes.largest(np.array([*np.ones(16), np.nan, *np.ones(15), 9.0]), 0, 33) == 9
    barred, nothing = x.copy(), np.zeros(4)
    lanes.leaky_sum(barred, 0, 0.0, x, 0, nothing, 0, nothing, 0, 4)
    np.testing.assert_array_equal(barred, [np.nan, -np.inf, 0.0, 0.0])
    lanes.leaky_sum(barred, 0, 0.0, x, 0, -x, 0, np.full(4, -np.inf), 0, 4)
    assert (barred == -np.inf).all()
    for change, true in (
        (lanes.invert, [np.nan, -0.0, 1.0, -1 / 3]),
        (lanes.no_infinity, [np.nan, 0.0, 0.0, -3.0]),
    ):
        out = x.copy()
        change(out, 0, 4)
        np.testing.assert_array_equal(out, true)


def test_a_row_with_nan_leaves_large_rows_of_its_chunk_alone() -> None:
    indptr, logits = np.arange(0, 99, 2), np.zeros((98, 1), np.float32)
    logits[0], logits[16] = np.nan, 200  # which one lane of a vector of 16 sees
    none, nothing, out = np.empty((0, 1), np.float32), np.empty(0, np.uint8), logits.copy()
    _compiled(loops.softmax)(
        turns(), 1, indptr, out, none, nothing, none, np.float32(1), out
    )  # fmt: skip
    assert np.isnan(out[:2]).all()
    true = np.full((96, 1), 0.5)
    true[14:16, 0] = 1, 0
    np.testing.assert_allclose(out[2:], true, atol=1e-30)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_of_small_and_of_large_logits(dtype: type) -> None:
    exact = 1e-6 if dtype == np.float32 else 1e-14
    for size in (1.0, 59.0, 61.0, 300.0):  # without and with a shift
        logits = (draw(*EDGES) * size / np.abs(draw(*EDGES)).max()).astype(dtype)
        logits[4:, 1] = -np.inf  # a row all of which is barred
        none, nothing = np.empty((0, 2), dtype), np.empty(0, np.uint8)
        out = np.empty_like(logits)
        _compiled(loops.softmax)(turns(), 2, INDPTR, logits, none, nothing, none, dtype(1), out)
        for low, high in pairwise(INDPTR):
            part = logits[low:high].astype(np.float64)
            with np.errstate(invalid="ignore"):
                true = np.exp(part - part.max(0, initial=-1e300))
            true = np.nan_to_num(true / np.maximum(true.sum(0), 1e-300))
            np.testing.assert_allclose(out[low:high], true, rtol=0, atol=exact)
