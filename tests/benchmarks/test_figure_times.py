"""Figures run once more: which settings are timed, and how rows are compared."""

import csv
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from graphtheory.lab.bench.rows import Environment, Row, write_csv


def test_the_first_settings_lie_far_apart(module: ModuleType) -> None:
    spread = module.spread
    assert all(sorted(spread(count)) == list(range(count)) for count in range(1, 40))
    assert min(abs(a - b) for a in spread(30)[:4] for b in spread(30)[:4] if a != b) >= 4


@pytest.mark.parametrize(("found", "share", "off"), [
    ([0.5, 0.25], 1.0, 0.0),
    ([0.5 + 1e-8, 0.25], 1.0, 0.0),
    ([0.5, 0.2], 0.5, 0.1),
    ([0.5, 0.25, 1.0], 2 / 3, 1.0),  # one that was not committed
])  # fmt: skip
def test_rows_beside_the_committed_ones(
    found: list[float], share: float, off: float, module: ModuleType,
    tmp_path: Path,
) -> None:  # fmt: skip
    def rows(values: list[float]) -> list[Row]:
        return [Row.of("error", value, "1", seed=seed) for seed, value in enumerate(values)]

    write_csv(tmp_path / "fig.csv", rows([0.5, 0.25]), Environment.here())
    report = SimpleNamespace(rows=rows(found))
    compared = module.beside_committed(report, tmp_path / "fig.csv", figure="fig")
    assert [row.value for row in compared] == pytest.approx([share, off])
    assert compared[0].repeats == len(found)


def test_a_figure_agrees_with_its_own_rows(
    module: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    out = tmp_path / "whole.csv"
    module.main("whole", only=("kvt-lemma-3",), out=out)
    assert "share of rows that agree to rounding" in capsys.readouterr().out
    with out.open(newline="") as file:
        time, share, others = csv.DictReader(file)
    assert float(time["value"]) > 0
    assert float(share["value"]) == 1 and int(share["repeats"]) == 18
    assert float(others["value"]) == 0
