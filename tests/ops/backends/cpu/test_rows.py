"""The loops are plain Python too: what runs uncompiled must say what the compiled code says.

What a compiled loop calls is compiled into it: bits depend on nothing compiled before.
"""

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import TypingError, njit
from numba.core.dispatcher import Dispatcher

from graphtheory.ops.backends import cpu
from graphtheory.ops.backends.cpu import launch
from graphtheory.ops.backends.cpu.attention import rows as loops
from graphtheory.ops.backends.cpu.compiling import MATH, part
from graphtheory.ops.backends.cpu.launch import _COUNTERS, _NEXT, _compiled
from tests.ops.backends.cpu.test_vector import run_as_python

INDPTR = np.array([0, 0, 3, 4, 6])
INDICES = np.array([2, 0, 2, 1, 3, 3])
T_INDPTR, TARGETS = np.array([0, 1, 2, 4, 6]), np.array([1, 2, 1, 1, 3, 3])
PERM = np.array([1, 3, 0, 2, 4, 5])
BUCKET = np.array([0, 1, 1, 0, 2, 1])


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def none(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan)


NODES, EDGES = (4, 2, 3), (6, 2)
WEIGHTS, BIAS, TABLE = np.abs(draw(*EDGES)), draw(*EDGES) + 1, draw(3, 2)
QUERY, KEY, VALUE = draw(*NODES), draw(*NODES) + 1, draw(*NODES) - 1
CHUNKS = 5  # of ten rows and edges: rows are cut
CALLS: dict[str, tuple[tuple[object, ...], Callable[[], tuple[np.ndarray, ...]]]] = {
    "edge_dot": ((INDPTR, INDICES, QUERY, KEY), lambda: (none(*EDGES),)),
    "softmax": ((INDPTR, draw(*EDGES), BIAS, BUCKET, TABLE, 0.5), lambda: (none(*EDGES),)),
    "softmax_backward": (
        (INDPTR, WEIGHTS, draw(*EDGES), BUCKET, 0.25, 9),
        lambda: (none(*EDGES), np.zeros((CHUNKS, 6))),  # which are added to
    ),
    "aggregate": (
        (T_INDPTR, TARGETS, PERM, WEIGHTS, draw(*NODES), 0.5, 0.25, 9),
        lambda: (none(*NODES), np.full(CHUNKS, -2), np.zeros((CHUNKS, 2, 3))),
    ),
    "whole_forward": (
        (INDPTR, INDICES, QUERY, KEY, VALUE, BIAS, BUCKET, TABLE, 0.5, 1.0, 0.25, 9),
        lambda: (none(*EDGES), none(*NODES)),
    ),
    "whole_backward": (
        (
            INDPTR, INDICES, T_INDPTR, TARGETS, PERM, KEY, QUERY, KEY, VALUE, WEIGHTS, BUCKET, 0.5,
            1.0, 0.25, 9,
        ),
        lambda: (none(*EDGES), none(*NODES), np.zeros((CHUNKS, 6)), none(*NODES), none(*NODES)),
    ),
}  # fmt: skip


@part
def allocate(n):
    return np.empty(n)


def test_parts_count_no_references() -> None:
    with pytest.raises(TypingError, match="array passed into the function"):  # as none is made
        allocate(3)


def test_every_loop_is_called_here() -> None:
    plain = dict(inspect.getmembers(loops, inspect.isfunction))
    own = {
        name for name, f in plain.items()
        if f.__module__ == loops.__name__ and "counters" in inspect.signature(f).parameters
    }  # fmt: skip
    assert set(CALLS) | {"merge"} == own


@pytest.mark.parametrize("name", CALLS)
def test_python_and_machine_code_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, (inputs, outputs) = getattr(loops, name), CALLS[name]
    python, machine = outputs(), outputs()
    _compiled(loop)(np.zeros(_COUNTERS, np.int64), CHUNKS, *inputs, *machine)
    for part_name, function in vars(loops).copy().items():
        if getattr(function, "__module__", "") == loops.__name__ and hasattr(function, "py_func"):
            monkeypatch.setattr(loops, part_name, function.py_func)
    run_as_python(loops, monkeypatch)
    loop(np.zeros(_COUNTERS, np.int64), CHUNKS, *inputs, *python)
    for ours, theirs in zip(python, machine, strict=True):
        assert np.isfinite(ours).all()
        np.testing.assert_allclose(theirs, ours, rtol=1e-12, atol=1e-14)


@given(st.lists(st.integers(0, 300), max_size=200), st.integers(1, 40))
def test_chunks_cover_rows_and_edges_once_in_equal_parts(degrees: list[int], chunks: int) -> None:
    indptr = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)])
    first = [launch.first_row(indptr, chunk, chunks) for chunk in range(chunks + 1)]
    assert (first[0], first[-1]) == (0, len(degrees)) and first == sorted(first)
    items, seen = len(degrees) + sum(degrees), []
    for chunk in range(chunks):
        begin, end, start, _, last, low = launch.items_of(indptr, chunk, chunks)
        assert end - begin <= items // chunks + 1
        here = [e for i in range(start, last) for e in range(*launch.cut(indptr, i, begin, end))]
        assert here[:1] in ([], [low])
        seen += here
    assert seen == list(range(sum(degrees)))


def test_a_hub_is_shared_out_and_summed_in_one_order() -> None:
    indptr, indices = np.array([0, 1, 1001, 1001]), np.arange(1001) % 7
    weights, value = draw(1001, 2), draw(7, 2, 3)
    true = np.zeros((3, 2, 3))
    np.add.at(true, np.repeat([0, 1, 2], np.diff(indptr)), weights[:, :, None] * value[indices])
    nothing = np.empty(0, np.int64)
    for starts in ([0], [5, 2, 0]):  # chunks 5 to 7 before 2 to 4, and those before 0 and 1
        out, split_row, partial_sum = none(3, 2, 3), np.full(8, -2), none(8, 2, 3)
        for start in starts:
            counters = np.zeros(_COUNTERS, np.int64)
            counters[_NEXT] = start
            _compiled(loops.aggregate)(
                counters, 8, indptr, indices, nothing, weights, value, 1.0, 0.0, 0,
                out, split_row, partial_sum,
            )  # fmt: skip
        _compiled(loops.merge)(np.zeros(_COUNTERS, np.int64), 8, split_row, partial_sum, out)
        assert (split_row == 1).sum() >= 6
        np.testing.assert_allclose(out, true, rtol=1e-12, atol=1e-12)
        bits = out if starts == [0] else bits  # noqa: F821
        assert np.array_equal(out, bits)


def test_a_row_with_nan_leaves_large_rows_of_its_chunk_alone() -> None:
    indptr, logits = np.arange(0, 99, 2), np.zeros((98, 1), np.float32)
    logits[0], logits[16] = np.nan, 200  # which one lane of a vector of 16 sees
    none, nothing, out = np.empty((0, 1), np.float32), np.empty(0, np.uint8), logits.copy()
    _compiled(loops.softmax)(
        np.zeros(_COUNTERS, np.int64), 1, indptr, out, none, nothing, none, np.float32(1), out
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
        _compiled(loops.softmax)(
            np.zeros(_COUNTERS, np.int64), 2, INDPTR, logits, none, nothing, none, dtype(1), out
        )
        for low, high in pairwise(INDPTR):
            part = logits[low:high].astype(np.float64)
            with np.errstate(invalid="ignore"):
                true = np.exp(part - part.max(0, initial=-1e300))
            true = np.nan_to_num(true / np.maximum(true.sum(0), 1e-300))
            np.testing.assert_allclose(out[low:high], true, rtol=0, atol=exact)


MODULES = [import_module(m.name) for m in walk_packages(cpu.__path__, f"{cpu.__name__}.")]


def called(function: Any) -> Iterator[Dispatcher]:
    for name in function.__code__.co_names:
        found = function.__globals__.get(name)
        if isinstance(found, Dispatcher):
            yield found


def free_to_differ(function: Dispatcher) -> bool:
    """Whether its sums may be reordered, and are so anew in each loop that links a copy of it."""
    options = function.targetoptions
    return bool(options.get("fastmath")) and not options.get("forceinline")


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.partition("cpu.")[2])
def test_what_a_loop_calls_is_part_of_it(module: ModuleType) -> None:
    functions = [getattr(f, "py_func", f) for f in vars(module).values()]
    own = [f for f in functions if getattr(f, "__module__", None) == module.__name__]
    loops = [f for f in own if hasattr(f, "__code__")]
    assert not [(f.__name__, g) for f in loops for g in called(f) if free_to_differ(g)]


def test_a_function_of_its_own_would_be_found() -> None:
    def square(x):
        return x * x

    assert free_to_differ(njit(cache=True, fastmath=MATH)(square))
    assert not free_to_differ(part(square))
