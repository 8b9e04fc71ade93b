from dataclasses import replace

import pytest

from graphtheory.papers.shallow_vit import backgrounds as scenes
from graphtheory.papers.shallow_vit.figures_backgrounds import (
    AGREEING,
    CONFLICTING,
    DRAWN,
    FIGURES,
    PRETRAINED,
    Spurious,
    gaps,
)

(FIGURE,) = FIGURES


def test_rows_of_backgrounds_that_say_the_class() -> None:
    scene = replace(scenes.SCENES["digits"], updates=2, batch_size=16)
    rows = Spurious(scene=scene, kept=(16,), labels=100, seeds=1).measure(gaps)
    assert [row["start"] for row in rows] == [DRAWN, PRETRAINED]
    for row in rows:
        assert row["accuracy"] == pytest.approx((row[AGREEING] + row[CONFLICTING]) / 2)
        assert row[AGREEING] == row[CONFLICTING] and row["gap"] == 0  # no background is left


def test_the_gap_between_backgrounds() -> None:
    rows = [
        {"start": start, "kept": 16, "alpha_star": a, "seed": s, "accuracy": a / 2 + 0.1 * more,
         "agreeing": 0.9, "conflicting": a - 0.1 - 0.01 * s, "gap": 1.0 - a + 0.01 * s}
        for more, start in enumerate((DRAWN, PRETRAINED)) for a in (0.64, 0.8, 1.0)
        for s in range(3)
    ]  # fmt: skip
    made = FIGURE.report(FIGURE.settings("digits"), rows)
    assert made.verdict.count("holds") == 4
    assert "+10.0 points on average, ahead in 9 of 9 runs" in made.verdict
    gap = next(r for r in made.rows if "gap" in r.name and r.parameters["alpha_star"] == 0.64)
    assert gap.value == pytest.approx(0.37)
    assert list(made.table.rows[0]) == ["drawn weights", "test accuracy", "32.0", "40.0", "50.0"]
