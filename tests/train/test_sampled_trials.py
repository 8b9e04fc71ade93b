import math
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from graphtheory import Neighborhood
from graphtheory.data.degree_graph import degree_group_graph
from graphtheory.models import SampledGCN
from graphtheory.patterns import AddSelf, Compose, FastGCN, Pattern, SymmetricNormalize
from graphtheory.train import SampledTrials, Trial, TrialOptions
from graphtheory.train.sampled_trials import union

SIZES = (30, 40)
OPTIONS = TrialOptions(width=16, steps=3, batch_size=100, dropout=0.0)
STEPS = (0.01, 0.002)


def trial(seed: int, nodes: int, sampler: Pattern) -> Trial:
    draw = Generator().manual_seed(seed)
    edges, _ = degree_group_graph((nodes,), (3,), draw)
    graph = Neighborhood.from_edge_index(edges, nodes)
    adjacency = Compose(AddSelf(), SymmetricNormalize())(graph)
    x, y = torch.randn(nodes, 5, generator=draw), torch.randn(nodes, 2, generator=draw)
    return Trial(x, y, torch.randperm(nodes, generator=draw)[:12], adjacency, sampler, STEPS[seed])


def made(sampler: Pattern, options: TrialOptions = OPTIONS) -> SampledTrials:
    trials = [trial(seed, nodes, sampler) for seed, nodes in enumerate(SIZES)]
    return SampledTrials(trials, options, Generator().manual_seed(7))


def alone(together: SampledTrials, index: int) -> SampledGCN:
    """The network of one trial by itself."""
    model = SampledGCN(5, 16, 2, fixed=True)
    parts = {"W": together.w, "V": together.v, "C": together.c, "B1": together.b_1,
             "B2": together.b_2}  # fmt: skip
    model.load_state_dict({name: of[index].detach().clone() for name, of in parts.items()})
    return model


@pytest.mark.parametrize("index", [0, 1])
def test_each_network_is_a_sampled_gcn(index: int) -> None:
    together = made(Compose())
    whole = union([t.adjacency for t in together.trials])
    own = torch.arange(SIZES[index]) + index * SIZES[0]
    task = together.trials[index]
    with torch.no_grad():
        wanted = alone(together, index)(task.x, task.adjacency)
    torch.testing.assert_close(together.forward(own, whole), wanted)
    rest = torch.ones(SIZES[index], dtype=torch.bool).index_fill(0, task.labelled, False)
    error = (wanted - task.y)[rest].square().mean()
    assert together.errors([t.adjacency for t in together.trials])[index] == pytest.approx(
        float(error)
    )


@pytest.mark.parametrize("index", [0, 1])
def test_a_step_is_a_step_of_sgd_on_its_own_labels(index: int) -> None:
    together = made(Compose())
    model, task = alone(together, index), together.trials[index]
    together.train()
    for _ in range(OPTIONS.steps):
        out = model(task.x, task.adjacency)[task.labelled]
        loss = (out - task.y[task.labelled]).square().mean()
        slopes: tuple[Tensor, ...] = torch.autograd.grad(loss, [model.W, model.V])
        with torch.no_grad():
            model.W -= STEPS[index] * slopes[0]
            model.V -= STEPS[index] * slopes[1]
    torch.testing.assert_close(together.w[index].detach(), model.W.detach())
    torch.testing.assert_close(together.v[index].detach(), model.V.detach())


def test_training_learns_is_a_function_of_the_generator_and_draws_afresh() -> None:
    options = replace(OPTIONS, steps=60, batch_size=4, dropout=0.4)
    runs = [made(FastGCN(share=0.8), options) for _ in range(2)]
    adjacencies = [t.adjacency for t in runs[0].trials]
    known = runs[0].labelled.flatten()

    def on_labels(run: SampledTrials) -> float:
        with torch.no_grad():
            out = run.forward(known, union(adjacencies))
        return float((out - run.y[known]).square().mean())

    before = on_labels(runs[0])
    for run in runs:
        run.train()
    assert on_labels(runs[0]) < 0.8 * before
    assert torch.equal(runs[0].v[1], runs[1].v[1])


def test_dropout_drops_its_share_and_keeps_the_mean() -> None:
    ones = torch.ones(400, 500)
    kept = made(Compose())._dropped(ones, 0.4)
    assert float((kept == 0).double().mean()) == pytest.approx(0.4, abs=0.005)
    assert float(kept.mean()) == pytest.approx(1, abs=0.005)
    assert made(Compose())._dropped(ones, 0.0) is ones


def test_a_network_that_diverges_leaves_the_others_alone() -> None:
    together = made(Compose(), replace(OPTIONS, steps=30))
    together.trials[0].y.fill_(1e30)
    together = SampledTrials(together.trials, together.options, Generator().manual_seed(7))
    together.train()
    first, second = together.errors([t.adjacency for t in together.trials])
    assert math.isinf(first) and math.isfinite(second)
