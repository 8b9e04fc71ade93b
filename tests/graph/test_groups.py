"""Groups of sets: every node and edge has one place, and padding stays within its set."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphtheory import Neighborhood, bipartite, causal, cliques
from graphtheory.graph.groups import ROUND

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
        assert torch.equal(ends[0], nb.targets()[edge])
        assert torch.equal(ends[1], nb.indices[edge])
        if group.padded is not None:
            assert not exists[group.padded[:, None].expand_as(exists)].any()
        real = (group.rows < nb.num_dst).view(group.sets, -1, 1)
        places.append(edge[real.expand_as(exists)[exists]])
    assert torch.equal(torch.cat(places).sort()[0], torch.arange(nb.num_edges))


def test_sets_of_similar_size_share_a_group() -> None:
    nb = cliques([ROUND, 2 * ROUND, 1, ROUND + 1, 0, 2 * ROUND])
    shapes = [(g.sets, g.dst, g.src) for g in nb.groups()]
    assert shapes == [(2, ROUND, ROUND), (3, 2 * ROUND, 2 * ROUND)]
    assert all(g.padded is not None for g in nb.groups())


def test_sets_share_a_group_where_both_sides_are_of_similar_size() -> None:
    dst, src = [3, 5, 4, ROUND + 1], [ROUND, ROUND + 1, 7, ROUND]
    shapes = [(g.sets, g.dst, g.src) for g in bipartite(dst, src).groups()]
    assert shapes == [(2, 4, ROUND), (1, 5, ROUND + 1), (1, ROUND + 1, ROUND)]


def test_nothing_is_padded_where_sizes_are_equal() -> None:
    nb, equal = cliques([3, 40, 3]), cliques([3, 3])
    assert [(g.sets, g.dst, g.src) for g in nb.groups()] == [(2, 3, 3), (1, 40, 40)]
    assert [(g.sets, g.dst, g.src) for g in equal.groups()] == [(2, 3, 3)]
    assert all(g.padded is None for g in nb.groups())


def test_groups_are_made_once() -> None:
    nb = cliques([3, 2])
    with torch.inference_mode():
        groups, places = nb.groups(), nb.edge_places()
    assert nb.groups() is groups
    assert nb.edge_places() is places
    assert not groups[0].targets.is_inference()
    with pytest.raises(AssertionError):
        Neighborhood(nb.indptr, nb.indices).groups()
