from dataclasses import replace

import pytest
import torch
from torch import Generator

from graphtheory.papers.topology.adjacency import infinity_norm
from graphtheory.papers.topology.training import SAMPLERS, DegreeGroupTask, degree_group_graph
from graphtheory.patterns.draw import derive

TASKS = [
    DegreeGroupTask(sampler, (10, 30), (5, 2), (0.9, 0.1), (0.5, 0.5), sampler)
    for sampler in SAMPLERS
]


def drawn(sizes, degrees, seed=0):
    return degree_group_graph(sizes, degrees, Generator().manual_seed(seed))


def test_graphs_have_the_degrees_asked_for_both_ways_by_their_seed():
    edges, group = drawn((100, 1900), (10, 2))
    degree = torch.bincount(edges[1], minlength=2000).double()
    assert group.tolist() == [0] * 100 + [1] * 1900
    assert degree[:100].mean() == pytest.approx(10, abs=0.5)
    assert degree[100:].mean() == pytest.approx(2, abs=0.1)
    assert int(degree[:100].max()) <= 10 and int(degree[100:].max()) <= 2
    edges, _ = drawn((20, 30), (8, 3))
    pairs = {tuple(pair) for pair in edges.t().tolist()}
    assert len(pairs) == edges.size(1)
    assert all((b, a) in pairs and a != b for a, b in pairs)
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


def test_samplers_and_targets_are_compared_on_the_same_draws():
    first, *others = (task.draw(8, seed=3)[0] for task in TASKS)
    for task in others:
        assert torch.equal(task.x, first.x) and torch.equal(task.labeled, first.labeled)
        assert torch.equal(task.y, first.y)
        assert torch.equal(task.adjacency.indices, first.adjacency.indices)
    other = replace(TASKS[0], p_hat=(0.9, 0.1)).draw(8, seed=3)[0]
    assert torch.equal(other.x, first.x) and not torch.equal(other.y, first.y)
    assert not torch.equal(TASKS[0].draw(8, seed=4)[0].x, first.x)
    more = TASKS[0].draw(12, seed=3)[0].labeled
    assert torch.equal(more[:8], first.labeled)


def test_targets_are_those_of_the_formula():
    task, star = replace(TASKS[0], p_hat=(0.7, 0.2)).draw(8, seed=0)
    scale = torch.tensor([0.7] * 10 + [0.2] * 30)
    dense = task.adjacency.to_dense() * scale
    predicted = task.adjacency.to_dense() * torch.tensor([0.9] * 10 + [0.1] * 30)
    torch.testing.assert_close(star.to_dense(), predicted)
    assert infinity_norm(star) == pytest.approx(float(predicted.sum(1).max()))
    draw = Generator().manual_seed(derive(0))  # the graph comes first, then X, W* and C*
    degree_group_graph((10, 30), (5, 2), draw)
    x, w, c = (torch.randn(shape, generator=draw) for shape in ((40, 10), (10, 10), (10, 2)))
    hidden = dense @ x @ w
    assert torch.equal(task.x, x)
    torch.testing.assert_close(task.y, (hidden.sin() * hidden.tanh()) @ c)
