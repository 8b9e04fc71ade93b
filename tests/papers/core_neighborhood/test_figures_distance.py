from dataclasses import replace
from typing import Any

import pytest
import torch

from graphtheory.lab.bench.node_config import load, tuned_config
from graphtheory.papers.core_neighborhood import figures_distance
from graphtheory.papers.core_neighborhood.figures_distance import (
    FIGURES,
    Distances,
    curve,
    distance_rows,
    summary,
    up_to,
    values,
)
from tests.lab.bench.conftest import Listen

SMALL = Distances("karate", seeds=1, networks=up_to(2), samples=3, num_buckets=4, epochs=2)
(FIGURE,) = FIGURES


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
