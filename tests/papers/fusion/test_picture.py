import numpy as np
import pytest

from graphtheory.papers.fusion.figures_attention import attention_by_depth


def test_attention_by_depth_draws_a_panel_a_map_and_a_measure() -> None:
    maps = [
        {"layer": layer, "labels": [0, 0, 1, 1], "weights": np.full((4, 4), 0.25)}
        for layer in (1, 3)
    ]
    rows = [
        {"series": series, "layer": layer, "mass": 0.1 * layer, "means": 1.0, "uniform": 1 / 3}
        for series in ("after", "before")
        for layer in (1, 2, 3)
    ]
    figure = attention_by_depth(maps, rows, {"mass": "mass", "means": "means"}, title="t")
    titles = [axes.get_title(loc="left") for axes in figure.get_axes()]
    assert titles[:2] == ["layer 1", "layer 3"]
    lower = [axes for axes in figure.get_axes() if axes.get_xlabel() == "layer"]
    assert [axes.get_ylabel() for axes in lower] == ["mass", "means"]
    assert [len(axes.get_lines()) for axes in lower] == [3, 2]  # uniform beside the mass
    with pytest.raises(ValueError, match="maps: no rows"):
        attention_by_depth([], rows, {"mass": "mass"})
