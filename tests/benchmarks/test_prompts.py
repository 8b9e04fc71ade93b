"""The benchmark of drawing prompts runs and counts prompts, not calls."""

from types import ModuleType

import pytest
import torch


def test_a_quick_run_draws_every_kind(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    module.main(threads=torch.get_num_threads(), quick=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all("1/s" in line for line in lines)
    drawn = module.draws(7, 5, 30)
    assert len(drawn["in-context prompts"]()) == 7
    assert drawn["in-context prompts, as columns"]().shape == (7, 6, 60)
    assert len(drawn["linear regression"]()) == 7
    assert len(drawn["chains of thought"]().query) == 7
