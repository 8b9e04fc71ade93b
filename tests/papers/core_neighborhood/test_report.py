"""Verdicts of figures 3.4 and 3.5, on rows that were made up."""

from dataclasses import replace
from typing import Any

import pytest

from graphtheory.papers.core_neighborhood import study as core_neighborhood_study
from graphtheory.papers.core_neighborhood.report import core_neighborhood

SEEDS = 3


def curves(value: float, rise: float) -> list[dict[str, Any]]:
    """Loss that settles at `value` times 2 eps_0, later with eps_0; attention that rises."""
    cases = [c.name for f in ("fig-3-4", "fig-3-5") for c in core_neighborhood_study.study(f).cases]
    return [
        {"case": case, "eps_0": eps, "gamma_d": 0.2, "seed": seed, "step": step, "error": 0.0,
         "hinge": 2 * eps * value if step > 100 * eps else 1.0 + 0.001 * seed,
         "mass": (mass := 0.2 + rise * step / 40 + 0.001 * seed), "decisive": mass, "other": mass}
        for case in dict.fromkeys(cases) for eps in (0.0, 0.05, 0.1, 0.15)
        for seed in range(SEEDS) for step in (0, 10, 20, 30, 40)
    ]  # fmt: skip


def of_curves(figure: str, rows: list[dict[str, Any]], seeds: int = SEEDS) -> str:
    study = replace(core_neighborhood_study.study(figure), seeds=seeds)
    return core_neighborhood(figure, study, rows).verdict


def test_a_loss_that_settles_at_twice_the_share_of_flipped_labels() -> None:
    told = of_curves("fig-3-4", curves(1.1, 0.0))
    assert "1.10 [1.10, 1.10] for eps_0 = 0.15, claimed near 1 (within a quarter): holds." in told
    assert "claimed to rise: holds." in told
    told = of_curves("fig-3-4", curves(1.4, 0.0))
    assert "(within a quarter): not found." in told
    together = [r | {"hinge": 2 * r["eps_0"] if r["step"] else 1.0} for r in curves(1.0, 0.0)]
    assert "claimed to rise: not found." in of_curves("fig-3-4", together)
    assert of_curves("fig-3-4", together, seeds=2).count("no verdict") == 2


@pytest.mark.parametrize(
    ("rise", "word"), [(0.79, "holds."), (0.4, "holds in part."), (-0.1, "not found.")]
)
def test_attention_that_rises_to_1(rise: float, word: str) -> None:
    rows = [r for r in curves(1.0, rise) if r["eps_0"] == 0]
    told = of_curves("fig-3-5", rows)
    assert told.count(f"claimed to rise to 1 (above 0.95): {word}") == 3
