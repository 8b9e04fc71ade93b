"""The benchmark beside FlexAttention: masks are what they say, every form is timed and compared."""

from types import ModuleType

import pytest
import torch


@pytest.fixture
def flex(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, without torch's compiler, which takes many seconds."""
    monkeypatch.setattr(torch, "compile", lambda form, **options: form)
    return module


@pytest.mark.parametrize("kind", ["blocks", "pairs", "documents"])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_a_mask_lets_about_its_share_through(flex: ModuleType, kind: str, share: float) -> None:
    place = torch.arange(1024)
    allowed = flex.KINDS[kind](1024, share)(place, place, place[:, None], place)
    assert bool(allowed.diagonal().all())
    assert share / 2 <= allowed.float().mean() <= min(1.0, 2 * share)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_every_form_is_timed(flex: ModuleType) -> None:
    names = {row.name for row in flex.times("pairs", 0.3, 130, 2, 4, 1)}
    for form in (flex.ADAPTER, flex.DENSE, flex.FLEX):
        assert f"forward, {form} over {flex.OURS}" in names
    assert f"forward+backward, {flex.FLEX}" not in names


def test_a_wrong_form_is_not_timed(flex: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex, "torch_flex", lambda query, *rest, **options: query)
    with pytest.raises(AssertionError, match="differs by"):
        flex.times("pairs", 0.3, 64, 1, 4, 1)
