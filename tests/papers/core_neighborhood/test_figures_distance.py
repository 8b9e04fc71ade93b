from dataclasses import replace
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from graphtheory.lab.bench.node_config import load, task_of, tuned_config
from graphtheory.lab.bench.task import trainable
from graphtheory.papers.core_neighborhood import figures_distance, figures_labels
from graphtheory.papers.core_neighborhood.figures_distance import (
    FIGURES,
    Distances,
    Network,
    PrintedDistances,
    curve,
    distance_rows,
    printed,
    printed_scores,
    summary,
    up_to,
    values,
)
from graphtheory.papers.core_neighborhood.figures_labels import (
    MODELS,
    at_least_as_large,
    parameters,
)
from tests.lab.bench.conftest import Listen

SMALL = Distances("karate", seeds=1, networks=up_to(2), samples=3, num_buckets=4, epochs=2)
FIGURE, DISTANCES, LABELS = FIGURES


def rows_of(kind: str, values: dict[int, float], seed: int = 0) -> list[dict[str, Any]]:
    return [{"kind": kind, "z": z, "seed": seed, "value": v} for z, v in values.items()]


def test_rows_of_a_small_study() -> None:
    told: list[tuple[str, int, int]] = []
    rows = SMALL.measure(values, lambda *args: told.append(args))
    assert [(r["kind"], r["z"]) for r in rows] == [
        ("majority", -1),
        *(("b", z) for z in range(4)),
        ("model", 1),
        ("control", 1),
        ("model", 2),
        ("control", 2),
    ]
    assert [t[0] for t in told] == [
        f"seed 0, {name}"
        for name in (
            "learned bias",
            *("model at distance 1", "control at distance 1"),
            *("model at distance 2", "control at distance 2"),
        )
    ]
    assert [t[1:] for t in told] == [(i, 5) for i in range(5)]
    data = load("karate", None, None, 0, degree=False)
    common = data.y[data.train_mask].mode().values
    share = (data.y[data.test_mask] == common).float().mean()
    assert rows[0]["value"] == pytest.approx(float(share))
    assert SMALL.measure(values) == rows


def test_only_the_control_has_a_frozen_query(listen: Listen) -> None:
    trained = listen(figures_distance)
    replace(SMALL, networks=(SMALL.networks[0], *SMALL.networks[3:])).measure(values)
    networks = [trial.network for trial, _ in trained]
    assert [(n.neighbors, n.frozen_query) for n in networks] == [
        ("all:3", False),
        ("=2:3", False),
        ("=2:3", True),
    ]
    for n in networks:  # one layer of one head that has nothing but its neighbors
        assert (n.layers, n.heads, n.root_weight, n.num_buckets) == (1, 1, False, 4)


def test_a_curve_gathers_seeds_and_a_flat_one_has_no_trend() -> None:
    rows = rows_of("model", {1: 0.5, 2: 0.4}) + rows_of("model", {1: 0.7}, seed=1)
    assert curve(rows + rows_of("b", {1: 9.0}), "model") == {1: [0.5, 0.7], 2: [0.4]}
    rows = [
        *rows_of("majority", {-1: 0.3}),
        *rows_of("b", {1: 2.0, 2: 1.0}),
        *rows_of("model", {1: 0.5, 2: 0.5}),
        *rows_of("control", {1: 0.1, 2: 0.2}),
    ]
    assert torch.tensor(summary(rows)["model"]["spearman"]).isnan()


def test_summary_by_hand() -> None:
    rows = [
        *rows_of("majority", {-1: 0.3}),
        *rows_of("b", {0: 5.0, 1: 2.0, 2: 1.0, 3: 0.0}),
        *rows_of("model", {1: 0.7, 2: 0.5, 3: 0.6}),
        *rows_of("model", {1: 0.9, 2: 0.7, 3: 0.6}, seed=1),
        *rows_of("control", {1: 0.1, 2: 0.2, 3: 0.3}),
    ]
    found = summary(rows)
    assert found["majority"] == pytest.approx(0.3)
    assert found["b"] == {1: 2.0, 2: 1.0, 3: 0.0} and found["b_peak"] == 1  # z = 0 has no model
    assert found["model"]["accuracy"] == pytest.approx({1: 0.8, 2: 0.6, 3: 0.6})
    assert found["model"]["peak"] == 1
    # Ranks of 0.8, 0.6, 0.6 are 3, 1.5, 1.5 beside 3, 2, 1.
    assert found["model"]["spearman"] == pytest.approx(3**0.5 / 2)
    assert found["control"]["spearman"] == pytest.approx(-1) and found["control"]["peak"] == 3


def test_a_graph_brings_the_scaling_that_the_search_chose() -> None:
    scaled = [FIGURE.settings(name).row_scale for name in ("Cora", "karate", "Actor")]
    assert scaled == [tuned_config(n, "gt")[0].row_scale for n in ("Cora", "karate", "Actor")]
    assert len(set(scaled)) == 2
    assert len(FIGURE.settings("Cora").cells()) == 3 * 13


def test_rows_for_a_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Distances, int, str]] = []

    def run(grid: Distances, seed: int, network: figures_distance.Network) -> list[dict[str, Any]]:
        asked.append((grid, seed, network.name))
        return [{"kind": network.kind, "z": network.z, "seed": seed, "value": 0.5}]

    monkeypatch.setattr(figures_distance, "values", run)
    rows = distance_rows("karate", None, 1, epochs=7)
    assert [row["kind"] for row in rows] == ["b", "model", "control"]
    assert {(grid.epochs, grid.dataset, seed) for grid, seed, _ in asked} == {(7, "karate", 0)}


def test_the_report_of_a_small_grid() -> None:
    rows = [
        *rows_of("majority", {-1: 0.3}),
        *rows_of("b", {0: 5.0, 1: 2.0, 2: 1.0, 3: 0.0}),
        *rows_of("model", {1: 0.7, 2: 0.5}),
        *rows_of("control", {1: 0.1, 2: 0.2}),
    ]
    made = FIGURE.report(replace(SMALL, seeds=1), rows)
    assert made.table.rows == [["1", "70.0", "10.0", "2.000"], ["2", "50.0", "20.0", "1.000"]]
    assert "model: Spearman's correlation of accuracy and b_z over z is 1.00" in made.verdict
    assert "alone gives 30.0 %" in made.verdict
    first = made.rows[0]
    assert first.name == "fig-3-8 test accuracy"
    assert first.parameters == {"dataset": "karate", "z": 1} and made.picture is not None


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
