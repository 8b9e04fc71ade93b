import torch

from graphtheory import Neighborhood
from graphtheory.lab.train import NodeBatch


def test_moving_to_the_same_device_copies_nothing() -> None:
    graph = Neighborhood.from_edge_index(torch.tensor([[0], [1]]), num_nodes=2)
    mask = torch.tensor([True, False])
    batch = NodeBatch(torch.eye(2), graph, torch.tensor([0, 1]), mask)
    moved = batch.to("cpu")
    assert moved.neighborhood is graph and moved.x.data_ptr() == batch.x.data_ptr()
    assert moved.test_mask is None


def test_everything_moves() -> None:
    graph = Neighborhood.from_edge_index(torch.tensor([[0], [1]]), num_nodes=2)
    mask = torch.tensor([True, False])
    batch = NodeBatch(torch.eye(2), graph, torch.tensor([0, 1]), mask, ~mask, (graph, graph))
    moved = batch.to("meta")
    assert moved.test_mask is not None and moved.layers is not None
    assert {str(layer.device) for layer in moved.layers} == {"meta"}
    parts = [moved.x, moved.y, moved.mask, moved.test_mask, moved.neighborhood.indptr]
    assert {str(part.device) for part in parts} == {"meta"}
