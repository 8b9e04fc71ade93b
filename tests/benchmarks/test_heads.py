"""The benchmark of projection heads: both forms are compared, then measured."""

from types import ModuleType

import pytest
import torch


def test_a_quick_run_measures_both_forms(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def in_this_process(script: str, form: str, threads: int, **sizes: int) -> int:
        return max(module.extra_peak(form, **sizes), 1)

    monkeypatch.setattr(module, "in_a_fresh_process", in_this_process)
    module.main(threads=torch.get_num_threads(), quick=True, width=16, depth=2, heads=2, hidden=8)
    said = capsys.readouterr().out
    for what in ("head forward+backward", "head extra peak memory"):
        assert f"{what}, TransformerEncoder over TransformerHead" in said
    assert "TransformerEncoder over TransformerHead with maps of attention" in said
    assert "part attention" in said


def test_another_network_is_not_timed(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = module.Theirs.forward
    monkeypatch.setattr(module.Theirs, "forward", lambda self, x: 1.01 * forward(self, x))
    about = {"batch": 4, "width": 8, "depth": 1, "heads": 2, "hidden": 8}
    with pytest.raises(AssertionError, match="differs by"):
        module.times(about, 1)
