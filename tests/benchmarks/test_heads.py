"""The benchmark of projection heads: both forms are compared, then measured."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch


@pytest.fixture
def heads(script: Callable[[str], ModuleType]) -> ModuleType:
    """The script."""
    return script("heads")


def test_a_quick_run_measures_both_forms(
    heads: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def in_this_process(script: str, form: str, threads: int, **sizes: int) -> int:
        return max(heads.extra_peak(form, **sizes), 1)

    monkeypatch.setattr(heads, "in_a_fresh_process", in_this_process)
    heads.main(threads=torch.get_num_threads(), quick=True, width=16, depth=2, heads=2, hidden=8)
    said = capsys.readouterr().out
    for what in ("head forward+backward", "head extra peak memory"):
        assert f"{what}, TransformerEncoder over TransformerHead" in said
    assert "TransformerEncoder over TransformerHead with maps of attention" in said
    assert "part attention" in said


def test_another_network_is_not_timed(heads: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = heads.Theirs.forward
    monkeypatch.setattr(heads.Theirs, "forward", lambda self, x: 1.01 * forward(self, x))
    about = {"batch": 4, "width": 8, "depth": 1, "heads": 2, "hidden": 8}
    with pytest.raises(AssertionError, match="differs by"):
        heads.times(about, 1)
