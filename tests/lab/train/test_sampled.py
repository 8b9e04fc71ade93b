from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric import typing as pyg_typing
from torch_geometric.data import Data

from graphtheory import Neighborhood, patterns
from graphtheory.lab.train import FullGraph, NodeTask, SampledGraph, SampledLayers, fit
from tests.lab.train.conftest import new_task

needs_sampler = pytest.mark.skipif(
    not (pyg_typing.WITH_TORCH_SPARSE or pyg_typing.WITH_PYG_LIB),
    reason="PyG samples neighbors with torch-sparse or pyg-lib: install pyg-graphtheory[scatter]",
)


@needs_sampler
def test_all_neighbors_in_one_batch_give_the_full_loss(data: Data) -> None:
    task = new_task(dropout=0.0)
    whole = task.training_step(FullGraph(data).train_batch(0), 0)
    sampled = SampledGraph(data, num_neighbors=[-1], batch_size=100)
    (batch,) = sampled.train_dataloader()
    torch.testing.assert_close(task.training_step(batch, 0), whole)
    fewer = SampledGraph(data, num_neighbors=[1], batch_size=100)
    (batch,) = fewer.train_dataloader()
    assert not torch.isclose(task.training_step(batch, 0), whole)


@needs_sampler
def test_seeds_come_first_and_carry_the_loss(data: Data) -> None:
    module = SampledGraph(data, num_neighbors=[3], batch_size=8)
    nodes = module.order(0)[0]
    batch = module.sample(nodes, 0, 0)
    assert batch.mask.tolist() == [True] * 8 + [False] * (len(batch.y) - 8)
    torch.testing.assert_close(batch.x[:8], data.x[nodes])
    assert torch.equal(batch.y[:8], data.y[nodes])
    assert torch.equal(module.evaluation_batch().x, data.x)  # evaluation sees all nodes
    assert int(batch.neighborhood.degree()[:8].max()) <= 3


@needs_sampler
def test_an_epoch_takes_every_labeled_node_once_and_any_epoch_can_be_drawn(data: Data) -> None:
    module = SampledGraph(data, num_neighbors=[2], batch_size=8)
    labeled = data.train_mask.nonzero().flatten()
    orders = [torch.cat(module.order(epoch)) for epoch in (0, 1)]
    assert all(torch.equal(order.sort().values, labeled) for order in orders)
    assert not torch.equal(*orders)
    assert len(module.train_dataloader()) == len(list(module.train_dataloader())) == 3
    for epoch in (3, 0):
        drawn = [batch.y for batch in module.train_batches(epoch)]
        nodes = module.order(epoch)
        expected = [module.sample(part, epoch, step).y for step, part in enumerate(nodes)]
        assert all(map(torch.equal, drawn, expected))


@needs_sampler
def test_the_pattern_is_applied_to_the_sample(data: Data) -> None:
    plain = SampledGraph(data, num_neighbors=[3, 3], batch_size=8)
    wider = SampledGraph(data, patterns.KHop(2), num_neighbors=[3, 3], batch_size=8)
    nodes = plain.order(0)[0]
    expected = patterns.KHop(2)(plain.sample(nodes, 0, 0).neighborhood)
    found = wider.sample(nodes, 0, 0).neighborhood
    assert torch.equal(found.edge_index(), expected.edge_index())
    assert torch.equal(found.distance, expected.distance)


@needs_sampler
def test_batches_are_a_function_of_seed_epoch_and_step(data: Data) -> None:
    def drawn(seed: int, epoch: int, step: int) -> list[int]:
        module = SampledGraph(data, num_neighbors=[2], batch_size=8, seed=seed)
        batch = module.sample(torch.arange(8), epoch, step)
        return batch.neighborhood.edge_index().flatten().tolist() + batch.y.tolist()

    torch.manual_seed(0)
    before, first = torch.get_rng_state(), drawn(0, 0, 0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert drawn(0, 0, 0) == first
    assert first not in (drawn(1, 0, 0), drawn(0, 1, 0), drawn(0, 0, 1))


def test_says_what_is_missing(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyg_typing, "WITH_TORCH_SPARSE", False)
    monkeypatch.setattr(pyg_typing, "WITH_PYG_LIB", False)
    with pytest.raises(ImportError, match=r"needs torch-sparse or pyg-lib, found neither"):
        SampledGraph(data, num_neighbors=[2])


SAMPLER = patterns.Compose(patterns.AddSelf(), patterns.UniformNodes(share=0.5))


class Twice(nn.Module):
    """Two sums over one neighborhood, or over two."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x, given):
        first, second = given if isinstance(given, tuple) else (given, given)
        return second.to_dense() @ (first.to_dense() @ self.linear(x))


def drawn_layers(layers: tuple[Neighborhood, ...]) -> list[list[int]]:
    return [layer.edge_index().flatten().tolist() for layer in layers]


def test_each_layer_of_each_step_has_a_draw_of_its_own(data: Data) -> None:
    module = SampledLayers(data, SAMPLER, 2, evaluation=patterns.AddSelf(), seed=3, batch_size=12)
    batches = [module.train_batch(*at) for at in ((0, 0), (0, 1), (1, 0))]
    assert len({str(edges) for batch in batches for edges in drawn_layers(batch.layers)}) == 6
    again = SampledLayers(data, SAMPLER, 2, evaluation=patterns.AddSelf(), seed=3, batch_size=12)
    assert drawn_layers(again.train_batch(1, 0).layers) == drawn_layers(batches[2].layers)
    assert batches[0].neighborhood is batches[0].layers[1] and batches[0].test_mask is None


def test_an_epoch_of_layers_takes_every_labeled_node_once(data: Data) -> None:
    module = SampledLayers(data, SAMPLER, 2, evaluation=patterns.AddSelf(), batch_size=12)
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

    keeps = patterns.Compose(patterns.AddSelf(), patterns.GraphSAGE(100))
    sampled = history(SampledLayers(data, keeps, 2, evaluation=patterns.AddSelf()))
    assert sampled == pytest.approx(history(FullGraph(data, patterns.AddSelf())))


def test_evaluation_is_with_what_it_was_asked_for(data: Data) -> None:
    sampler = patterns.DegreeGroups(share=0.5, p_star=0.25)
    module = SampledLayers(data, sampler, 2, evaluation=patterns.Effective(sampler))
    batch = module.evaluation_batch()
    assert batch.layers is None and set(batch.neighborhood.weight.tolist()) == {0.25}
    assert module.describe()["num_layers"] == 2


LAYERS: dict[str, Any] = {"pattern": SAMPLER, "num_layers": 2, "evaluation": patterns.AddSelf()}


@needs_sampler
@pytest.mark.parametrize(("kind", "options", "message"), [
    (SampledGraph, {"num_neighbors": []}, r"num_neighbors: got \[\], expected"),
    (SampledGraph, {"num_neighbors": [5, 0]}, r"num_neighbors: got \[5, 0\], expected"),
    (SampledGraph, {"num_neighbors": [5], "batch_size": 0}, "batch_size: got 0, expected 1 or"),
    (SampledLayers, LAYERS | {"num_layers": 0}, "num_layers: got 0"),
    (SampledLayers, LAYERS | {"batch_size": 0}, "batch_size: got 0"),
    (SampledLayers, LAYERS | {"pattern": patterns.KHop(1)}, "evaluation: got"),
])  # fmt: skip
def test_refuses(data: Data, kind: type, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(data, **options)
