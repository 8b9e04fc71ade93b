import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from graphtheory.patterns import (
    LADIES,
    AddSelf,
    Compose,
    DegreeGroups,
    Effective,
    GraphSAGE,
    KHop,
    UniformNodes,
)
from graphtheory.train import FullGraph, NodeTask, SampledLayers, fit

SAMPLER = Compose(AddSelf(), UniformNodes(share=0.5))


class Twice(nn.Module):
    """Two sums over one neighbourhood, or over two."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x, given):
        first, second = given if isinstance(given, tuple) else (given, given)
        return second.to_dense() @ (first.to_dense() @ self.linear(x))


def test_each_layer_of_each_epoch_has_a_draw_of_its_own(data: Data) -> None:
    module = SampledLayers(data, SAMPLER, 2, evaluation=AddSelf(), seed=3)
    batches = [module.train_batch(epoch) for epoch in (0, 1)]
    drawn = [layer.indices.unique().tolist() for batch in batches for layer in batch.layers]
    assert len({str(nodes) for nodes in drawn}) == 4 and {len(nodes) for nodes in drawn} == {30}
    again = SampledLayers(data, SAMPLER, 2, evaluation=AddSelf(), seed=3).train_batch(1)
    assert torch.equal(again.layers[0].indices, batches[1].layers[0].indices)
    assert again.neighborhood is again.layers[1] and again.test_mask is None


def test_ladies_draws_for_the_labelled_nodes(data: Data) -> None:
    module = SampledLayers(data, Compose(AddSelf(), LADIES(20)), 2, evaluation=AddSelf())
    first, second = module.train_batch(0).layers
    assert not second.degree()[~data.train_mask].any()
    assert set(first.receivers().tolist()) <= set(second.indices.tolist())


def test_what_keeps_everything_trains_like_the_whole_graph(data: Data) -> None:
    def history(module: FullGraph) -> list[float]:
        torch.manual_seed(0)
        task = NodeTask(Twice(), num_classes=3)
        return [row["train_loss"] for row in fit(task, module, epochs=4, progress=False).history]

    keeps = Compose(AddSelf(), GraphSAGE(100))
    sampled = history(SampledLayers(data, keeps, 2, evaluation=AddSelf()))
    assert sampled == pytest.approx(history(FullGraph(data, AddSelf())))


def test_evaluation_is_with_what_it_was_asked_for(data: Data) -> None:
    sampler = DegreeGroups(share=0.5, p_star=0.25)
    batch = SampledLayers(data, sampler, 2, evaluation=Effective(sampler)).evaluation_batch()
    assert batch.layers is None and set(batch.neighborhood.weight.tolist()) == {0.25}


def test_refusals_name_what_was_wrong(data: Data) -> None:
    with pytest.raises(ValueError, match="num_layers: got 0"):
        SampledLayers(data, SAMPLER, 0, evaluation=AddSelf())
    with pytest.raises(ValueError, match="evaluation: got"):
        SampledLayers(data, KHop(1), 2, evaluation=AddSelf())
    described = SampledLayers(data, SAMPLER, 2, evaluation=AddSelf()).describe()
    assert described["num_layers"] == 2
