import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import AddRandomWalkPE, VirtualNode

from graphtheory.data.transforms import AddDistances
from graphtheory.graph import cliques, neighborhood_from
from graphtheory.lab.datasets.graph_sets import precomputed, with_transforms
from graphtheory.lab.datasets.own_graphs import graph_set
from graphtheory.structure import shortest_path_distance


def ring(nodes: int) -> Data:
    at = torch.arange(nodes)
    index = torch.stack([at, (at + 1) % nodes])
    x = torch.arange(nodes).float()[:, None]
    return Data(x=x, edge_index=index, y=torch.tensor([nodes % 2]))


@pytest.fixture
def rings():
    return graph_set([ring(n) for n in range(3, 13)], split=([0, 1, 2], [3, 4, 5], [6, 7, 8, 9]))


def test_distances_follow_the_edges_of_cliques(rings) -> None:
    made = with_transforms(rings, [AddDistances(cutoff=4)])
    batch = Batch.from_data_list([made[i] for i in (4, 0, 7)])
    everyone = cliques(torch.tensor([7, 3, 10]))
    whole = shortest_path_distance(neighborhood_from(batch), cutoff=4)
    assert batch.distance.dtype == torch.uint8
    assert torch.equal(batch.distance, whole[everyone.targets(), everyone.indices])
    assert not torch.equal(batch.distance, whole[everyone.indices, everyone.targets()])


def test_the_given_set_stays_and_what_is_not_replaced_is_shared(rings) -> None:
    made = with_transforms(rings, [AddDistances(), AddRandomWalkPE(3, attr_name="walk")])
    assert "distance" not in rings[0] and made[9].walk.shape == (12, 3)
    assert made._data.x is rings._data.x and made.facts is rings.facts
    assert torch.equal(made.val_index, rings.val_index)
    assert with_transforms(rings, []) is rings


def test_transforms_may_change_the_graph(rings) -> None:
    made = with_transforms(rings, [VirtualNode(), AddDistances()])
    assert made[2].num_nodes == 6 and made[2].distance.view(6, 6)[:, 5].tolist() == [1] * 5 + [0]
    assert rings[2].num_nodes == 5


def test_each_graph_is_transformed_once(rings) -> None:
    seen = []

    def count(graph: Data) -> Data:
        seen.append(graph.num_nodes)
        graph.size_twice = torch.tensor([2 * graph.num_nodes])
        return graph

    made = with_transforms(rings, [count])
    assert seen == list(range(3, 13))
    assert [int(graph.size_twice) for graph in made] == [2 * n for n in range(3, 13)]
    assert len(seen) == 10


def test_what_cannot_be_stored_is_refused(rings) -> None:
    def odd(graph: Data) -> Data:
        if graph.num_nodes % 2:
            graph.odd = graph.x
        return graph

    with pytest.raises(ValueError, match="odd is stored on some graphs and not on others"):
        with_transforms(rings, [odd])
    with pytest.raises(ValueError, match="graphs: 3 indexed graphs, expected the whole set"):
        with_transforms(rings[rings.train_index], [AddDistances()])


def test_laplacian_encodings_are_a_function_of_the_graph() -> None:
    ring = torch.arange(120)  # as many nodes as PyG has scipy iterate for
    edges = torch.stack([ring, (ring + 1) % 120])
    graphs = [
        Data(
            x=torch.ones(120, 1),
            edge_index=torch.cat([edges, edges.flip(0)], 1),
            y=torch.tensor([i]),
        )
        for i in range(3)
    ]
    made = graph_set(graphs, split=([0], [1], [2]))
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        found.append(precomputed(made, laplacian=3)[1].laplacian_eigenvector_pe)
        assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(*found) and found[0].abs().sum() > 0
