import torch
from sklearn.datasets import load_digits
from torch_geometric.utils import contains_self_loops, is_undirected, remove_self_loops

from graphtheory.lab.datasets import embedded


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
