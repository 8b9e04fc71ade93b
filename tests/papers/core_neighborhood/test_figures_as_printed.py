"""Figures 3.8 and 3.9 in the printed setting."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from graphtheory.lab.bench.config import trainable
from graphtheory.lab.bench.node_config import load, task_of
from graphtheory.papers.core_neighborhood import figures_distance, figures_labels
from graphtheory.papers.core_neighborhood.figures_as_printed import (
    FIGURES,
    PrintedDistances,
    printed,
    printed_scores,
)
from graphtheory.papers.core_neighborhood.figures_distance import Network, values
from graphtheory.papers.core_neighborhood.figures_labels import (
    MODELS,
    at_least_as_large,
    parameters,
)
from tests.lab.bench.conftest import Listen

DISTANCES, LABELS = FIGURES


def test_parameters_are_those_of_the_network() -> None:
    data = load("karate", None, None, 0, **printed("gt").inputs)
    for model in MODELS:
        task, _ = task_of(printed(model), data, 0)
        assert parameters(printed(model), data) == trainable(task.model)


@pytest.mark.parametrize(("features", "classes"), [(500, 3), (932, 5), (14, 3)])
def test_the_gcn_is_larger_by_10_percent_at_most(features: int, classes: int) -> None:
    data = Data(x=torch.zeros(2, features), num_classes=classes)
    gt, gcn = printed("gt"), at_least_as_large(printed("gcn"), printed("gt"), data)
    least = parameters(gt, data)
    assert least <= parameters(gcn, data) <= 1.1 * least
    narrower = replace(gcn, network=replace(gcn.network, hidden=gcn.network.hidden - 1))
    assert parameters(narrower, data) < least


def test_networks_have_the_printed_sizes(listen: Listen) -> None:
    trained = listen(figures_distance)
    grid = replace(
        DISTANCES.settings("karate"), seeds=1, epochs=1,
        networks=(Network("b"), Network("control", 0), Network("model", 3)),
    )  # fmt: skip
    rows = grid.measure(values)
    networks = [trial.network for trial, _ in trained]
    assert [n.neighbors for n in networks] == ["all:20", "=0:20", "=3:20"]
    assert {(n.layers, n.heads, n.num_buckets) for n in networks} == {(4, 4, 20)}
    assert [r["z"] for r in rows if r["kind"] == "b"] == list(range(20))


def test_the_control_depends_on_no_other_node() -> None:
    grid = PrintedDistances("karate")
    trial = grid.trial(Network("control", 0))
    data = load("karate", None, None, 0, **trial.inputs)
    task, batches = task_of(trial, data, 0)
    task.model.eval()
    batch = batches.train_batch(epoch=0)
    x = batch.x.to_dense() if batch.x.layout != torch.strided else batch.x
    before = task.model(x, batch.neighborhood)
    x = x.clone()
    x[1:] += 1
    after = task.model(x, batch.neighborhood)
    assert torch.allclose(before[0], after[0]) and not torch.allclose(before[1], after[1])


def distances(accuracy: Any, seeds: int = 3) -> list[dict[str, Any]]:
    rows = []
    for seed in range(seeds):
        found = [("majority", -1, 0.3), ("control", 0, 0.5)]
        found += [("b", z, 3.0 - z) for z in range(4)]
        found += [("model", z, accuracy(z) + seed / 1e3) for z in (1, 2, 3)]
        rows += [{"kind": k, "z": z, "seed": seed, "value": value} for k, z, value in found]
    return rows


def test_trend_and_peak_by_hand() -> None:
    grid = DISTANCES.settings("karate")
    made = DISTANCES.report(grid, distances(lambda z: 0.9 - z / 10))
    assert "over z is 1.00 (p = 0), claimed to have the same trend: holds" in made.verdict
    assert "z = 1, b_z at z = 1, claimed at the same: holds" in made.verdict
    assert "that of the node alone 50.0 %" in made.verdict
    assert made.table.rows[0] == ["1", "80.1", "2.000"] and made.table.note
    assert made.table.title.startswith("Figure 3.8 printed on karate")
    assert made.rows[0].parameters == {"dataset": "karate"} and made.picture is not None
    rows = distances(lambda z: {1: 0.6, 2: 0.5, 3: 0.55}[z])  # the order of one pair is wrong
    told = DISTANCES.report(grid, rows).verdict
    assert "over z is 0.50 (p = 0.33), claimed to have the same trend: not found" in told
    other = DISTANCES.report(grid, distances(lambda z: 0.5 + z / 10)).verdict
    assert "same trend: not found" in other and "claimed at the same: not found" in other


def test_scores_of_the_printed_networks(listen: Listen) -> None:
    trained = listen(figures_labels)
    grid = LABELS.settings("karate", seeds=1)
    recipes = tuple(replace(recipe, epochs=1) for recipe in grid.recipes)
    rows = replace(grid, shares=(1.0,), recipes=recipes).measure(printed_scores)
    assert [row["model"] for row in rows] == list(MODELS)
    encoded, plain, gcn = (trial for trial, _ in trained)
    assert plain == replace(encoded, model="gt-plain")
    assert encoded == printed("gt") and gcn.network.layers == 4
    gt, _, of_gcn = (row["parameters"] for row in rows)
    assert gt <= of_gcn <= 1.1 * gt
    made = LABELS.report(grid, rows)
    assert f"Parameters: gt {gt:,}" in made.verdict and "more than gt." in made.verdict
    assert made.rows[-1].name == "fig-3-9-printed parameters"
