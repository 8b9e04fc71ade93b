"""Resistance distances against networkx, trees and rings; buckets."""

import networkx as nx
import pytest
import torch

from graphtheory import Neighborhood
from graphtheory.structure import resistance_bucket, resistance_distance, shortest_path_distance


def of(graph: nx.Graph) -> torch.Tensor:
    edges = torch.tensor([*graph.edges], dtype=torch.int64).reshape(-1, 2).t()
    return resistance_distance(Neighborhood.from_edge_index(edges, graph.number_of_nodes()))


@pytest.mark.parametrize("seed", range(4))
def test_equals_networkx(seed) -> None:
    graph = nx.connected_watts_strogatz_graph(12, 4, 0.4, seed=seed)
    found, known = of(graph), nx.resistance_distance(graph)
    wanted = torch.tensor(
        [[known[i][j] for j in range(12)] for i in range(12)], dtype=torch.float64
    )
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


def test_hops_in_a_tree_and_a_ring() -> None:
    tree = nx.convert_node_labels_to_integers(nx.balanced_tree(2, 3))
    edges = torch.tensor([*tree.edges]).t()
    both = Neighborhood.from_edge_index(torch.cat([edges, edges.flip(0)], 1), 15)
    hops = shortest_path_distance(both).double()
    torch.testing.assert_close(resistance_distance(both), hops, rtol=1e-9, atol=1e-9)
    ring = of(nx.cycle_graph(6))[0]
    torch.testing.assert_close(ring, torch.tensor([k * (6 - k) / 6 for k in range(6)]).double())


def test_components_duplicates_loops_and_no_nodes() -> None:
    edges = torch.tensor([[0, 0, 2, 2, 1, 4], [2, 2, 0, 2, 4, 1]])
    found = resistance_distance(Neighborhood.from_edge_index(edges, 5))
    assert found[0, 2].item() == pytest.approx(1.0) and found[1, 4].item() == pytest.approx(1.0)
    assert found[0, 1].isinf() and found[3, 0].isinf()
    assert not found.diagonal().any()
    assert torch.equal(found, found.t())
    none = torch.zeros(2, 0, dtype=torch.int64)
    assert resistance_distance(Neighborhood.from_edge_index(none, 0)).shape == (0, 0)


def test_buckets() -> None:
    values = torch.tensor([0.0, 0.24, 0.26, 1.0, 126.9, 127.0, 1e9, torch.inf])
    assert resistance_bucket(values).tolist() == [0, 0, 1, 2, 254, 254, 254, 255]
    assert resistance_bucket(values[:4], 1.0).tolist() == [0, 0, 0, 1]
    for width in (0, -0.5, float("nan")):
        with pytest.raises(ValueError, match=f"width: got {width}, expected more than 0 ohms"):
            resistance_bucket(values, width)
    for wrong in (-1.0, torch.nan):
        with pytest.raises(ValueError, match="resistance: a value is negative or not a number"):
            resistance_bucket(torch.tensor([wrong]))
