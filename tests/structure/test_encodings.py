"""Encodings and resistances against networkx, trees and rings."""

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphtheory import Neighborhood, bipartite, cliques
from graphtheory.nn import SPDTransformerConv, TransformerConv
from graphtheory.patterns import AddSelf, AtDistance, Compose, KHop
from graphtheory.structure import (
    centroid_distance,
    centroids,
    degree_encoding,
    encodings,
    resistance_bucket,
    resistance_distance,
    shortest_path_distance,
    walk_probabilities,
)


def graph_of(edges, num_nodes):
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    return Neighborhood.from_edge_index(edge_index, num_nodes=num_nodes)


def by_networkx(graph):
    """(centroids, distance to the nearest), component by component."""
    theirs = nx.Graph(graph.edge_index().t().tolist())
    theirs.add_nodes_from(range(graph.num_dst))
    middle, distance = [], [0] * graph.num_dst
    for component in nx.connected_components(theirs):
        reach = {n: nx.single_source_shortest_path_length(theirs, n) for n in component}
        least = min(sum(hops.values()) for hops in reach.values())
        best = [n for n in component if sum(reach[n].values()) == least]
        middle += best
        for n in component:
            distance[n] = min(reach[n][c] for c in best)
    return sorted(middle), distance


graphs = st.integers(1, 10).flatmap(
    lambda n: st.builds(
        graph_of,
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=2 * n),
        st.just(n),
    )
)


@given(graphs)
def test_centroids_agree_with_networkx_on_any_small_graph(graph):
    middle, distance = by_networkx(graph)
    assert centroids(graph).tolist() == middle and centroid_distance(graph).tolist() == distance


def test_more_nodes_than_one_batch_and_a_path_longer_than_a_byte(generator):
    edges = torch.randint(900, (1100, 2), generator=generator)
    graph = graph_of(edges.tolist(), 900)
    middle, distance = by_networkx(graph)
    assert centroids(graph).tolist() == middle and max(distance) > 4
    assert centroid_distance(graph).tolist() == distance
    assert centroid_distance(graph, cutoff=3).tolist() == [min(hops, 3) for hops in distance]
    graph = graph_of([(i, i + 1) for i in range(600)], 601)
    assert centroids(graph).tolist() == [300]
    distance = centroid_distance(graph, cutoff=254)
    assert distance.tolist() == [min(abs(i - 300), 254) for i in range(601)]


def test_everyone_in_a_clique_and_logs_of_degrees():
    assert centroids(cliques([3, 2])).tolist() == [0, 1, 2, 3, 4]
    assert centroid_distance(cliques([3, 2])).tolist() == [0] * 5
    empty = graph_of([], 0)
    assert centroids(empty).shape == (0,) and centroid_distance(empty).shape == (0,)
    assert degree_encoding(empty).shape == (0, 1)
    graph = graph_of([(0, 1), (0, 1), (2, 1), (1, 1), (0, 2)], 4)
    logs = torch.tensor([0.0, 4, 1, 0]).log1p()[:, None]
    torch.testing.assert_close(degree_encoding(graph), logs)


def test_bad_arguments_are_named():
    graph = graph_of([(0, 1)], 3)
    with pytest.raises(ValueError, match="graph: 3 sources and 2 targets"):
        centroids(bipartite([2], [3]))
    with pytest.raises(ValueError, match="cutoff: got 0"):
        centroid_distance(graph, cutoff=0)


@pytest.mark.parametrize("at_once", [1, 30, 2**22])
@pytest.mark.parametrize("pattern", [KHop(2), Compose(KHop(3), AddSelf()), AtDistance(2), KHop(1)])
def test_walks_equal_powers_of_a_dense_matrix(pattern, at_once, monkeypatch) -> None:
    monkeypatch.setattr(encodings, "_ENTRIES", at_once)
    edges = torch.randint(11, (2, 26), generator=torch.Generator().manual_seed(2))  # directed,
    edges = torch.cat([edges, edges[:, :4], edges[:, :1].flip(0)], 1)  # with duplicates
    graph = Neighborhood.from_edge_index(edges, 13, weight=torch.rand(31))  # and lone nodes
    pairs = pattern(graph)
    counts = torch.zeros(13, 13, dtype=torch.float64).index_put(
        (edges[1], edges[0]), torch.ones(31, dtype=torch.float64), accumulate=True
    )
    step = counts / counts.sum(1, keepdim=True).clamp(min=1)
    powers = [torch.eye(13, dtype=torch.float64)]
    while len(powers) < 5:
        powers.append(powers[-1] @ step)
    wanted = torch.stack(powers, 2)[pairs.targets(), pairs.indices]
    found = walk_probabilities(graph, pairs, 5)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=1e-7)
    assert found.dtype == torch.float32 and wanted[:, 1:].any()


def test_walks_are_features_and_biases_of_attention() -> None:
    graph = cliques([3, 4])
    walks, x = walk_probabilities(graph, graph, 4), torch.randn(7, 8)
    assert TransformerConv(8, 4, heads=2, edge_dim=4)(x, graph, walks).shape == (7, 8)
    bias = torch.nn.Linear(4, 2)(walks)
    SPDTransformerConv(8, 4, heads=2)(x, graph, attn_bias=bias).sum().backward()
    none = Neighborhood.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 0)
    assert walk_probabilities(none, none, 3).shape == (0, 3)
    with pytest.raises(ValueError, match="pairs: 6 nodes, expected 7 as the graph has"):
        walk_probabilities(graph, cliques([6]), 4)
    with pytest.raises(ValueError, match="steps: got 0"):
        walk_probabilities(graph, graph, 0)


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


def test_hops_components_duplicates_loops_and_no_nodes() -> None:
    tree = nx.convert_node_labels_to_integers(nx.balanced_tree(2, 3))
    edges = torch.tensor([*tree.edges]).t()
    both = Neighborhood.from_edge_index(torch.cat([edges, edges.flip(0)], 1), 15)
    hops = shortest_path_distance(both).double()
    torch.testing.assert_close(resistance_distance(both), hops, rtol=1e-9, atol=1e-9)
    ring = of(nx.cycle_graph(6))[0]
    torch.testing.assert_close(ring, torch.tensor([k * (6 - k) / 6 for k in range(6)]).double())
    edges = torch.tensor([[0, 0, 2, 2, 1, 4], [2, 2, 0, 2, 4, 1]])
    found = resistance_distance(Neighborhood.from_edge_index(edges, 5))
    assert found[0, 2].item() == pytest.approx(1.0) and found[1, 4].item() == pytest.approx(1.0)
    assert found[0, 1].isinf() and found[3, 0].isinf() and not found.diagonal().any()
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


def test_degrees_of_row_pointers_that_were_changed_are_refused() -> None:
    graph = Neighborhood.from_edge_index(torch.tensor([[1, 2, 3], [0, 0, 0]]), num_nodes=4)
    graph.indptr[1] = 9
    with pytest.raises(ValueError, match="indptr"):
        degree_encoding(graph)
