import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from graphtheory import Neighborhood
from graphtheory.lab.train import FullGraph, NodeTask, SampledLayers, fit
from graphtheory.patterns import (
    AddSelf,
    Compose,
    DegreeGroups,
    Effective,
    GraphSAGE,
    KHop,
    UniformNodes,
)

SAMPLER = Compose(AddSelf(), UniformNodes(share=0.5))


class Twice(nn.Module):
    """Two sums over one neighborhood, or over two."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x, given):
        first, second = given if isinstance(given, tuple) else (given, given)
        return second.to_dense() @ (first.to_dense() @ self.linear(x))


def drawn(layers: tuple[Neighborhood, ...]) -> list[list[int]]:
    return [layer.edge_index().flatten().tolist() for layer in layers]


def test_each_layer_of_each_step_has_a_draw_of_its_own(data: Data) -> None:
    module = SampledLayers(data, SAMPLER, 2, evaluation=AddSelf(), seed=3, batch_size=12)
    batches = [module.train_batch(*at) for at in ((0, 0), (0, 1), (1, 0))]
    assert len({str(edges) for batch in batches for edges in drawn(batch.layers)}) == 6
    again = SampledLayers(data, SAMPLER, 2, evaluation=AddSelf(), seed=3, batch_size=12)
    assert drawn(again.train_batch(1, 0).layers) == drawn(batches[2].layers)
    assert batches[0].neighborhood is batches[0].layers[1] and batches[0].test_mask is None


def test_an_epoch_takes_every_labeled_node_once(data: Data) -> None:
    module = SampledLayers(data, SAMPLER, 2, evaluation=AddSelf(), batch_size=12)
    labeled = data.train_mask.nonzero().flatten()
    assert torch.equal(torch.cat(module.order(1)).sort().values, labeled)
    sizes = [len(batch.y) for batch in module.train_dataloader()]
    assert sizes == [12, 8] and len(module.train_dataloader()) == 2
    batch, seeds = module.train_batch(1, 1), module.order(1)[1]
    assert torch.equal(batch.y, data.y[seeds]) and torch.equal(batch.x[:8], data.x[seeds])


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
    with pytest.raises(ValueError, match="batch_size: got 0"):
        SampledLayers(data, SAMPLER, 2, evaluation=AddSelf(), batch_size=0)
    with pytest.raises(ValueError, match="evaluation: got"):
        SampledLayers(data, KHop(1), 2, evaluation=AddSelf())
    described = SampledLayers(data, SAMPLER, 2, evaluation=AddSelf()).describe()
    assert described["num_layers"] == 2
