"""Rows by length: every edge in one tile, whatever the degrees; tiles that fit a program."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphtheory.ops.backends.triton import bins as bins


def pointers(degrees: list[int], dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor([0, *degrees]).cumsum(0).to(dtype)


def spans(indptr: torch.Tensor, part: bins.Bin) -> list[tuple[int, int, int]]:
    """(row, first edge, end) of what one launch does, by the rule of the kernels."""
    found = []
    for item in range(part.count):
        row = item if part.rows is None else int(part.rows[item])
        start, stop = int(indptr[row]), int(indptr[row + 1])
        if part.starts is not None:
            start = int(part.starts[item])
            stop = min(start + part.chunk, stop)
        assert stop - start <= 512
        found.append((row, start, stop))
    return found


@given(
    st.lists(st.sampled_from([0, 0, 1, 7, 8, 9, 16, 17, 255, 511, 512, 513, 2000]), max_size=12),
    st.sampled_from([torch.int64, torch.int32]),
)
def test_every_edge_has_one_place(degrees: list[int], dtype: torch.dtype) -> None:
    indptr = pointers(degrees, dtype)
    plan = bins._plan(indptr)
    done = [span for part in plan.bins for span in spans(indptr, part)]
    edges = [e for _, start, stop in done for e in range(start, stop)]
    assert sorted(edges) == list(range(sum(degrees)))
    assert {row for row, *_ in done} == set(range(len(degrees)))  # empty rows are written too
    whole = [row for part in plan.bins if part.starts is None for row, *_ in spans(indptr, part)]
    long = [] if plan.long is None else plan.long.tolist()
    assert sorted([*whole, *long]) == list(range(len(degrees)))


def test_chunks_of_a_row_lie_side_by_side_in_order() -> None:
    indptr = pointers([3, 1100, 2, 513])
    plan = bins._plan(indptr)
    chunks = spans(indptr, plan.bins[0])
    assert plan.long.tolist() == [1, 3] and plan.bounds.tolist() == [0, 3, 5]
    first, second = [(1, 3, 515), (1, 515, 1027), (1, 1027, 1103)], [(3, 1105, 1617)]
    assert chunks == [*first, *second, (3, 1617, 1618)]


def test_a_large_graph_has_shorter_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bins, "_SMALL", 100)
    for degrees, chunk in (([90, 10], 0), ([100, 1], 0), ([129, 1], 128)):
        assert bins._plan(pointers(degrees)).bins[0].chunk == chunk


@pytest.mark.parametrize("degrees", [[3] * 5, [0] * 3, [16, 512, 15]])
def test_short_rows_alone_need_no_numbers(degrees: list[int]) -> None:
    (only,) = bins._plan(pointers(degrees)).bins
    assert (only.count, only.rows, only.starts) == (len(degrees), None, None)
    assert only.edges == bins.power(sum(degrees) // len(degrees))


@pytest.mark.parametrize(
    ("degrees", "order"),
    [([2, 200, 0, 130, 200], [1, 4, 3, 0, 2]), ([2, 128, 0], None), ([513, 200], None)],
)
def test_long_rows_of_a_small_graph_begin_first(degrees, order) -> None:
    part = bins._plan(pointers(degrees)).bins[-1]
    assert (None if part.order is None else part.order.tolist()) == order


def test_a_structure_is_sorted_once() -> None:
    indptr = pointers([1, 2, 30])
    assert bins.plan(indptr) is bins.plan(indptr)


@pytest.mark.parametrize("edges", [1, 8, 64, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [0, 1, 3, 16, 33, 64, 128, 1000, 5000])
@pytest.mark.parametrize("heads", [0, 1, 3, 8, 40])
def test_a_tile_fits_a_program(heads: int, dim: int, dtype: torch.dtype, edges: int) -> None:
    t = bins.tile(heads, dim, dtype, edges)
    sizes = (t.rows, t.edges, t.heads, t.dim, t.warps)
    assert all(size & (size - 1) == 0 for size in sizes)  # powers of two, none is 0
    assert t.dim >= dim and t.edges <= edges and (t.heads == 1 or t.heads * t.dim <= bins._FEATURES)
    numbers = bins._NUMBERS if dtype == torch.float32 else bins._NUMBERS // 2
    assert t.rows * t.edges * t.heads * t.dim <= max(numbers, t.dim)
    assert t.warps == (1 if t.dim <= numbers else t.dim // numbers)


@pytest.mark.parametrize(("heads", "dim", "edges"), [(8, 16, 8), (4, 64, 4), (1, 128, 8)])
def test_common_shapes_keep_all_heads_together(heads: int, dim: int, edges: int) -> None:
    t = bins.tile(heads, dim, torch.float32)
    assert (t.rows, t.edges, t.heads, t.dim) == (1, edges, heads, dim)


def test_while_a_step_is_recorded_unknown_rows_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    known, unknown = (torch.tensor([0, 900, 900, 903]) for _ in range(2))
    chunks = bins.plan(known)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.Tensor, "tolist", None)  # nothing can be read
    assert bins.plan(known) is chunks and chunks.bins[0].chunk > 0
    (whole,) = bins.plan(unknown).bins
    assert (whole.count, whole.rows, whole.chunk) == (3, None, 0)
