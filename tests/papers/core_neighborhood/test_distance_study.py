from dataclasses import replace
from typing import Any

import pytest
import torch

from graphtheory.bench.trial import load
from graphtheory.papers.core_neighborhood import distance_study
from graphtheory.papers.core_neighborhood.distance_study import DistanceStudy, curve, verdict
from tests.bench.conftest import Listen

SMALL = DistanceStudy("karate", distances=(1, 2), seeds=1, samples=3, num_buckets=4, epochs=2)


def rows_of(kind: str, values: dict[int, float], seed: int = 0) -> list[dict[str, Any]]:
    return [{"kind": kind, "z": z, "seed": seed, "value": v} for z, v in values.items()]


def test_rows_of_a_small_study() -> None:
    told: list[tuple[str, int, int]] = []
    rows = SMALL.run(lambda *args: told.append(args))
    assert [(r["kind"], r["z"]) for r in rows] == [
        ("majority", -1),
        *(("b", z) for z in range(4)),
        ("model", 1),
        ("control", 1),
        ("model", 2),
        ("control", 2),
    ]
    assert [t[0] for t in told] == ["b all:3", "model =1:3", "control =1:3", "model =2:3",
                                    "control =2:3"]  # fmt: skip
    assert [t[1:] for t in told] == [(i, 5) for i in range(5)]
    data = load("karate", None, None, 0, degree=False)
    common = data.y[data.train_mask].mode().values
    share = (data.y[data.test_mask] == common).float().mean()
    assert rows[0]["value"] == pytest.approx(float(share))
    assert SMALL.run() == rows


def test_only_the_control_has_a_frozen_query(listen: Listen) -> None:
    trained = listen(distance_study)
    replace(SMALL, distances=(2,)).run()
    networks = [trial.network for trial, _ in trained]
    assert [(n.neighbors, n.frozen_query) for n in networks] == [
        ("all:3", False),
        ("=2:3", False),
        ("=2:3", True),
    ]
    for n in networks:  # one layer of one head that has nothing but its neighbours
        assert (n.layers, n.heads, n.root_weight, n.num_buckets) == (1, 1, False, 4)


def test_curve_gathers_seeds() -> None:
    rows = rows_of("model", {1: 0.5, 2: 0.4}) + rows_of("model", {1: 0.7}, seed=1)
    assert curve(rows + rows_of("b", {1: 9.0}), "model") == {1: [0.5, 0.7], 2: [0.4]}


def test_verdict_by_hand() -> None:
    rows = [
        *rows_of("majority", {-1: 0.3}),
        *rows_of("b", {0: 5.0, 1: 2.0, 2: 1.0, 3: 0.0}),
        *rows_of("model", {1: 0.7, 2: 0.5, 3: 0.6}),
        *rows_of("model", {1: 0.9, 2: 0.7, 3: 0.6}, seed=1),
        *rows_of("control", {1: 0.1, 2: 0.2, 3: 0.3}),
    ]
    found = verdict(rows)
    assert found["majority"] == pytest.approx(0.3)
    assert found["b"] == {1: 2.0, 2: 1.0, 3: 0.0} and found["b_peak"] == 1  # z = 0 has no model
    assert found["model"]["accuracy"] == pytest.approx({1: 0.8, 2: 0.6, 3: 0.6})
    assert found["model"]["peak"] == 1
    # Ranks of 0.8, 0.6, 0.6 are 3, 1.5, 1.5 beside 3, 2, 1.
    assert found["model"]["spearman"] == pytest.approx(3**0.5 / 2)
    assert found["control"]["spearman"] == pytest.approx(-1) and found["control"]["peak"] == 3


def test_a_flat_curve_has_no_trend() -> None:
    rows = [
        *rows_of("majority", {-1: 0.3}),
        *rows_of("b", {1: 2.0, 2: 1.0}),
        *rows_of("model", {1: 0.5, 2: 0.5}),
        *rows_of("control", {1: 0.1, 2: 0.2}),
    ]
    assert torch.tensor(verdict(rows)["model"]["spearman"]).isnan()
