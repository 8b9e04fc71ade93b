import networkx as nx
import pytest
import torch
from sklearn.datasets import load_digits
from torch_geometric.utils import contains_self_loops, is_undirected, remove_self_loops, to_networkx

from graphtheory.graph import neighborhood_from
from graphtheory.lab.datasets import embedded
from graphtheory.lab.datasets.graphs import load_graphs
from graphtheory.structure import shortest_path_distance


def test_digits_are_linked_to_their_nearest() -> None:
    data = embedded.digits()
    images = torch.from_numpy(load_digits().data)
    assert torch.equal(data.x, (images / 16).float()) and float(data.x.max()) == 1.0
    assert is_undirected(data.edge_index) and not contains_self_loops(data.edge_index)
    distance = torch.cdist(images, images).fill_diagonal_(torch.inf)
    linked = torch.zeros_like(distance, dtype=torch.bool)
    linked[tuple(data.edge_index)] = True
    assert int(linked.sum(1).min()) >= 8
    reach = distance.kthvalue(8, dim=1).values
    assert bool(linked[distance < reach[:, None]].all())
    assert not bool((linked & (distance > torch.maximum(reach[:, None], reach))).any())
    same = data.y[data.edge_index[0]] == data.y[data.edge_index[1]]
    assert float(same.float().mean()) > 0.9


def test_karate_is_zacharys() -> None:
    data = embedded.karate()
    assert data.y.bincount().tolist() == [17, 17]
    assert data.num_edges == 2 * 78 and data.is_undirected()
    assert torch.equal(remove_self_loops(data.edge_index)[0], data.edge_index)
    assert (int(data.y[0]), int(data.y[33])) == (0, 1)  # the two who quarrelled
    assert torch.equal(data.x, torch.eye(34))


def test_infection_is_the_distance_to_the_infected() -> None:
    made = load_graphs("infection", seed=1)
    assert (made.level, made.num_outputs, len(made)) == ("node", 5, 100)
    graph = made[7]
    hops = shortest_path_distance(neighborhood_from(graph), cutoff=20)[:, graph.x[:, 1] == 1]
    assert torch.equal(hops.amin(1).clamp(max=4).long(), graph.y)
    torch.manual_seed(5)
    before = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(load_graphs("infection").y, made.y) and torch.equal(torch.rand(1), before)


def test_only_the_target_of_a_ring_has_a_class() -> None:
    made = load_graphs("ring-transfer")
    hops = shortest_path_distance(neighborhood_from(made[0]))
    for graph in (made[0], made[1999]):
        (target,) = (graph.y >= 0).nonzero().view(-1).tolist()
        assert int(graph.x[0].argmax()) == int(graph.y[target]) and int(hops[target, 0]) == 5
        assert int(graph.x[target].sum()) == 0 and int(graph.x[0].sum()) == 1
    assert len(made.y[made.y >= 0].unique()) == 5


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_the_root_asks_for_the_leaf_of_its_key(depth: int) -> None:
    made = load_graphs(f"neighbors_match_{depth}")
    leaves = 2**depth
    assert made.x_categories == (leaves + 1, leaves + 1) and made.num_outputs == leaves
    for graph in (made[3], made[100]):
        (leaf,) = (graph.x[1:, 0] == graph.x[0, 0]).nonzero().view(-1) + 1
        assert int(graph.x[leaf, 1]) == int(graph.y[0]) + 1 and bool((graph.y[1:] == -1).all())
        hops = shortest_path_distance(neighborhood_from(graph))
        assert int(hops[0, leaf]) == depth and (hops[0] == depth).sum() == leaves


def test_csl_has_ten_classes_of_copies() -> None:
    made = load_graphs("csl", split="folds-5", seed=2)
    assert made.y.bincount().tolist() == [15] * 10
    assert made.y[made.test_index].bincount().tolist() == [3] * 10
    first, copy, other = (to_networkx(made[i], to_undirected=True) for i in (0, 14, 15))
    assert set(dict(first.degree).values()) == {4}
    assert nx.is_isomorphic(first, copy) and not nx.is_isomorphic(first, other)
    assert not torch.equal(made[0].edge_index, made[14].edge_index)
