"""How samplers draw nodes, and samplers of nodes for the whole layer."""

import pytest
import torch

from graphtheory import bipartite
from graphtheory.patterns import DegreeGroups, UniformNodes
from graphtheory.patterns.draw import first_of_each, ranks, scale_columns
from tests.patterns.laws import GRAPHS, pairs, source, weighted


def test_ranks_are_a_permutation_of_each_group() -> None:
    group = torch.tensor([1, 0, 1, 1, 0])
    rank = ranks(group, source(), torch.device("cpu"))
    assert sorted(rank[group == 0].tolist()) == [0, 1]
    assert sorted(rank[group == 1].tolist()) == [0, 1, 2]


@pytest.mark.parametrize("groups", [3, 20])
def test_the_first_of_each_group_are_those_of_the_lowest_ranks(groups: int) -> None:
    group = torch.arange(200) % groups
    size = torch.arange(groups) % 7
    found = first_of_each(group, size, source(), torch.device("cpu"))
    assert torch.equal(found, ranks(group, source(), torch.device("cpu")) < size[group])
    assert torch.bincount(group[found], minlength=groups).tolist() == size.tolist()


@pytest.mark.parametrize(("count", "share", "message"), [
    (3, 0.5, "count: got 3 together with share=0.5"),
    (0, None, "count: got 0, expected a whole number of nodes, at least 1"),
    (2.5, None, "count: got 2.5"),
    (None, 0.0, "share: got 0.0, expected a share of the nodes"),
    (None, 1.1, "share: got 1.1"),
])  # fmt: skip
def test_sizes_out_of_range(count: int | None, share: float | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UniformNodes(count, share)


def test_sizes_of_a_sample_and_columns_of_factor_zero() -> None:
    assert UniformNodes().size(7) == 4 and UniformNodes(share=0.01).size(7) == 1
    assert UniformNodes(30).size(7) == 30
    with pytest.raises(ValueError, match="count: got 30, expected at most the 7 sources"):
        UniformNodes(30).size(7, distinct=True)
    with pytest.raises(ValueError, match="count: got 8, expected at most the 7 sources"):
        UniformNodes(count=8)(GRAPHS["clique"])
    with pytest.raises(TypeError, match="generator: got str"):
        UniformNodes()(GRAPHS["clique"], generator="seed")
    star = GRAPHS["star"]
    out = scale_columns(star, torch.tensor([0.0, 2, 2, 2, 2, 2, 3]))
    assert out.num_edges == 6 and out.weight.tolist() == [2.0] * 5 + [3.0]


def test_rows_hear_the_same_nodes_and_one_degree_group_is_the_same_pattern() -> None:
    drawn = UniformNodes(count=3)(GRAPHS["clique"], generator=source())
    assert len(drawn.indices.unique()) == 3
    torch.testing.assert_close(drawn.weight, torch.full((18,), 7 / 3))
    nb = weighted(GRAPHS["random directed"])
    one = UniformNodes(share=0.6)(nb, generator=source())
    assert pairs(one) == pairs(DegreeGroups(share=0.6)(nb, generator=source()))


def test_sources_of_a_bipartite_neighborhood() -> None:
    drawn = UniformNodes(count=2)(bipartite([2], [5]), generator=source())
    assert drawn.degree().tolist() == [2, 2] and drawn.weight.tolist() == [2.5] * 4
