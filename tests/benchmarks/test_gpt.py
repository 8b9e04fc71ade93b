"""The benchmark of the GPT-2-style model: both are measured, after they were compared."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

pytest.importorskip("transformers")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def gpt(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script; what it imports beside it is forgotten afterwards."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    for path in BENCHMARKS.glob("*.py"):
        monkeypatch.setitem(sys.modules, path.stem, None)
        del sys.modules[path.stem]
    return importlib.import_module("gpt")


def test_a_quick_run_measures_both(gpt: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    gpt.main(threads=torch.get_num_threads(), quick=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert any(line.startswith("training step, Hugging Face GPT-2 over graph") for line in lines)


def test_another_model_is_not_timed(gpt: ModuleType) -> None:
    ours, theirs = gpt.pair(9, 8, 2, 2)
    ours.blocks[1].mlp.fc2.weight.data.mul_(2)
    with pytest.raises(AssertionError, match="differ"):
        gpt.assert_same(ours, theirs, torch.randn(2, 9, 8), None)
