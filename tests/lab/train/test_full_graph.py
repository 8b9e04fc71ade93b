from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from graphtheory import Neighborhood, ops
from graphtheory.lab.train import FullGraph, NodeBatch
from graphtheory.lab.train.full_graph import check_classes, check_data, fingerprint
from graphtheory.patterns import (
    AddSelf,
    Compose,
    DegreeGroups,
    Effective,
    KHop,
    Sample,
    SymmetricNormalize,
)


def test_row_zero_sends(data: Data) -> None:
    graph = FullGraph(data).train_batch(0).neighborhood
    sent = {tuple(pair) for pair in graph.edge_index().t().tolist()}
    assert sent == {tuple(pair) for pair in data.edge_index.t().tolist()}


def test_train_and_evaluation_see_their_masks_only(data: Data) -> None:
    module = FullGraph(data)
    train, evaluation = module.train_batch(0), module.evaluation_batch()
    assert torch.equal(train.mask, data.train_mask) and train.test_mask is None
    assert torch.equal(evaluation.mask, data.val_mask)
    assert torch.equal(evaluation.test_mask, data.test_mask)


def test_a_deterministic_pattern_is_applied_once(data: Data) -> None:
    module = FullGraph(data, KHop(2))
    first = module.train_batch(0).neighborhood
    assert first is module.train_batch(5).neighborhood is module.evaluation_batch().neighborhood
    assert first.num_edges == KHop(2)(module.graph).num_edges


def test_what_comes_before_the_first_draw_is_computed_once(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    balls: list[Neighborhood] = []
    pattern = Compose(KHop(2), Sample(2), AddSelf())
    whole = KHop.__call__

    def counted(self: KHop, graph: Neighborhood, **options: Any) -> Neighborhood:
        balls.append(whole(self, graph, **options))
        return balls[-1]

    monkeypatch.setattr(KHop, "__call__", counted)
    module = FullGraph(data, pattern)
    drawn = [module.train_batch(epoch).neighborhood for epoch in range(3)]
    drawn.append(module.evaluation_batch().neighborhood)
    assert len(balls) == 1
    assert len({tuple(n.indices.tolist()) for n in drawn}) == 4
    least = balls[0].degree().clamp(max=2)
    assert all(torch.equal(n.degree(), least + 1) for n in drawn)


def test_training_may_follow_an_evaluation_in_inference_mode(data: Data) -> None:
    module = FullGraph(data, KHop(2))
    with torch.inference_mode():
        module.evaluation_batch()
    batch = module.train_batch(0)
    value = torch.randn(batch.x.size(0), 1, 2, requires_grad=True)
    ops.aggregate(None, value, batch.neighborhood).sum().backward()
    assert value.grad is not None


def test_a_random_pattern_is_a_function_of_seed_and_epoch(data: Data) -> None:
    def drawn(seed: int, epoch: int) -> list[list[int]]:
        module = FullGraph(data, Sample(5, whole_graph=True), seed=seed)
        return module.train_batch(epoch).neighborhood.edge_index().tolist()

    assert drawn(0, 1) == drawn(0, 1)
    assert drawn(0, 1) != drawn(0, 2)
    assert drawn(0, 1) != drawn(1, 1)


def test_evaluation_sees_one_draw(data: Data) -> None:
    one, other = (FullGraph(data, Sample(5, whole_graph=True)) for _ in range(2))
    one.train_batch(3)
    first, second = one.evaluation_batch().neighborhood, other.evaluation_batch().neighborhood
    assert one.evaluation_batch().neighborhood is first
    assert torch.equal(first.indices, second.indices)
    assert not torch.equal(first.indices, one.train_batch(0).neighborhood.indices)


def test_evaluation_can_see_the_effective_adjacency(data: Data) -> None:
    sampler = Compose(AddSelf(), SymmetricNormalize(), DegreeGroups(p_star=0.5))
    module = FullGraph(data, sampler, evaluation=Effective(sampler))
    star = sampler.effective(module.graph)
    assert torch.equal(module.evaluation_batch().neighborhood.weight, star.weight)
    plain = FullGraph(data, sampler)
    drawn = module.train_batch(1).neighborhood
    assert torch.equal(drawn.edge_index(), plain.train_batch(1).neighborhood.edge_index())
    assert drawn.num_edges < star.num_edges
    assert module.describe() != plain.describe()
    assert "evaluation" not in plain.describe()
    with pytest.raises(ValueError, match=r"evaluation: got KHop.*expected None beside None"):
        FullGraph(data, evaluation=KHop(2))


def test_global_random_state_is_left_alone(data: Data) -> None:
    before = torch.get_rng_state()
    list(FullGraph(data, Sample(5)).train_dataloader())
    assert torch.equal(torch.get_rng_state(), before)


def test_loaders_give_one_batch(data: Data) -> None:
    module = FullGraph(data)
    assert len(module.train_dataloader()) == len(list(module.train_dataloader())) == 1
    assert len(list(module.val_dataloader())) == len(list(module.test_dataloader())) == 1


def test_description_tells_runs_apart(data: Data) -> None:
    base = FullGraph(data).describe()
    assert base == FullGraph(data.clone()).describe()
    assert base["name"] == "small"
    assert base != FullGraph(data, KHop(2)).describe()
    assert base != FullGraph(data, seed=1).describe()


def test_refuses_edges_to_nodes_that_do_not_exist(data: Data) -> None:
    data.edge_index[0, 0] = 60
    with pytest.raises(IndexError, match="60"):
        FullGraph(data)


def test_refuses_a_negative_seed(data: Data) -> None:
    with pytest.raises(ValueError, match="seed: got -1"):
        FullGraph(data, seed=-1)


def nan_in_x(data: Data) -> None:
    data.x[4, 2], data.x[9, 1] = float("nan"), float("inf")


def nan_in_sparse_x(data: Data) -> None:
    x = torch.eye(60)
    x[30, 30] = float("nan")
    data.x = x.to_sparse_csr()


def float_labels(data: Data) -> None:
    data.y = data.y.float()


def labels_of_two_axes(data: Data) -> None:
    data.y = data.y[:, None]


def negative_label(data: Data) -> None:
    data.y[3] = -1


def masks_that_overlap(data: Data) -> None:
    data.val_mask[0] = True


def empty_mask(data: Data) -> None:
    data.train_mask[:] = False


def many_splits(data: Data) -> None:
    data.train_mask = data.train_mask[:, None].repeat(1, 10)


def integer_x(data: Data) -> None:
    data.x = data.x.long()


def no_x(data: Data) -> None:
    data.x = None


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (nan_in_x, ValueError, r"data.x: 2 entries are NaN or infinite, the first at \[4, 2\]"),
        (nan_in_sparse_x, ValueError, r"data.x: 1 entries .* the first at \[30, 30\]"),
        (float_labels, ValueError, r"data.y: torch.float32 of shape \(60,\), expected int64"),
        (labels_of_two_axes, ValueError, r"data.y: .* shape \(60, 1\), expected int64 \[60\]"),
        (negative_label, ValueError, "data.y: 1 nodes .* node 3 with -1; expected 0 or more"),
        (masks_that_overlap, ValueError, "1 nodes are in more than one of train_mask, val_mask"),
        (empty_mask, ValueError, "data.train_mask: no node"),
        (many_splits, ValueError, r"data.train_mask: .* \(60, 10\), expected bool \[60\]"),
        (integer_x, TypeError, "data.x: dtype torch.int64, expected a floating type"),
        (no_x, TypeError, "data.x: got NoneType, expected a tensor"),
    ],
)
def test_spoiled_data_is_refused(
    data: Data, spoil: Callable[[Data], None], error: type[Exception], message: str
) -> None:
    spoil(data)
    with pytest.raises(error, match=message):
        FullGraph(data)


def test_labels_outside_the_masks_do_not_matter(data: Data) -> None:
    data.train_mask[0] = False
    data.y[0] = -1
    check_data(data)
    check_classes(data, 3)


def test_labels_above_the_classes_are_refused(data: Data) -> None:
    data.y[5] = 3
    with pytest.raises(ValueError, match=r"node 5 with 3; expected 0\.\.2"):
        check_classes(data, 3)


@pytest.mark.parametrize("name", ["x", "y", "edge_index", "train_mask", "val_mask", "test_mask"])
def test_fingerprint_sees_every_part(data: Data, name: str) -> None:
    before = fingerprint(data)
    assert before == fingerprint(data.clone())
    part = data[name].view(-1)
    part[0] = ~part[0] if part.dtype == torch.bool else part[0] + 1
    assert fingerprint(data) != before


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
