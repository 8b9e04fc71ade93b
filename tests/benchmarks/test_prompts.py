"""The benchmark of drawing prompts runs and counts prompts, not calls."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_a_quick_run_draws_every_kind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    for path in BENCHMARKS.glob("*.py"):  # what it imports beside it is forgotten afterwards
        monkeypatch.setitem(sys.modules, path.stem, None)
        del sys.modules[path.stem]
    prompts = importlib.import_module("prompts")
    prompts.main(threads=torch.get_num_threads(), quick=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all("1/s" in line for line in lines)
    drawn = prompts.draws(7, 5, 30)
    assert len(drawn["in-context prompts"]()) == 7
    assert drawn["in-context prompts, as columns"]().shape == (7, 6, 60)
    assert len(drawn["linear regression"]()) == 7
    assert len(drawn["chains of thought"]().query) == 7
