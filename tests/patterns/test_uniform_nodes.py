import pytest
import torch

from graphtheory import bipartite
from graphtheory.patterns import DegreeGroups, UniformNodes
from tests.patterns.laws import GRAPHS, pairs, source, weighted


def test_rows_hear_the_same_nodes_and_weights_grow() -> None:
    drawn = UniformNodes(count=3)(GRAPHS["clique"], generator=source())
    assert len(drawn.indices.unique()) == 3
    torch.testing.assert_close(drawn.weight, torch.full((18,), 7 / 3))


def test_one_degree_group_is_the_same_pattern() -> None:
    nb = weighted(GRAPHS["random directed"])
    one = UniformNodes(share=0.6)(nb, generator=source())
    assert pairs(one) == pairs(DegreeGroups(share=0.6)(nb, generator=source()))


def test_sources_of_a_bipartite_neighborhood() -> None:
    drawn = UniformNodes(count=2)(bipartite([2], [5]), generator=source())
    assert drawn.degree().tolist() == [2, 2] and drawn.weight.tolist() == [2.5] * 4


def test_more_nodes_than_there_are() -> None:
    with pytest.raises(ValueError, match="count: got 8, expected at most the 7 sources"):
        UniformNodes(count=8)(GRAPHS["clique"])
    with pytest.raises(TypeError, match="generator: got str"):
        UniformNodes()(GRAPHS["clique"], generator="seed")
