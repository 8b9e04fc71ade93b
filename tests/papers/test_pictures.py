"""Pictures that chapters share: what they draw is what the rows say."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from matplotlib.figure import Figure

from graphtheory.lab import plot
from graphtheory.papers import pictures
from graphtheory.papers.pictures import error_curves, phase_diagram, power_laws, step_curves
from tests.lab.test_plot import lines, pixels
from tests.papers.icl.test_training import PICTURES as OF_PROMPTS
from tests.papers.topology.test_figures import PICTURES as OF_SAMPLES

ERRORS = [
    {"series": name, "at": at, "error": error + seed / 10, "panel": panel}
    for panel, scale in (("SGD", 1.0), ("Adam", 0.5))
    for name, errors in (("a", (0.9, 0.6)), ("b", (0.8, 0.7)))
    for at, error in zip((100, 300), (scale * e for e in errors), strict=True)
    for seed in range(3)
]
CELLS = [
    {"case": case, "value": v, "labels": n, "share": min(1.0, n * v / 10), "half": half}
    for case in ("gt", "gcn")
    for v, half in ((0.2, 25.0), (0.4, 12.5), (0.8, math.inf))
    for n in (5, 10, 20, 40)
]
LAW = {"factor": 5.0, "exponent": -1.0, "claimed": -2.0}
LOOKS = [
    {"case": case, "series": name, "step": step, "loss": top / (1 + step), "seed": seed}
    for case in ("gt", "gcn")
    for name, top in (("a", 1.0), ("b", 2.0))
    for step in (0, 10, 20)
    for seed in (0, 1)
]
NEEDED = [
    {"case": case, "value": v, "number": 5 / v + seed}
    for case, v, seed in product(("gt", "gcn"), (0.2, 0.4, 0.8), (0, 1, 2))
]
PICTURES: dict[str, Callable[..., Figure]] = (
    {
        "error_curves": lambda: error_curves(ERRORS, xlabel="labels", title="T"),
        "phase_diagram": lambda: phase_diagram(CELLS, {"gt": LAW}, xlabel="gamma_d", title="T"),
        "step_curves": lambda: step_curves(LOOKS, value="loss", ylabel="loss", title="T"),
        "power_laws": lambda: power_laws(
            NEEDED, {"gt": LAW}, xlabel="gamma_d", ylabel="steps", title="T"
        ),
    }
    | OF_PROMPTS
    | OF_SAMPLES
)


@pytest.mark.parametrize("draw", PICTURES.values(), ids=PICTURES)
def test_a_picture_has_ink_a_title_and_named_axes(draw: Callable[..., Figure]) -> None:
    figure = draw()
    assert 0.005 < (pixels(figure)[:, :3] < 200).any(1).mean() < 0.7
    assert "T" in (figure.get_suptitle(), figure.axes[0].get_title(loc="left")[-1:])
    assert all(axes.get_xlabel() or axes.get_ylabel() for axes in figure.axes)
    assert plot.svg(draw()) == plot.svg(draw())


def test_errors_are_medians_in_panels_that_share_a_legend() -> None:
    first, second = error_curves(ERRORS, xlabel="labels").axes
    assert lines(first)["a"] == ([100, 300], pytest.approx([1.0, 0.7]))
    assert lines(second)["b"] == ([100, 300], pytest.approx([0.5, 0.45]))
    assert [axes.get_title(loc="left") for axes in (first, second)] == ["SGD", "Adam"]
    assert first.get_ylim()[0] == 0
    named = [{"series": "a", "at": at, "error": 1.0} for at in ("(0.9, 0.1)", "(0.1, 0.9)")]
    (axes,) = error_curves(named, panel="", xlabel="targets").axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["(0.9, 0.1)", "(0.1, 0.9)"]
    rows = [{"panel": p, "series": s, "at": 1, "error": 0.5} for p in "PQ" for s in "ab"]
    shared = error_curves(rows, xlabel="labels")
    assert len(shared.legends) == 1 and not any(axes.get_legend() for axes in shared.axes)
    apart = error_curves([r | {"series": r["panel"] + r["series"]} for r in rows], xlabel="")
    assert not apart.legends and all(axes.get_legend() for axes in apart.axes)


def test_phases_are_shares_with_a_boundary_where_there_is_one() -> None:
    gt, gcn, *_ = phase_diagram(CELLS, {"gt": LAW}, xlabel="gamma_d").axes
    (mesh,) = gt.collections
    shares = np.asarray(mesh.get_array())
    assert shares.shape == (4, 3)
    assert shares[:, 0].tolist() == [0.1, 0.2, 0.4, 0.8] and shares[3, 2] == 1
    assert mesh.get_cmap()(0.0)[:3] == (0, 0, 0) and mesh.get_cmap()(1.0)[:3] == (1, 1, 1)
    drawn = lines(gt)
    assert drawn["half of the trials"] == ([0.2, 0.4], [25.0, 12.5])
    x, y = drawn["fitted: -1.00"]
    assert [a * b for a, b in zip(x, y, strict=True)] == pytest.approx([5.0] * len(x))
    assert "claimed: -2" in drawn and list(lines(gcn)) == ["half of the trials"]


def test_curves_and_numbers_are_medians_with_their_marks_and_law() -> None:
    gt, _ = step_curves(LOOKS, value="loss", ylabel="loss", marks=[0.1]).axes
    drawn = lines(gt)
    assert drawn["b"] == ([0.0, 10.0, 20.0], pytest.approx([2.0, 2 / 11, 2 / 21]))
    assert [0.1, 0.1] in [list(line.get_ydata()) for line in gt.get_lines()]
    cut, _ = step_curves(LOOKS, value="loss", ylabel="", xlabel="turns", upright=12.0).axes
    assert [12.0, 12.0] in [list(line.get_xdata()) for line in cut.get_lines()]
    assert cut.get_xlabel() == "turns"
    gt, gcn = power_laws(NEEDED, {"gt": LAW}, xlabel="gamma_d", ylabel="steps").axes
    (points,) = gt.containers
    assert list(points[0].get_ydata()) == pytest.approx([26, 13.5, 7.25])
    assert "fitted: -1.00" in lines(gt) and "fitted: -1.00" not in lines(gcn)
    rows = [
        {"panel": panel, "series": "a", "at": at, "value": value}
        for panel, at, value in product(("p", "q"), (0.1, 1.0), (0.1, 0.2, 0.6))
    ]
    figure = pictures.value_curves(rows, xlabel="x", ylabel="y", scale=100, marks=(50,))
    first, second = figure.get_axes()
    assert first.get_xscale() == "log" and second.get_title(loc="left") == "q"
    assert list(first.get_lines()[0].get_ydata()) == [20.0, 20.0]
    figure = pictures.value_curves(rows, xlabel="x", ylabel="y", axis=pictures.log_axis)
    assert figure.get_axes()[0].get_yscale()
