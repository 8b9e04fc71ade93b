"""The benchmark of the GPT-2-style model: both are measured, after they were compared."""

from types import ModuleType

import pytest
import torch

pytest.importorskip("transformers")


def test_a_quick_run_measures_both(module: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    module.main(threads=torch.get_num_threads(), quick=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert any(line.startswith("training step, Hugging Face GPT-2 over graph") for line in lines)


def test_another_model_is_not_timed(module: ModuleType) -> None:
    ours, theirs = module.pair(9, 8, 2, 2)
    ours.blocks[1].mlp.fc2.weight.data.mul_(2)
    with pytest.raises(AssertionError, match="differ"):
        module.assert_same(ours, theirs, torch.randn(2, 9, 8), None)
