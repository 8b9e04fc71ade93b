"""Pictures of the pages are drawn by scripts that run."""

import runpy
from pathlib import Path

import pytest
from matplotlib.image import imread

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


@pytest.mark.parametrize("script", sorted(PICTURES.glob("*.py")), ids=lambda script: script.stem)
def test_a_picture_is_drawn_as_committed(script: Path, tmp_path, monkeypatch) -> None:
    several = script.stem == "howto"  # draws a picture for each of many pages into a folder
    kept = sorted(PICTURES.glob("howto-*.png")) if several else [script.with_suffix(".png")]
    monkeypatch.setattr(
        "sys.argv", [str(script), str(tmp_path if several else tmp_path / kept[0].name)]
    )
    runpy.run_path(str(script), run_name="__main__")
    assert sorted(path.name for path in tmp_path.iterdir()) == [path.name for path in kept]
    for path in kept:
        now, then = imread(tmp_path / path.name), imread(path)
        assert now.shape == then.shape
        # Fonts and line joins differ between versions, not more.
        assert abs(now - then).mean() < 0.02, path.name
