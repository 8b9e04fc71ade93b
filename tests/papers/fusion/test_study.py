from dataclasses import replace
from math import isnan
from typing import Any

import pytest

from graphtheory.bench.contrastive import ContrastiveRecipe
from graphtheory.papers.fusion import study as studies

TINY = ContrastiveRecipe(depth=2, width=16, heads=2, batch_size=16, epochs=1, limit=1)


def row(head: str, lr: float, seed: int, val: float, probe: float) -> dict[str, Any]:
    return {"head": head, "at": None, "lr": lr, "seed": seed, "val": val, "probe": probe}


def test_validation_chooses_the_step_size_and_the_test_does_not() -> None:
    rows = [row("mlp", lr, s, val, probe)
            for lr, val, probe in ((0.1, 0.8, 0.5), (0.3, 0.7, 0.9)) for s in (0, 1)]  # fmt: skip
    assert {r["lr"] for r in studies.chosen(rows)} == {0.1}


def test_gains_are_paired_by_seed() -> None:
    rows = [row("transformer", 0.1, s, 0, 0.5 + s / 10) for s in range(3)]
    rows += [row("mlp", 0.1, s, 0, 0.4 + s / 10) for s in range(3)]
    mean, half = studies.gain(rows, "probe")
    assert mean == pytest.approx(0.1) and half == pytest.approx(0, abs=1e-12)
    assert studies.interval([1.0, 3.0])[1] == pytest.approx(12.7062, rel=1e-4)
    assert isnan(studies.interval([1.0])[1])


def test_a_backbone_as_drawn_is_scored_once_a_seed() -> None:
    pytest.importorskip("kornia", reason="kornia is not installed")
    study = studies.HeadStudy(TINY, ("untrained",), seeds=1)
    (row,) = study.run()
    assert row["lr"] == study.lrs[0] and 0.1 < row["nearest"] <= 1


def test_every_setting_is_a_step_of_its_own() -> None:
    study = replace(studies.temperatures(TINY), seeds=2)
    steps = study.steps()
    assert len(steps) == len({str(s.settings) for s in steps}) == 7 * 2 * 2
    assert {s.settings["temperature"] for s in steps} == set(study.values)


def test_attention_is_measured_before_and_after_and_drawn_in_order_of_class() -> None:
    pytest.importorskip("kornia", reason="kornia is not installed")
    study = studies.AttentionStudy(TINY, seeds=1, samples=40)
    rows = study.run()
    measured = [r for r in rows if r["kind"] != "map"]
    assert [(r["kind"], r["layer"]) for r in measured] == [
        ("drawn", 1), ("drawn", 2), ("learned", 1), ("learned", 2),
    ]  # fmt: skip
    assert measured[0]["mass"] != measured[2]["mass"]
    maps = [r for r in rows if r["kind"] == "map"]
    assert [r["layer"] for r in maps] == [1, 2]
    assert maps[0]["labels"] == sorted(maps[0]["labels"])
    assert sum(maps[0]["weights"][3]) == pytest.approx(1, abs=1e-3)
    assert studies.slopes(rows, "learned", "mass") == [
        pytest.approx(measured[3]["mass"] - measured[2]["mass"])
    ]
