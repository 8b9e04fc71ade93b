"""Uniform draws of sources, row by row."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from graphtheory import Neighborhood
from graphtheory.patterns import GraphSAGE, KHop, Sample, pair_distance
from graphtheory.patterns import draw as uniform
from graphtheory.structure import shortest_path_distance
from tests.patterns.laws import GRAPHS, both_ways, pairs, source


def long_path(nodes: int) -> Neighborhood:
    return Neighborhood.from_edge_index(both_ways([(i, i + 1) for i in range(nodes - 1)]), nodes)


def weighted(graph: Neighborhood) -> Neighborhood:
    return graph.replace(weight=torch.rand(graph.num_edges, generator=source()))


@pytest.mark.parametrize("floyd", [0, 64])
@pytest.mark.parametrize("whole_graph", [False, True])
def test_every_subset_is_equally_likely(whole_graph, floyd, monkeypatch) -> None:
    # Target 0 of 4 nodes: 2 of the others, or 2 of all. With 0 by sorting, else by drawing.
    monkeypatch.setattr(uniform, "_FLOYD", floyd)
    clique = Neighborhood.from_edge_index(both_ways([(0, 1), (0, 2), (0, 3)]), 4)
    drawn, counts = source(), dict[tuple[int, ...], int]()
    for _ in range(1200):
        out = Sample(2, whole_graph=whole_graph)(clique, generator=drawn)
        row = tuple(sorted(out.indices[: out.indptr[1]].tolist()))
        counts[row] = counts.get(row, 0) + 1
    assert len(counts) == (6 if whole_graph else 3)
    assert chisquare(list(counts.values())).pvalue > 1e-4


@pytest.mark.parametrize("floyd", [0, 64])
def test_some_rows_are_drawn_as_if_they_were_a_graph(floyd, monkeypatch) -> None:
    monkeypatch.setattr(uniform, "_FLOYD", floyd)
    ball = weighted(KHop(2)(GRAPHS["random directed"]))
    nodes = torch.tensor([4, 1, 4, 0])
    whole, alone = Sample(3)(ball.rows(nodes), generator=source()), Sample(3)
    rows = alone.on_rows(ball, nodes, generator=source())
    for name in ("indptr", "indices", "weight", "distance", "perm"):
        assert torch.equal(getattr(rows, name), getattr(whole, name))


def test_short_rows_stay_whole_and_weights_distances_and_positions_stay() -> None:
    ball = weighted(KHop(2)(GRAPHS["random directed"]))
    drawn = Sample(2)(ball, generator=source())
    assert pairs(drawn) < pairs(ball)
    graph = GRAPHS["clique"]
    few = Sample(2)(graph, generator=source())
    given = graph.edge_index()[:, torch.argsort(graph.perm)]
    assert torch.equal(given[:, few.perm], few.edge_index())
    graph = weighted(GRAPHS["random directed"])
    for pattern in (Sample(100), GraphSAGE(100)):
        assert pairs(pattern(graph, generator=source())) == pairs(graph)


def test_whole_graph_ignores_the_edges_and_includes_the_unreachable() -> None:
    graph = GRAPHS["isolated node"]
    everyone = Sample(99, whole_graph=True)(graph, generator=source())
    assert everyone.degree().tolist() == [4, 4, 4, 4]
    order = everyone.edge_index()[0] + 4 * everyone.edge_index()[1]
    hops = everyone.distance[torch.argsort(order)].view(4, 4)
    assert torch.equal(hops, shortest_path_distance(graph))
    assert hops[2].tolist() == [255, 255, 0, 255]


@pytest.mark.parametrize("table_bytes", [0, 2**30])
def test_pair_distance_by_table_and_by_search(table_bytes, monkeypatch) -> None:
    monkeypatch.setattr(uniform, "_TABLE_BYTES", table_bytes)
    ends = torch.tensor([[0, 39, 7, 0], [39, 0, 7, 1]])
    assert pair_distance(long_path(40), ends).tolist() == [39, 39, 0, 1]


def test_distance_table_is_made_once_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(*args: object, **options: object) -> torch.Tensor:
        made.append(args)
        return shortest_path_distance(*args, **options)

    monkeypatch.setattr(uniform, "shortest_path_distance", counted)
    graph = long_path(5)
    for _ in range(3):
        Sample(2, whole_graph=True)(graph, generator=source())
    assert len(made) == 1
    Sample(2, whole_graph=True)(long_path(5), generator=source())
    assert len(made) == 2


def test_draws_without_a_generator_follow_torch() -> None:
    state = torch.get_rng_state()
    first = Sample(2)(GRAPHS["clique"]).indices
    torch.set_rng_state(state)
    assert torch.equal(Sample(2)(GRAPHS["clique"]).indices, first)


@pytest.mark.parametrize("n", [0, -3, 2.5])
def test_number_of_sources_out_of_range(n: int) -> None:
    with pytest.raises(ValueError, match=f"n: got {n}, expected a whole number of sources"):
        Sample(n)


@pytest.mark.parametrize("limit", [torch.arange(50) % 31 + 9, 12])
def test_distinct_draws_are_the_same_compiled_with_a_table_and_without(limit, monkeypatch) -> None:
    def draw() -> torch.Tensor:
        return uniform.distinct(50, 9, limit, source(), torch.device("cpu"))

    found = draw()
    assert all(len(set(row)) == 9 for row in found.tolist()) and bool((found >= 0).all())
    assert bool((found.max(1).values < limit).all())

    def on_any_device(draws: np.ndarray, limit: np.ndarray, highest: int) -> np.ndarray:
        return uniform._floyd(torch.from_numpy(draws), torch.from_numpy(limit), highest).numpy()

    monkeypatch.setattr(uniform, "floyd", on_any_device)
    for room in (0, 2**26):
        monkeypatch.setattr(uniform, "_SEEN_BYTES", room)
        assert torch.equal(draw(), found)


def test_no_rows_all_of_a_row_and_a_draw_that_is_that_of_sample() -> None:
    cpu = torch.device("cpu")
    assert uniform.distinct(0, 3, torch.empty(0, dtype=torch.int64), source(), cpu).shape == (0, 3)
    every = uniform.distinct(4, 5, 5, source(), cpu).sort(1).values
    assert torch.equal(every, torch.arange(5).expand(4, 5))
    graph = GRAPHS["random directed"]
    drawn, plain = (p(graph, generator=source()) for p in (GraphSAGE(2), Sample(2)))
    assert torch.equal(drawn.edge_index(), plain.edge_index())


def test_weights_make_up_for_who_is_missing_and_sizes_are_in_range() -> None:
    drawn = GraphSAGE(2)(GRAPHS["star"], generator=source())
    assert drawn.degree().tolist() == [2, 1, 1, 1, 1, 1, 1]
    assert drawn.weight.tolist() == [3.0, 3.0, *[1.0] * 6]
    with pytest.raises(ValueError, match="n: got 0, expected a whole number of sources"):
        GraphSAGE(0)
    with pytest.raises(TypeError, match="generator: got int"):
        GraphSAGE(2)(GRAPHS["star"], generator=0)
