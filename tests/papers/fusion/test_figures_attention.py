"""The figure of what a transformer head attends to."""

import numpy as np
import pytest

from graphtheory.papers.figure import Figure
from graphtheory.papers.fusion.figures_attention import (
    FIGURES,
    Depths,
    attention,
    attention_by_depth,
    slopes,
)
from graphtheory.papers.fusion.recipe import prepare
from tests.papers.fusion.test_figures import TINY


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


def test_attention_is_measured_before_and_after_and_drawn_in_order_of_class() -> None:
    rows = Depths(TINY, seeds=1, samples=40).measure(attention)
    measured = [r for r in rows if r["kind"] != "map"]
    assert [(r["kind"], r["layer"]) for r in measured] == [
        ("drawn", 1), ("drawn", 2), ("learned", 1), ("learned", 2),
    ]  # fmt: skip
    assert measured[0]["mass"] != measured[2]["mass"]
    maps = [r for r in rows if r["kind"] == "map"]
    assert [r["layer"] for r in maps] == [1, 2]
    assert maps[0]["labels"] == sorted(maps[0]["labels"])
    assert sum(maps[0]["weights"][3]) == pytest.approx(1, abs=1e-3)
    assert slopes(rows, "learned", "mass") == [
        pytest.approx(measured[3]["mass"] - measured[2]["mass"])
    ]


def test_digits_are_learned_for_longer_than_larger_images() -> None:
    digits, mnist = (FIGURES[0].settings(name).recipe for name in ("digits", "mnist"))
    assert (digits.epochs, mnist.epochs) == (160, 20)
    assert digits.depth == mnist.depth == 10 and mnist.limit == 20


@pytest.mark.parametrize("figure", FIGURES[1:], ids=lambda figure: figure.id)
def test_the_long_ones_take_as_many_updates_on_every_set(figure: Figure) -> None:
    batches = prepare(figure.settings("digits").recipe, 0).data.count
    digits, mnist = (figure.settings(name).recipe for name in ("digits", "mnist"))
    assert batches * digits.epochs == mnist.limit * mnist.epochs == 10_000
    assert digits.norm_first == mnist.norm_first == (not figure.id.endswith("post-norm"))


@pytest.mark.parametrize(
    ("slope", "found"), [(0.1, "found"), (-0.1, "not found: it falls"), (0.0, "not decided")]
)
def test_the_verdict_of_growth(slope: float, found: str) -> None:
    rows = [
        {"kind": kind, "seed": seed, "layer": layer, "uniform": 0.1, "sharpness": 2.0, "means": 1.0,
         "mass": 0.5 + slope * layer * (1 + seed / 10) + seed / 100}
        for kind in ("learned", "drawn") for seed in range(3) for layer in (1, 2, 3)
    ]  # fmt: skip
    (claim,) = FIGURES[0].claims
    text = claim(FIGURES[0].grid, rows).text
    assert f"growth with depth: {found}." in text and "at most 2: above 1." in text
