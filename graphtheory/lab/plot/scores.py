"""How well networks do, and by how much they differ."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from graphtheory.lab.plot.style import (
    COLORS,
    GRAY,
    Rows,
    collected,
    named,
    order,
    panels,
    styled,
)

_ROW = 0.42  # inches a bar
_TEXT: Any = {"bbox": {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}}


@styled
def score_bars(runs: Rows, *, metric: str = "accuracy", unit: str = "%", title: str = "") -> Figure:
    """Test score of each model: bars of the means from 0, and beside them, enlarged, every run.

    Args:
        runs: One row a run: model, test (0..1 for the unit "%").
        metric: Name of the score for the axis.
        unit: "%" shows shares in percent; scores of any other unit, or of none (""), as they are.
        title: Above the picture.

    Raises:
        ValueError: No rows.
    """
    rows = collected(runs, "runs", "test")
    models, scale = order(rows, "model"), _scale(unit)
    figure, (bars, dots) = panels(2, height=1.1 + _ROW * len(models), width_ratios=(2, 3))
    for place, model in enumerate(models):
        scores = [scale * row["test"] for row in rows if row["model"] == model]
        mean, spread = fmean(scores), stdev(scores) if len(scores) > 1 else 0.0
        color = COLORS[place % len(COLORS)]
        bars.barh(place, mean, height=0.62, color=color, alpha=0.75)
        digits = ".1f" if unit == "%" else "#.3g"
        text = f"{mean:{digits}} ± {spread:{digits}}" if len(scores) > 1 else f"{mean:{digits}}"
        bars.annotate(text, (0, place), (5, 0), textcoords="offset points", va="center", **_TEXT)
        dots.errorbar(mean, place, xerr=spread, fmt="|", color="black", capsize=4, markersize=14)
        shift = np.linspace(-0.22, 0.22, len(scores)) if len(scores) > 1 else np.zeros(1)
        dots.plot(scores, place + shift, ".", color=color, markersize=6, alpha=0.8)
    _names(bars, models)
    _names(dots, [""] * len(models))
    if unit == "%":
        bars.set_xlim(0, 100)
    bars.set_xlabel(named(f"test {metric}", unit))
    dots.set_xlabel("enlarged: runs, mean ± standard deviation")
    bars.set_title(title)
    return figure


@styled
def paired_differences(
    rows: Rows, *, first: str, unit: str = "%", higher_is_better: bool = True, title: str = ""
) -> Figure:
    """By how much `first` is ahead of each other model on the same seed, mean ± 2 standard errors.

    Args:
        rows: One row a model: model, difference (0..1 for the unit "%", positive where `first` is
            better), standard_error (the same; nan of one seed).
        first: The model that the others are compared with.
        unit: "%" shows shares in percent points; any other, or none (""), the score as it is.
        higher_is_better: Of the score, for the names: `first - other`, else `other - first`.
        title: Above the picture.

    Raises:
        ValueError: No rows.
    """
    found = collected(rows, "rows", "difference")
    figure, (axes,) = panels(1, height=1.1 + _ROW * len(found))
    scale = _scale(unit)
    for place, row in enumerate(found):
        mean, error = scale * row["difference"], 2 * scale * row["standard_error"]
        decided = abs(mean) > error  # False of one seed, whose error is nan
        color = GRAY if not decided else COLORS[0] if mean > 0 else COLORS[1]
        error = 0.0 if math.isnan(error) else error
        axes.errorbar(mean, place, xerr=error, fmt="o", color=color, capsize=4, markersize=6)
    axes.axvline(0, color="black", linewidth=1)
    pairs = [(first, row["model"]) if higher_is_better else (row["model"], first) for row in found]
    _names(axes, [f"{one} - {other}" for one, other in pairs])
    amount = "points of the test score" if unit == "%" else named("test score", unit)
    amount += "" if higher_is_better else f" (right of 0: {first} is better)"
    axes.set_xlabel(f"{amount}, paired by seed: mean ± 2 standard errors")
    axes.set_title(title)
    axes.margins(x=0.12)
    return figure


def _scale(unit: str) -> int:
    return 100 if unit == "%" else 1


def _names(axes: Axes, names: list[str]) -> None:
    """Names down the left side, the first on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
