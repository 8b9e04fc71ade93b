import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphtheory.cli import main
from graphtheory.papers.shallow_vit import background_study
from graphtheory.papers.shallow_vit.background_report import backgrounds
from graphtheory.papers.shallow_vit.background_study import (
    DRAWN,
    EIGHT,
    BackgroundStudy,
    SpuriousStudy,
    study,
)

ALPHAS = (0.64, 0.8, 1.0)


def rows_of(labels: tuple[int, ...], slope: float) -> list[dict[str, Any]]:
    """Accuracies of 0.8 where N alpha_*^2 is 200."""
    return [
        {"kept": 16, "alpha_star": a, "labels": n, "seed": s,
         "accuracy": 0.8 + slope * (n * a**2 / 200 - 1) + 0.001 * s}
        for a in ALPHAS for n in labels for s in range(3)
    ]  # fmt: skip


def test_claims_that_hold_and_claims_that_do_not() -> None:
    grid = study("fig-2-6a", "digits")
    made = backgrounds("fig-2-6a", grid, rows_of((300, 900), 0.02))
    assert made.verdict.count("holds") == 5 and "not found" not in made.verdict
    made = backgrounds("fig-2-6a", grid, rows_of((300, 900), -0.02))
    assert made.verdict.count("not found") == 5
    needed = study("fig-2-6b", "digits")
    assert isinstance(needed, BackgroundStudy)
    needed = replace(needed, target=0.8)
    made = backgrounds("fig-2-6b", needed, rows_of((100, 300, 900), 0.02))
    assert "Images ~ alpha_*^-2" in made.verdict and made.picture is not None
    assert any(r.name == "fig-2-6b exponent of the images" for r in made.rows)


def test_the_gap_between_backgrounds() -> None:
    spurious = study("fig-2-6c", "digits")
    assert isinstance(spurious, SpuriousStudy)
    rows = [
        {"start": start, "kept": 16, "alpha_star": a, "seed": s, "accuracy": a / 2 + 0.1 * more,
         "agreeing": 0.9, "conflicting": a - 0.1 - 0.01 * s}
        for more, start in enumerate((DRAWN, EIGHT)) for a in ALPHAS for s in range(3)
    ]  # fmt: skip
    made = backgrounds("fig-2-6c", spurious, rows)
    assert made.verdict.count("holds") == 4
    assert "+10.0 points on average, ahead in 9 of 9 runs" in made.verdict
    gap = next(r for r in made.rows if "gap" in r.name and r.parameters["alpha_star"] == 0.64)
    assert gap.value == pytest.approx(0.9 - 0.53)


@pytest.mark.parametrize("figure", ["fig-2-6b", "fig-2-6c"])
def test_a_figure_prints_its_rows_and_draws(
    figure: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = background_study.quick(study(figure, "digits"))
    small = replace(small, scene=replace(small.scene, updates=2), seeds=1)
    monkeypatch.setattr(background_study, "quick", lambda given: small)
    assert main(["reproduce", figure, "--quick", "--out", str(tmp_path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    found = json.loads((tmp_path / f"{figure}-digits.json").read_text())
    assert found["verdict"] in printed and found["rows"][0]["seed"] == 0
    assert (tmp_path / f"{figure}-digits.png").read_bytes()[:4] == b"\x89PNG"
