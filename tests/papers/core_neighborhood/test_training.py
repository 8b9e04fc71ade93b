from dataclasses import replace

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood
from graphtheory.lab.datasets.embedded import CoreNeighborhoodGraph
from graphtheory.papers.core_neighborhood import training as core
from graphtheory.papers.core_neighborhood.training import GCN, Graph, Learner
from graphtheory.structure import core_distance, count_by_distance, winning_margin

SMALL = CoreNeighborhoodGraph(num_nodes=80, degree=15, eps_s=0.2, num_patterns=5, dim=8)
LEARNER = Learner(steps=3, batch_size=4, width=12, embedding=10, samples=5)


@pytest.mark.parametrize("variant", ["printed", "regular"])
def test_the_core_distance_is_one(variant: str) -> None:
    graph = core.draw(replace(SMALL, variant=variant), 10, seed=0)
    assert graph.ball.distance is not None
    kind = torch.where(graph.pattern < 2, graph.pattern, -1)
    counts = count_by_distance(graph.ball.keep(graph.ball.distance == 1), kind, 2, max_distance=3)
    label = torch.where(graph.y > 0, 0, 1)
    assert core_distance(winning_margin(counts, label)) == core.CORE


def test_a_trial_is_that_of_its_seed_whatever_the_labels() -> None:
    few, more = (core.draw(SMALL, labels, seed=3) for labels in (5, 9))
    assert torch.equal(few.x, more.x) and torch.equal(few.labeled, more.labeled[:5])
    assert not torch.equal(few.x, core.draw(SMALL, 5, seed=4).x)
    assert set(few.y.tolist()) == {1.0, -1.0}
    assert bool((few.y[few.pattern == 0] == 1).all() and (few.y[few.pattern == 1] == -1).all())
    assert few.rest().sum() == 75 and not few.rest()[few.labeled].any()


def test_whom_the_networks_hear_and_as_many_links_as_there_are_nodes() -> None:
    graph = core.draw(SMALL, 5, seed=0)
    gt, gcn = graph.neighbors(core.GT), graph.neighbors(GCN)
    assert gt.distance is not None and gt.distance.unique().tolist() == [0, 1, 2]
    assert gcn.distance is not None and gcn.distance.unique().tolist() == [1]
    for network, distances in ((core.GT, {1, 2}), (GCN, {1})):
        rows = graph.candidates(network)
        assert rows.distance is not None and set(rows.distance.tolist()) == distances
        assert set(rows.targets().tolist()) == set(graph.labeled.tolist())
    graph = CoreNeighborhoodGraph(gamma_d=0.2, eps_s=0.0, degree=0)
    assert core.capped(graph).degree == 100
    assert core.capped(replace(graph, variant="regular")).degree == 99
    assert core.capped(replace(graph, gamma_d=0.4)).degree == 120


def test_only_what_learns_changes() -> None:
    graphs = [core.draw(SMALL, 6, seed) for seed in range(2)]
    gt, steps = core.run(LEARNER, graphs, 0)
    gcn, _ = core.run(replace(LEARNER, network=GCN), graphs, 0)
    assert steps == 3 and bool(gt.b.any())
    assert not gcn.W_K.any() and not gcn.W_Q.any() and gcn.b.numel() == 0
    again, _ = core.run(LEARNER, graphs, 0)
    assert torch.equal(gt.W_O, again.W_O)


def test_loss_error_and_attention_by_hand() -> None:
    graph = core.draw(SMALL, 6, seed=0)
    model, _ = core.run(LEARNER, [graph], 0)
    with torch.no_grad():
        out = model(graph.x, graph.ball)[0]
        weights = model.attention(graph.x, graph.ball)[:, 0]
    rest = [n for n in range(80) if n not in graph.labeled.tolist()]
    margins = [float(graph.y[n] * out[n]) for n in rest]
    (found,) = core.evaluate(model, [graph], core.GT)
    assert found.hinge == pytest.approx(sum(max(1 - m, 0) for m in margins) / 74, rel=1e-4)
    assert found.error == pytest.approx(sum(m <= 0 for m in margins) / 74)
    (mass,) = core.relevant_mass(model, [graph])
    assert mass["mass"] == pytest.approx(_mass(graph, graph.ball, weights), rel=1e-4)


def _mass(graph: Graph, rows: Neighborhood, weights: Tensor) -> float:
    total = 0.0
    for n in graph.labeled.tolist():
        for e in range(int(rows.indptr[n]), int(rows.indptr[n + 1])):
            own = 0 if graph.y[n] > 0 else 1
            if graph.pattern[rows.indices[e]] == own:
                total += float(weights[e])
    return total / len(graph.labeled)
