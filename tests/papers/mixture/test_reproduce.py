"""The figures of images with a minority from the command line to their files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from graphtheory.cli import main
from graphtheory.papers.mixture import image_study as group_images


@pytest.mark.parametrize(
    ("figure", "told"),
    [
        ("fig-4-1", ("claimed to rise and then to fall", "delta^2 = 100")),
        ("fig-4-8", ("bright minority, both groups", "claimed accuracy rises")),
    ],
)
def test_a_figure_prints_and_draws(
    figure: str, told: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    study = group_images.STUDIES[figure]
    tiny = group_images.Recipe(total=100, copies=5, epochs=1, widths=(4,))
    small = replace(study, recipe=tiny, values=(study.values[0], study.values[-1]), seeds=2)
    monkeypatch.setattr(group_images, "quick", lambda given: small)
    assert main(["reproduce", figure, "--quick", "--out", str(tmp_path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert all(text in printed for text in told)
    found = json.loads((tmp_path / f"{figure}-digits.json").read_text())
    assert found["verdict"] in printed
    assert (tmp_path / f"{figure}-digits.csv").exists()
    assert (tmp_path / f"{figure}-digits.png").read_bytes()[:4] == b"\x89PNG"


def test_a_set_without_groups_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "fig-4-8", "--dataset", "cifar10"]) != 0
    assert "fig-4-8 has no cifar10, expected digits, mnist" in capsys.readouterr().err
