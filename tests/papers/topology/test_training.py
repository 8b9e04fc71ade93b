import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Generator

from graphtheory import Neighborhood
from graphtheory.papers.topology.training import (
    Reading,
    SampledTask,
    SampledTrials,
    TrainingOptions,
    coarse_dropout,
    degree_group_graph,
)
from graphtheory.patterns import (
    AddSelf,
    Compose,
    DegreeGroups,
    FastGCN,
    SymmetricNormalize,
    UniformNodes,
)

SIZES = (30, 40)
READING = Reading(step_size=0.01)
OPTIONS = TrainingOptions(16, steps=3, batch_size=100, dropout=0.0, reading=READING)
Sampler = DegreeGroups | FastGCN | None


def task(seed: int, nodes: int, sampler: Sampler) -> SampledTask:
    draw = Generator().manual_seed(seed)
    edges, _ = degree_group_graph((nodes,), (3,), draw)
    graph = Neighborhood.from_edge_index(edges, nodes)
    adjacency = Compose(AddSelf(), SymmetricNormalize())(graph)
    x, y = torch.randn(nodes, 5, generator=draw), torch.randn(nodes, 2, generator=draw)
    return SampledTask(x, y, torch.randperm(nodes, generator=draw)[:12], adjacency, sampler)


def made(sampler: Sampler, options: TrainingOptions = OPTIONS) -> SampledTrials:
    tasks = [task(seed, nodes, sampler) for seed, nodes in enumerate(SIZES)]
    return SampledTrials(tasks, options, Generator().manual_seed(7))


@pytest.mark.parametrize("index", [0, 1])
def test_each_network_is_a_sampled_gcn(index: int) -> None:
    together = made(None)
    own = torch.arange(SIZES[index]) + index * SIZES[0]
    mine = together.tasks[index]
    with torch.no_grad():
        wanted = together.model.networks[index](mine.x, mine.adjacency)
    torch.testing.assert_close(together.model(own, together.whole), wanted)
    rest = torch.ones(SIZES[index], dtype=torch.bool).index_fill(0, mine.labeled, False)
    error = (wanted - mine.y)[rest].square().mean()
    asked = [torch.ones(nodes, dtype=torch.bool) for nodes in SIZES]
    asked[index] = rest
    found = together.errors([t.adjacency for t in together.tasks], asked)
    assert found[index] == pytest.approx(float(error))


@pytest.mark.parametrize(
    ("index", "changes"), [(0, {}), (1, {}), (1, {"adam": True}), (0, {"everything": True})]
)
def test_a_step_is_one_of_its_own_network_on_its_own_labels(
    index: int, changes: dict[str, bool]
) -> None:
    together = made(None, OPTIONS._replace(reading=replace(READING, **changes)))
    model, mine = copy.deepcopy(together.model.networks[index]), together.tasks[index]
    together.train()
    kind = torch.optim.Adam if "adam" in changes else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=READING.step_size)
    for _ in range(OPTIONS.steps):
        out = model(mine.x, mine.adjacency)[mine.labeled]
        loss = (out - mine.y[mine.labeled]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = together.model.networks[index].state_dict()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(found[name], value)


def test_steps_on_samples_are_those_of_a_loop_with_dense_matrices() -> None:
    options = OPTIONS._replace(batch_size=4)
    together, generator = made(FastGCN(share=0.8), options), Generator()
    start = [copy.deepcopy(network.state_dict()) for network in together.model.networks]
    generator.set_state(together.generator.get_state())
    together.train()
    for _ in range(options.steps):
        key = torch.rand(together.labeled.shape, generator=generator)
        places = key.topk(options.batch_size, dim=1).indices
        factors = together.columns(generator).split(list(SIZES))
        for index, (mine, factor) in enumerate(zip(together.tasks, factors, strict=True)):
            sampled = mine.adjacency.to_dense() * factor  # A^s = A P^s
            values = start[index]
            w, v = (values[name].requires_grad_() for name in ("W", "V"))
            hidden = torch.relu(sampled @ mine.x @ w + values["B1"])
            out = sampled @ torch.relu(sampled @ hidden @ v + values["B2"]) @ values["C"]
            batch = mine.labeled[places[index]]
            loss = (out - mine.y)[batch].square().mean()
            steps = torch.autograd.grad(loss, (w, v))
            for name, value, step in zip(("W", "V"), (w, v), steps, strict=True):
                values[name] = value.detach() - READING.step_size * step
    for network, values in zip(together.model.networks, start, strict=True):
        for name, value in network.state_dict().items():
            torch.testing.assert_close(value, values[name])


def test_training_learns_is_a_function_of_the_generator_and_draws_afresh() -> None:
    options = OPTIONS._replace(steps=60, batch_size=4, dropout=0.4)
    runs = [made(FastGCN(share=0.8), options) for _ in range(2)]
    known = runs[0].labeled.flatten()

    def on_labels(run: SampledTrials) -> float:
        with torch.no_grad():
            out = run.model(known, run.whole)
        return float((out - run.y[known]).square().mean())

    before = on_labels(runs[0])
    for run in runs:
        run.train()
    assert on_labels(runs[0]) < 0.8 * before
    one, same = (run.model.networks[1].V for run in runs)
    assert torch.equal(one, same)


def test_columns_of_all_graphs_are_drawn_at_once() -> None:
    group = torch.arange(40) // 25
    samplers: list[Sampler] = [
        DegreeGroups(share=(0.6, 0.8), p_star=(0.7, 0.3), assignment=group),
        FastGCN(share=0.6, replace=False),
        None,
        DegreeGroups(share=0.25, p_star=2.0),
    ]
    tasks = [task(0, 40, sampler) for sampler in samplers]
    columns = SampledTrials(tasks, OPTIONS, Generator()).columns
    generator = Generator().manual_seed(1)
    draws = torch.stack([columns(generator) for _ in range(2000)]).split(40, dim=1)
    for which, (kept, p) in enumerate(((15, 0.7), (12, 0.3))):
        own = draws[0][:, group == which]
        assert ((own != 0).sum(1) == kept).all()
        torch.testing.assert_close(own.sum(1) / own.size(1), torch.full((2000,), p))
    torch.testing.assert_close(draws[1].mean(0), torch.ones(40), atol=0.2, rtol=0)
    assert ((draws[1] != 0).sum(1) == 24).all()
    assert (draws[2] == 1).all()
    assert ((draws[3] != 0).sum(1) == 10).all() and not torch.equal(draws[3][0], draws[3][1])
    drawn_alone = FastGCN(share=0.6, replace=False)(tasks[1].adjacency, generator=generator)
    ratio = drawn_alone.to_dense().sum(0) / tasks[1].adjacency.to_dense().sum(0)
    again = draws[1][:, ratio != 0].amax(0)  # 1 / pi_j wherever a node comes
    torch.testing.assert_close(again, ratio[ratio != 0])


def test_a_sampler_that_looks_at_more_than_columns_is_refused() -> None:
    for sampler in (DegreeGroups(symmetric=True), UniformNodes(share=0.5)):
        with pytest.raises(TypeError, match="sampler: got"):
            made(sampler)  # type: ignore[arg-type]


def test_dropout_keeps_the_mean_and_a_network_that_diverges_leaves_others_alone() -> None:
    ones = torch.ones(400, 500)
    kept = coarse_dropout(ones, 0.4, Generator().manual_seed(0))
    assert float((kept == 0).double().mean()) == pytest.approx(0.4, abs=0.005)
    assert float(kept.mean()) == pytest.approx(1, abs=0.005)
    assert coarse_dropout(ones, 0.0, None) is ones
    together = made(None, OPTIONS._replace(steps=30))
    together.tasks[0].y.fill_(1e30)
    together = SampledTrials(together.tasks, together.options, Generator().manual_seed(7))
    together.train()
    asked = [torch.arange(nodes) < 9 for nodes in SIZES]
    first, second = together.errors([t.adjacency for t in together.tasks], asked)
    assert math.isinf(first) and math.isfinite(second)
