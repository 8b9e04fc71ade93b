import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Generator

from graphtheory import Neighborhood, patterns
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.papers.topology import training
from graphtheory.papers.topology.adjacency import infinity_norm
from graphtheory.papers.topology.sampling import NAMES, candidates, fitted, neighbor_use
from graphtheory.papers.topology.sampling import SAMPLERS as VARIANTS
from graphtheory.papers.topology.training import SampledTask, SampledTrials, degree_group_graph
from graphtheory.patterns import AddSelf, Compose, DegreeGroups, FastGCN, SymmetricNormalize
from graphtheory.patterns.draw import derive
from graphtheory.patterns.importance import column_norms
from tests.patterns.laws import random_directed

SIZES = (30, 40)
READING = training.Reading(step_size=0.01)
OPTIONS = training.TrainingOptions(16, steps=3, batch_size=100, dropout=0.0, reading=READING)
Sampler = DegreeGroups | FastGCN | None


def task(seed: int, nodes: int, sampler: Sampler) -> SampledTask:
    draw = Generator().manual_seed(seed)
    edges, _ = degree_group_graph((nodes,), (3,), draw)
    graph = Neighborhood.from_edge_index(edges, nodes)
    adjacency = Compose(AddSelf(), SymmetricNormalize())(graph)
    x, y = torch.randn(nodes, 5, generator=draw), torch.randn(nodes, 2, generator=draw)
    return SampledTask(x, y, torch.randperm(nodes, generator=draw)[:12], adjacency, sampler)


def made(sampler: Sampler, options: training.TrainingOptions = OPTIONS) -> SampledTrials:
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
def test_a_step_is_one_of_its_own_network_on_its_own_labels(index: int, changes) -> None:
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
    torch.testing.assert_close(found, model.state_dict())


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
        torch.testing.assert_close(network.state_dict(), values)


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
    for sampler in (DegreeGroups(symmetric=True), patterns.UniformNodes(share=0.5)):
        with pytest.raises(TypeError, match="sampler: got"):
            made(sampler)  # type: ignore[arg-type]


def test_dropout_keeps_the_mean_and_a_network_that_diverges_leaves_others_alone() -> None:
    ones = torch.ones(400, 500)
    kept = training.coarse_dropout(ones, 0.4, Generator().manual_seed(0))
    assert float((kept == 0).double().mean()) == pytest.approx(0.4, abs=0.005)
    assert float(kept.mean()) == pytest.approx(1, abs=0.005)
    assert training.coarse_dropout(ones, 0.0, None) is ones
    together = made(None, OPTIONS._replace(steps=30))
    together.tasks[0].y.fill_(1e30)
    together = SampledTrials(together.tasks, together.options, Generator().manual_seed(7))
    together.train()
    asked = [torch.arange(nodes) < 9 for nodes in SIZES]
    first, second = together.errors([t.adjacency for t in together.tasks], asked)
    assert math.isinf(first) and math.isfinite(second)


TASKS = [
    training.DegreeGroupTask(sampler, (10, 30), (5, 2), (0.9, 0.1), (0.5, 0.5), sampler)
    for sampler in training.SAMPLERS
]


def drawn(sizes, degrees, seed=0):
    return degree_group_graph(sizes, degrees, Generator().manual_seed(seed))


def test_graphs_have_the_degrees_asked_for_both_ways_by_their_seed():
    edges, group = drawn((100, 1900), (10, 2))
    degree = torch.bincount(edges[1], minlength=2000).double()
    assert group.tolist() == [0] * 100 + [1] * 1900
    assert degree[:100].mean() == pytest.approx(10, abs=0.5)
    assert degree[100:].mean() == pytest.approx(2, abs=0.1)
    assert int(degree[:100].max()) <= 10 and int(degree[100:].max()) <= 2
    edges, _ = drawn((20, 30), (8, 3))
    pairs = {tuple(pair) for pair in edges.t().tolist()}
    assert len(pairs) == edges.size(1)
    assert all((b, a) in pairs and a != b for a, b in pairs)
    assert torch.equal(drawn((9, 9), (3, 2))[0], drawn((9, 9), (3, 2))[0])
    assert not torch.equal(drawn((9, 9), (3, 2))[0], drawn((9, 9), (3, 2), seed=1)[0])


@pytest.mark.parametrize(
    ("sizes", "degrees", "message"),
    [
        ((3,), (1, 1), "degrees: got 2 for 1 groups"),
        ((), (), "degrees: got 0 for 0 groups"),
        ((0, 3), (1, 1), "sizes: got 0, expected a whole number from 1 on"),
        ((3, 3), (1, -1), "degrees: got -1, expected a whole number from 0 on"),
        ((3, 3), (6, 1), "degrees: got 6, expected below the 6 nodes"),
    ],
)
def test_what_cannot_be_drawn_is_refused(sizes, degrees, message):
    with pytest.raises(ValueError, match=message):
        drawn(sizes, degrees)


def test_samplers_and_targets_are_compared_on_the_same_draws():
    first, *others = (task.draw(8, seed=3)[0] for task in TASKS)
    for task in others:
        assert torch.equal(task.x, first.x) and torch.equal(task.labeled, first.labeled)
        assert torch.equal(task.y, first.y)
        assert torch.equal(task.adjacency.indices, first.adjacency.indices)
    other = replace(TASKS[0], p_hat=(0.9, 0.1)).draw(8, seed=3)[0]
    assert torch.equal(other.x, first.x) and not torch.equal(other.y, first.y)
    assert not torch.equal(TASKS[0].draw(8, seed=4)[0].x, first.x)
    more = TASKS[0].draw(12, seed=3)[0].labeled
    assert torch.equal(more[:8], first.labeled)


def test_targets_are_those_of_the_formula():
    task, star = replace(TASKS[0], p_hat=(0.7, 0.2)).draw(8, seed=0)
    scale = torch.tensor([0.7] * 10 + [0.2] * 30)
    dense = task.adjacency.to_dense() * scale
    predicted = task.adjacency.to_dense() * torch.tensor([0.9] * 10 + [0.1] * 30)
    torch.testing.assert_close(star.to_dense(), predicted)
    assert infinity_norm(star) == pytest.approx(float(predicted.sum(1).max()))
    draw = Generator().manual_seed(derive(0))  # the graph comes first, then X, W* and C*
    degree_group_graph((10, 30), (5, 2), draw)
    x, w, c = (torch.randn(shape, generator=draw) for shape in ((40, 10), (10, 10), (10, 2)))
    hidden = dense @ x @ w
    assert torch.equal(task.x, x)
    torch.testing.assert_close(task.y, (hidden.sin() * hidden.tanh()) @ c)


GRAPH = Compose(AddSelf(), SymmetricNormalize())(random_directed(150, 0.15, seed=1))
LABELED = torch.arange(0, 150, 3)


def test_neighbors_are_counted_in_the_rows_of_the_batch_alone() -> None:
    edges = torch.tensor([[1, 2, 3, 0, 3], [0, 0, 1, 2, 2]])  # 0 from 1, 2; 1 from 3; 2 from 0, 3
    whole = Neighborhood.from_edge_index(edges, 4)
    every = neighbor_use(Compose(), whole, torch.tensor([1]), 2, draws=2)
    assert every.neighbors == 1 and every.edges == (1 + 1) / 10  # 1 from 3, which has none
    one = neighbor_use(patterns.GraphSAGE(1), whole, torch.tensor([2]), 1, draws=2)
    assert one.neighbors == 1 / 2 and one.edges == 1 / 5


@pytest.mark.parametrize(
    ("name", "variant"), [(name, variant) for name, of in VARIANTS.items() for variant in of]
)
def test_a_sampler_uses_the_share_that_it_was_fitted_to(name: str, variant: str) -> None:
    sampler = fitted(name, variant, GRAPH, LABELED, 2, 0.2)
    found = neighbor_use(sampler, GRAPH, LABELED, 2, draws=40)
    assert found.neighbors == pytest.approx(0.2, abs=0.03)
    star = sampler.effective(GRAPH)
    if star is not None:  # as much weight as A on its edges, up to how weights and p* go together
        assert float(star.weight.sum() / GRAPH.weight.sum()) == pytest.approx(1, abs=0.2)


def test_shares_of_least_variance_have_less_of_it_than_even_ones() -> None:
    degree, norm = GRAPH.degree().double(), column_norms(GRAPH)

    def variance(variant: str) -> float:
        sampler = fitted("degree groups", variant, GRAPH, LABELED, 2, 0.2)
        group, size, drawn, _ = sampler.groups_of(GRAPH)
        share = drawn / size
        assert float((share[group] * degree).sum() / degree.sum()) == pytest.approx(0.2, abs=0.03)
        return float((norm * (1 / share[group] - 1)).sum())

    assert variance("shares of least variance") < 0.97 * variance("even shares")


def test_options_are_those_of_the_gcn_and_every_variant_is_a_candidate() -> None:
    tried: tuple[dict[str, float], ...] = ({}, {"dropout": 0.5, "weight_decay": 5e-4})
    first, second = (one.trial for one in candidates("Cora", tried, 0.1, ("FastGCN",)))
    assert second.network == replace(first.network, dropout=0.5)
    assert second.optimizer == replace(first.optimizer, weight_decay=5e-4)
    found = candidates("Cora", ({},), 0.1)
    variants = [(name, variant) for name in NAMES for variant in VARIANTS.get(name, ("",))]
    assert [(one.sampler, one.variant) for one in found] == variants
    for one in found:
        assert one.budget == (0.1 if one.sampler in VARIANTS else 1.0)
        zoo.build(one.trial.model, zoo.NetworkConfig(), num_features=3, num_classes=2)
