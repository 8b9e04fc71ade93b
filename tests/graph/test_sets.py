"""Sets of nodes as a fact about edges: what they mean, and what is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphtheory import Neighborhood
from graphtheory.graph.sets import Sets, rows

counts = st.lists(st.integers(0, 5), max_size=5)


def definition(sets: Sets) -> torch.Tensor:
    """Bool [num_dst, num_src]: set by set, targets that see sources."""
    first = torch.zeros(sum(sets.dst), sum(sets.src), dtype=torch.bool)
    row = column = 0
    for dst, src in zip(sets.dst, sets.src, strict=True):
        for i in range(dst):
            for j in range(src):
                first[row + i, column + j] = not sets.causal or j <= i
        row, column = row + dst, column + src
    return first


@given(counts, st.booleans(), st.data())
def test_rows_are_the_definition_row_by_row(sizes: list[int], causal: bool, data: Any) -> None:
    other = [data.draw(st.integers(0, 5)) for _ in sizes]
    sets = Sets(tuple(sizes), tuple(sizes if causal else other), causal)
    indptr, indices = rows(sets)
    nb = Neighborhood(indptr, indices, sum(sets.src))
    found = nb.edge_index().flip(0).T
    assert torch.equal(found, definition(sets).nonzero())


@given(counts, st.data())
def test_sizes_come_back_as_given(sizes: list[int], data: Any) -> None:
    dst, src = tuple(sizes), tuple(data.draw(st.integers(0, 2)) for _ in sizes)
    sets = Sets(dst, src)
    assert (sets.dst, sets.src, sets.count) == (dst, src, len(sizes))
    assert (sets.num_dst, sets.num_src) == (sum(dst), sum(src))
    assert sets.num_edges == sum(a * b for a, b in zip(dst, src, strict=True))
    assert sets == Sets(dst, src) and hash(sets) == hash(Sets(dst, src))
    assert sets != Sets((*dst, 1), (*src, 1))


def test_equal_sets_are_stored_once() -> None:
    many = Sets((4,) * 10_000, (3,) * 10_000)
    assert many.runs == ((10_000, 4, 3),) and many.blocks == (10_000, 4, 3)
    assert repr(many) == "Sets(10000 of 4 x 3)"
    assert Sets((2, 2, 1), (2, 2, 1), True).runs == ((2, 2, 2), (1, 1, 1))
    assert Sets((2, 2), (2, 2), True).blocks is None


def test_equal_is_one_size() -> None:
    assert Sets((2, 2), (3, 3)).equal
    assert not Sets((2, 2), (3, 1)).equal
    assert not Sets((2, 1), (3, 3)).equal
    assert not Sets((), ()).equal


def test_transposed_causal_sets_are_none() -> None:
    assert Sets((1, 2), (3, 0)).transpose() == Sets((3, 0), (1, 2))
    assert Sets((1, 2), (1, 2), causal=True).transpose() is None


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (((1, -1), (1, 1)), r"dst: got \(1, -1\), expected a tuple of counts"),
        (((1,), (1.5,)), "src: got"),
        (([1], (1,)), r"dst: got \[1\], expected a tuple"),
        (((1, 2), (3,)), "src: 1 sets, expected 2 as many as dst"),
        (((1,), (2, 3)), "src: 2 sets, expected 1 as many as dst"),
        (((1, 2), (2, 1), True), r"src: got \(2, 1\), expected \(1, 2\) as dst has.*causal"),
    ],
)
def test_what_is_no_set_is_refused(args: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Sets(*args)
