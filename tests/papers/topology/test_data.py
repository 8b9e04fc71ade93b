import pytest
import torch
from torch import Generator

from graphtheory.papers.topology.data import degree_group_graph


def drawn(sizes, degrees, seed=0):
    return degree_group_graph(sizes, degrees, Generator().manual_seed(seed))


def test_degrees_are_about_those_asked_for():
    edges, group = drawn((100, 1900), (10, 2))
    degree = torch.bincount(edges[1], minlength=2000).double()
    assert group.tolist() == [0] * 100 + [1] * 1900
    assert degree[:100].mean() == pytest.approx(10, abs=0.5)
    assert degree[100:].mean() == pytest.approx(2, abs=0.1)
    assert int(degree[:100].max()) <= 10 and int(degree[100:].max()) <= 2


def test_edges_go_both_ways_once_and_are_no_loops():
    edges, _ = drawn((20, 30), (8, 3))
    pairs = {tuple(pair) for pair in edges.t().tolist()}
    assert len(pairs) == edges.size(1)
    assert all((b, a) in pairs and a != b for a, b in pairs)


def test_the_seed_decides():
    assert torch.equal(drawn((9, 9), (3, 2))[0], drawn((9, 9), (3, 2))[0])
    assert not torch.equal(drawn((9, 9), (3, 2))[0], drawn((9, 9), (3, 2), seed=1)[0])


@pytest.mark.parametrize(
    ("sizes", "degrees", "message"),
    [
        ((3,), (1, 1), "degrees: got 2 for 1 groups"),
        ((), (), "degrees: got 0 for 0 groups"),
        ((0, 3), (1, 1), "sizes: got 0, expected a whole number from 1 on"),
        ((3, 3), (1, -1), "degrees: got -1, expected a whole number from 0 on"),
        ((3, 3), (6, 1), "degrees: got 6, expected below the 6 nodes"),
    ],
)
def test_what_cannot_be_drawn_is_refused(sizes, degrees, message):
    with pytest.raises(ValueError, match=message):
        drawn(sizes, degrees)
