"""Pictures on two logarithmic axes with power laws: shares of success, numbers over a letter."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator

from graphtheory.lab.plot import style
from graphtheory.lab.plot.style import COLORS, Rows
from graphtheory.papers.pictures import case_panels, name_rows, ticks

Law = Mapping[str, float]
"""factor c and exponent of y = c x^exponent; claimed, the exponent that theory has, or nan."""
_MAP = "gray"


@style.styled
def phase_diagram(
    cells: Rows,
    laws: Mapping[str, Law],
    *,
    xlabel: str,
    ylabel: str = "labeled nodes",
    title: str = "",
) -> Figure:
    """Share of trials that succeed, a panel for each case: black none, white all.

    Both axes are logarithmic, so that a power law is a straight line: solid the fitted boundary,
    dashed a line of the claimed exponent through its middle. Circles: half of the trials, for each
    value by itself. A row per cell holds case, value (above 0), labels, share (0..1) and half
    (labels; 0 or infinite where it lies outside the grid).

    Source: figures 3.3 and 3.6 of Li (2024), which are black and white in the same sense.
    """
    rows = style.collected(cells, "cells", "share")
    figure, cases = case_panels(style.order(rows, "case"), 3.6, xlabel, title)
    for case, axes in cases.items():
        mine = [row for row in rows if row["case"] == case]
        _heat(axes, mine)
        if case in laws:
            _line(axes, sorted(style.order(mine, "value")), laws[case])
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    name_rows(cases, ylabel)
    shades = ScalarMappable(Normalize(0, 1), _MAP)
    figure.colorbar(shades, ax=list(cases.values()), label="trials that succeed", shrink=0.8)
    return figure


def _heat(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    values, labels = sorted(style.order(rows, "value")), sorted(style.order(rows, "labels"))
    share = np.full((len(labels), len(values)), np.nan)
    for row in rows:
        share[labels.index(row["labels"]), values.index(row["value"])] = row["share"]
    axes.set(xscale="log", yscale="log")
    axes.pcolormesh(_edges(values), _edges(labels), share, cmap=_MAP, vmin=0, vmax=1)
    half = {row["value"]: row["half"] for row in rows}
    inside = {v: h for v, h in half.items() if 0 < h < math.inf}
    axes.plot(list(inside), list(inside.values()), "o", color=COLORS[3], mec="black", mew=0.6,
              label="half of the trials")  # fmt: skip
    ticks(axes.xaxis, _some(values, 6), _short)
    ticks(axes.yaxis, _some(labels, 10), _short)
    axes.set_ylim(_edges(labels)[[0, -1]])
    axes.set_xlim(_edges(values)[[0, -1]])


def _line(axes: Axes, values: Sequence[float], law: Law) -> None:
    x = np.geomspace(values[0], values[-1], 50)
    middle = math.sqrt(values[0] * values[-1])
    at = law["factor"] * middle ** law["exponent"]
    fitted, claimed = law["exponent"], law["claimed"]
    axes.plot(x, at * (x / middle) ** fitted, color=COLORS[1], label=f"fitted: {fitted:.2f}")
    if not math.isnan(claimed):
        line = at * (x / middle) ** claimed
        axes.plot(x, line, "--", color=COLORS[5], label=f"claimed: {claimed:g}")


def _edges(centers: Sequence[float]) -> Any:
    """Borders of cells on a logarithmic axis."""
    log = np.log(centers)
    if len(log) == 1:
        return np.exp([log[0] - 0.1, log[0] + 0.1])
    middle = (log[1:] + log[:-1]) / 2
    return np.exp([log[0] - (middle[0] - log[0]), *middle, log[-1] + (log[-1] - middle[-1])])


def _some(values: Sequence[float], room: int) -> FixedLocator:
    return FixedLocator(list(values)[:: max(1, math.ceil(len(values) / room))])


def _short(x: float) -> str:
    return f"{x:,.0f}" if x >= 1000 else f"{x:.3g}"


@style.styled
def power_laws(
    points: Rows, laws: Mapping[str, Law], *, xlabel: str, ylabel: str, title: str = ""
) -> Figure:
    """Numbers over a letter on two logarithmic axes, with fitted (solid) and claimed (dashed) laws.

    Points, one per trial, hold case, value and number (finite); `laws` are of the cases that have
    one.

    Source: figures 3.7 and B.6 of Li (2024).
    """
    rows = style.collected(points, "points", "number")
    figure, cases = case_panels(style.order(rows, "case"), 3.4, xlabel, title)
    for index, (case, axes) in enumerate(cases.items()):
        mine = [row for row in rows if row["case"] == case]
        numbers = style.grouped(mine, "value", "number")
        low, middle, high = np.transpose([style.band(of) for of in numbers.values()])
        values, spread = list(numbers), [middle - low, high - middle]
        color = COLORS[index % len(COLORS)]
        axes.set(xscale="log", yscale="log")
        axes.errorbar(values, middle, yerr=spread, fmt="o", color=color, capsize=3,
                      label="median, q20 to q80")  # fmt: skip
        if case in laws:
            _line(axes, values, laws[case])
        ticks(axes.xaxis, _some(values, 6), _short)
        ticks(axes.yaxis, LogLocator(subs=(1, 2, 5)), _short)
        axes.grid()
        axes.legend(fontsize=8)
    name_rows(cases, ylabel)
    return figure


def needed_picture(
    needed: Mapping[str, Mapping[float, Sequence[float]]], laws: Mapping[str, Law], **words: str
) -> Figure | None:
    """`power_laws` of the finite numbers of each case and value; None where there are none."""
    points = [
        {"case": case, "value": value, "number": number}
        for case, by in needed.items()
        for value, numbers in by.items()
        for number in numbers
        if math.isfinite(number)
    ]
    return power_laws(points, laws, **words) if points else None
