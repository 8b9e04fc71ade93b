"""The benchmark of k-nearest attention: every form is measured, after ours was compared."""

from types import ModuleType

import pytest
import torch


def test_a_quick_run_measures_every_form(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def in_this_process(script: str, form: str, threads: int, **sizes: int) -> int:
        return max(module.extra_peak(form, **sizes), 1)

    monkeypatch.setattr(module, "in_a_fresh_process", in_this_process)
    module.main(threads=torch.get_num_threads(), quick=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * (4 + 2 * 2)  # times and memory: four forms, ours against two others
    for what in ("forward+backward", "extra peak memory"):
        assert any(line.startswith(f"{what}, masked form over topk_attention ") for line in lines)


def test_a_wrong_choice_is_not_timed(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    masked = module.masked
    monkeypatch.setattr(module, "masked", lambda *nodes: masked(*nodes[:3], nodes[3] + 1))
    with pytest.raises(AssertionError, match="differs by"):
        module.times({"batch": 1, "tokens": 9, "k": 4, "heads": 1, "head_dim": 3}, repeats=1)
