"""The benchmark of the GPT-2-style model: both are measured, after they were compared."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch

pytest.importorskip("transformers")


@pytest.fixture
def gpt(script: Callable[[str], ModuleType]) -> ModuleType:
    """The script."""
    return script("gpt")


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
