"""The loops are plain Python too: what runs uncompiled must say what the compiled code says."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphtheory.ops.backends import _numba_kernels as loops
from graphtheory.ops.backends._launch import _compiled

INDPTR = np.array([0, 0, 3, 4, 6])
INDICES = np.array([2, 0, 2, 1, 3, 3])
T_INDPTR, RECEIVERS, PERM = np.array([0, 1, 2, 4, 6]), np.array([1, 2, 1, 1, 3, 3]), np.array(
    [1, 3, 0, 2, 4, 5]
)  # fmt: skip
BUCKET = np.array([0, 1, 1, 0, 2, 1], dtype=np.uint8)


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def none(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan)


NODES, EDGES = (4, 2, 3), (6, 2)
WEIGHTS = np.abs(draw(*EDGES))
CALLS: dict[str, tuple[tuple[object, ...], Callable[[], tuple[np.ndarray, ...]]]] = {
    "edge_dot": ((INDPTR, INDICES, draw(*NODES), draw(*NODES) + 1), lambda: (none(*EDGES),)),
    "softmax": (
        (INDPTR, draw(*EDGES), draw(*EDGES) + 1, BUCKET, draw(3, 2), 0.5),
        lambda: (none(*EDGES),),
    ),
    "softmax_backward": (
        (INDPTR, WEIGHTS, draw(*EDGES), BUCKET, 0.25, 9),
        lambda: (none(*EDGES), none(loops.CHUNKS, 3, 2)),
    ),
    "aggregate": (
        (T_INDPTR, RECEIVERS, PERM, WEIGHTS, draw(*NODES), 0.5, 0.25, 9),
        lambda: (none(*NODES),),
    ),
}


def test_every_loop_is_called_here() -> None:
    plain = {
        n
        for n, f in inspect.getmembers(loops, inspect.isfunction)
        if f.__module__ == loops.__name__
    }
    assert set(CALLS) == plain


@pytest.mark.parametrize("name", CALLS)
def test_python_and_machine_code_agree(name: str) -> None:
    loop, (inputs, outputs) = getattr(loops, name), CALLS[name]
    python, machine = outputs(), outputs()
    loop(0, loops.CHUNKS, *inputs, *python)
    _compiled(loop)(0, loops.CHUNKS, *inputs, *machine)
    for ours, theirs in zip(python, machine, strict=True):
        assert np.isfinite(ours).all()
        np.testing.assert_allclose(theirs, ours, rtol=1e-12, atol=1e-14)


@given(st.lists(st.integers(0, 300), max_size=200))
def test_chunks_cover_the_rows_in_order(degrees: list[int]) -> None:
    indptr = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)])
    first = [loops.first_row(indptr, chunk) for chunk in range(loops.CHUNKS + 1)]
    assert first[0] == 0
    assert first[-1] == len(degrees)
    assert first == sorted(first)
    total, heaviest = len(degrees) + sum(degrees), max(degrees, default=0) + 1
    for start, stop in itertools.pairwise(first):
        work = stop - start + indptr[stop] - indptr[start]
        assert work <= total / loops.CHUNKS + heaviest + 1
