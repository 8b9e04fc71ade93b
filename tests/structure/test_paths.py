"""Edges along shortest paths: every path is one, and as long as the distance."""

import pytest
import torch

from graphtheory import Neighborhood
from graphtheory.structure import UNREACHABLE, shortest_path_distance, shortest_path_edges
from tests.patterns.laws import GRAPHS


def check(edge_index: torch.Tensor, nodes: int, steps: int) -> None:
    graph = Neighborhood.from_edge_index(edge_index, nodes)
    paths = shortest_path_edges(graph, steps)
    hops = shortest_path_distance(graph, cutoff=254)
    assert paths.shape == (nodes, nodes, steps)
    for n in range(nodes):
        for s in range(nodes):
            known = paths[n, s].tolist()
            if hops[n, s] == UNREACHABLE:
                assert known == [-1] * steps
                continue
            length = int(hops[n, s])
            assert known[length:] == [-1] * len(known[length:])
            at = n
            for edge in known[:length]:  # from the target backward
                assert int(edge_index[1, edge]) == at
                at = int(edge_index[0, edge])
            if length <= steps:
                assert at == s
            else:  # the rest is as long as the distance says
                assert hops[at, s] == length - steps


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_paths_of_random_graphs(steps) -> None:
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        nodes = 1 + 3 * seed
        edges = torch.randint(nodes, (2, 2 * nodes), generator=generator)
        check(edges, nodes, steps)


@pytest.mark.parametrize("name", GRAPHS)
def test_paths_of_special_graphs(name) -> None:
    check(GRAPHS[name].edge_index(), GRAPHS[name].num_dst, 4)


def test_same_for_any_threads_and_dtype(two_threads) -> None:
    edges = torch.randint(60, (2, 200), generator=torch.Generator().manual_seed(0))
    graph = Neighborhood.from_edge_index(edges, 60)
    found = shortest_path_edges(graph)
    assert found.dtype == torch.int16
    torch.set_num_threads(1)
    assert torch.equal(shortest_path_edges(graph), found)
    assert torch.equal(shortest_path_edges(graph.to_int32()), found)
    many = torch.randint(3, (2, 2**15 + 1), generator=torch.Generator().manual_seed(0))
    many = shortest_path_edges(Neighborhood.from_edge_index(many, 3), 1)
    assert many.dtype == torch.int32


def test_wrong_input_is_refused() -> None:
    graph = GRAPHS["path"]
    with pytest.raises(ValueError, match="max_steps: got 0"):
        shortest_path_edges(graph, 0)
    with pytest.raises(TypeError, match="graph: got Tensor"):
        shortest_path_edges(graph.indices)


@pytest.mark.parametrize(
    ("name", "dtype"), [(2**15 - 1, torch.int16), (2**15, torch.int32), (2**31 - 1, torch.int32)]
)
def test_names_of_edges_fit_the_type(name: int, dtype: torch.dtype) -> None:
    edges = torch.tensor([0, 0, 1]), torch.tensor([0])
    paths = shortest_path_edges(Neighborhood(*edges, 2, perm=torch.tensor([name])), 1)
    assert paths.dtype == dtype
    assert paths.flatten().tolist() == [-1, -1, name, -1]


def test_five_steps_are_kept_by_default() -> None:
    chain = Neighborhood.from_edge_index(torch.stack([torch.arange(9), torch.arange(1, 10)]))
    assert shortest_path_edges(chain)[9, 0].tolist() == [8, 7, 6, 5, 4]
    with pytest.raises(ValueError, match=r"max_steps: got 255, expected hops in 1\.\.254"):
        shortest_path_edges(chain, 255)
    assert shortest_path_edges(chain, 254).shape == (10, 10, 254)
