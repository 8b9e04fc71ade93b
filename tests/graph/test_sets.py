"""Sets of nodes as a fact about edges, and as dense groups: what they mean, and what is none."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphtheory import Neighborhood, bipartite, causal, cliques
from graphtheory.graph.sets import ROUND, Sets, rows

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


def test_equal_sets_are_stored_once_and_transposed_causal_ones_are_none() -> None:
    many = Sets((4,) * 10_000, (3,) * 10_000)
    assert many.runs == ((10_000, 4, 3),) and many.blocks == (10_000, 4, 3)
    assert repr(many) == "Sets(10000 of 4 x 3)"
    assert Sets((2, 2, 1), (2, 2, 1), True).runs == ((2, 2, 2), (1, 1, 1))
    assert Sets((2, 2), (2, 2), True).blocks is None and Sets((2, 2), (3, 3)).equal
    assert not Sets((2, 2), (3, 1)).equal and not Sets((2, 1), (3, 3)).equal
    assert not Sets((), ()).equal and Sets((1, 2), (3, 0)).transpose() == Sets((3, 0), (1, 2))
    assert Sets((1, 2), (1, 2), causal=True).transpose() is None


@pytest.mark.parametrize(("args", "words"), [
    (((1, -1), (1, 1)), r"dst: got \(1, -1\), expected a tuple of counts"),
    (((1,), (1.5,)), "src: got"),
    (([1], (1,)), r"dst: got \[1\], expected a tuple"),
    (((1, 2), (3,)), "src: 1 sets, expected 2 as many as dst"),
    (((1,), (2, 3)), "src: 2 sets, expected 1 as many as dst"),
    (((1, 2), (2, 1), True), r"src: got \(2, 1\), expected \(1, 2\) as dst has.*causal"),
])  # fmt: skip
def test_what_is_no_set_is_refused(args: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Sets(*args)


sizes = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=6)


def ragged(pairs: list[tuple[int, int]], look_back: bool) -> Neighborhood:
    dst, src = [a for a, _ in pairs] + [1, 2], [b for _, b in pairs] + [2, 1]
    return causal(dst) if look_back else bipartite(dst, src)


def set_of(sizes: tuple[int, ...]) -> torch.Tensor:
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))


@given(sizes, st.booleans())
def test_every_row_with_edges_has_one_place(pairs: list[tuple[int, int]], look_back: bool) -> None:
    nb = ragged(pairs, look_back)
    rows = torch.cat([g.rows for g in nb.groups()])
    found = rows[rows < nb.num_dst].sort()[0]
    has_edges = torch.tensor(nb.sets.src)[set_of(nb.sets.dst)] > 0
    assert torch.equal(found, has_edges.nonzero().flatten())
    for group in nb.groups():
        real = group.rows < nb.num_dst
        assert torch.equal(group.rows[real], group.targets[real])


@given(sizes, st.booleans())
def test_every_edge_has_one_place_in_its_set(pairs: list[tuple[int, int]], look_back: bool) -> None:
    nb = ragged(pairs, look_back)
    places = []
    for group, edge in zip(nb.groups(), nb.edge_places(), strict=True):
        target = group.targets.view(group.sets, -1, 1)
        source = group.sources.view(group.sets, 1, -1)
        assert (set_of(nb.sets.dst)[target] == set_of(nb.sets.src)[source]).all()
        exists = (edge < nb.num_edges).view(group.sets, group.dst, group.src)
        ends = [t.expand_as(exists)[exists] for t in (target, source)]
        edge = edge[edge < nb.num_edges]
        assert torch.equal(ends[0], nb.targets()[edge]) and torch.equal(ends[1], nb.indices[edge])
        if group.padded is not None:
            assert not exists[group.padded[:, None].expand_as(exists)].any()
        real = (group.rows < nb.num_dst).view(group.sets, -1, 1)
        places.append(edge[real.expand_as(exists)[exists]])
    assert torch.equal(torch.cat(places).sort()[0], torch.arange(nb.num_edges))


def test_sets_share_a_group_where_both_sides_are_of_similar_size() -> None:
    nb = cliques([ROUND, 2 * ROUND, 1, ROUND + 1, 0, 2 * ROUND])
    shapes = [(g.sets, g.dst, g.src) for g in nb.groups()]
    assert shapes == [(2, ROUND, ROUND), (3, 2 * ROUND, 2 * ROUND)]
    assert all(g.padded is not None for g in nb.groups())
    dst, src = [3, 5, 4, ROUND + 1], [ROUND, ROUND + 1, 7, ROUND]
    shapes = [(g.sets, g.dst, g.src) for g in bipartite(dst, src).groups()]
    assert shapes == [(2, 4, ROUND), (1, 5, ROUND + 1), (1, ROUND + 1, ROUND)]
    nb, equal = cliques([3, 40, 3]), cliques([3, 3])
    assert [(g.sets, g.dst, g.src) for g in nb.groups()] == [(2, 3, 3), (1, 40, 40)]
    assert [(g.sets, g.dst, g.src) for g in equal.groups()] == [(2, 3, 3)]
    assert all(g.padded is None for g in nb.groups())


def test_groups_are_made_once() -> None:
    nb = cliques([3, 2])
    with torch.inference_mode():
        groups, places = nb.groups(), nb.edge_places()
    assert nb.groups() is groups and nb.edge_places() is places
    assert not groups[0].targets.is_inference()
    with pytest.raises(AssertionError):
        Neighborhood(nb.indptr, nb.indices).groups()
