"""Pictures of the pages are drawn by scripts that run."""

import runpy
from pathlib import Path

import pytest
from matplotlib.image import imread

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


@pytest.mark.parametrize("script", sorted(PICTURES.glob("*.py")), ids=lambda script: script.stem)
def test_a_picture_is_drawn_as_committed(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = tmp_path / "drawn.png"
    monkeypatch.setattr("sys.argv", [str(script), str(drawn)])
    runpy.run_path(str(script), run_name="__main__")
    now, kept = imread(drawn), imread(script.with_suffix(".png"))
    assert now.shape == kept.shape
    assert abs(now - kept).mean() < 0.02  # fonts and line joins differ between versions, not more
