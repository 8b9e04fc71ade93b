"""Pictures that chapters share: errors and other measures over a setting, success, power laws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, Locator, LogLocator, NullLocator

from graphtheory.lab.plot.style import (
    COLORS,
    GRAY,
    WIDTH,
    Rows,
    band,
    band_line,
    collected,
    figure_title,
    grouped,
    legend_below,
    look,
    order,
    panels,
    styled,
)


def picture_of(
    draw: Callable[..., Any], rows: Callable[[Any], Rows] = lambda measured: measured,
    **options: Any,
) -> Callable[[Any, Any, str], Any]:  # fmt: skip
    """A `Figure.picture` that draws what `rows` makes of the measurements."""
    return lambda grid, measured, title: draw(rows(measured), title=title, **options)


def named_rows(rows: Rows, panel: str, series: str, at: str) -> list[dict[str, Any]]:
    """The rows with the names of their panels and lines, and with their places as `at`.

    A name is text with keys of the row in braces, such as "M1 = {relevant}"; a place may be a name,
    or the value of a key.
    """
    return [
        {
            **row, "panel": panel.format(**row), "series": series.format(**row),
            "at": at.format(**row) if "{" in at else row[at],
        }
        for row in rows
    ]  # fmt: skip


def lines(
    axes: Axes, rows: Sequence[dict[str, Any]], at: str, value: str,
    names: Sequence[str] | None = None, *, scale: float = 1.0, alpha: float = 0.15, **style: Any,
) -> None:  # fmt: skip
    """A measure times `scale` over the settings `at`, a line for each series that has one.

    A line is the median, its band q20 to q80. Its look is that of the series' place among `names`,
    by default those of the rows, and what `style` says.
    """
    for index, name in enumerate(names or order(rows, "series")):
        if mine := [row for row in rows if row["series"] == name]:
            line = look(index) | {"label": name} | style
            band_line(axes, grouped(mine, at, value, scale), line, alpha=alpha)


@styled
def error_curves(
    rows: Rows, *, xlabel: str, title: str = "", panel: str = "{panel}", series: str = "{series}",
    at: str = "at", value: str = "error", scale: float = 1.0, from_zero: bool = True,
) -> Figure:  # fmt: skip
    """Error over one setting, a line for each series: median, band from q20 to q80.

    Rows are one per run. Panel (name of the vertical axis; panels lie side by side), series (name
    of a line) and at (the setting) as in `named_rows`; the error is `value` times `scale`. Panels
    with the same series share a legend. With `from_zero` the vertical axes begin at 0.

    Source: figures 5.1 to 5.4 and 7.3 to 7.5 of Li (2024).
    """
    runs = named_rows(collected(rows, "rows", value), panel, series, at)
    names = order(runs, "panel")
    figure, every = panels(len(names), height=3.6)
    figure_title(figure, title)
    for name, axes in zip(names, every, strict=True):
        mine = [row for row in runs if row["panel"] == name]
        settings = order(mine, "at")
        named = any(isinstance(setting, str) for setting in settings)
        place = {setting: index if named else setting for index, setting in enumerate(settings)}
        lines(axes, [row | {"at": place[row["at"]]} for row in mine], "at", value, scale=scale)
        texts = settings if named else [f"{setting:,}" for setting in settings]
        axes.set_xticks(list(place.values()), texts, fontsize=8 if named else None)
        axes.margins(x=0.08)
        axes.grid(axis="y")
        axes.set(xlabel=xlabel, ylabel=name)
        if from_zero:
            axes.set_ylim(bottom=0)
    legends = [axes.get_legend_handles_labels() for axes in every]
    if all(names == legends[0][1] for _, names in legends):
        legend_below(figure, *legends[0])
    else:
        for axes in every:
            axes.legend()
    return figure


def _ticks(axis: Axis, places: Locator, text: Callable[[float], str] = "{:g}".format) -> None:
    """Ticks at these places alone, as text."""
    axis.set_major_locator(places)
    axis.set_major_formatter(lambda x, _: text(x))
    axis.set_minor_locator(NullLocator())


def log_axis(axes: Axes, largest: float) -> None:
    """A logarithmic axis of the values."""
    axes.set_yscale("log")
    _ticks(axes.yaxis, LogLocator(subs=(1, 2, 5)))


def percent_axis(axes: Axes, largest: float) -> None:
    """An axis of errors in percent, logarithmic down to 0.1 and linear below, down to 0."""
    axes.set_yscale("symlog", linthresh=0.1, linscale=0.5)
    axes.set_ylim(-0.01, max(1.3 * largest, 0.2))
    ticks = [0, 0.1, 0.3, 1, 3, 10, 30, 100]
    _ticks(axes.yaxis, FixedLocator([t for t in ticks if t <= 1.3 * largest or t < 0.2]))


@styled
def value_curves(
    rows: Rows, *, xlabel: str, ylabel: str, title: str = "", panel: str = "{panel}",
    series: str = "{series}", at: str = "at", value: str = "value", scale: float = 1.0,
    log: bool = True, axis: Callable[[Axes, float], None] | None = None,
    marks: Sequence[float] = (), upright: float | None = None,
) -> Figure:  # fmt: skip
    """A measure over one setting, a panel for each group: median over the runs, band q20 to q80.

    Args:
        rows: One row per run.
        xlabel: Name of the setting.
        ylabel: Name of the measure.
        title: Above the picture.
        panel: Name of a row's panel, as in `named_rows`.
        series: Name of its line, likewise.
        at: The setting, a number.
        value: Key of the measure.
        scale: Factor of the measure, such as 100 for percent.
        log: Whether the setting's axis is logarithmic.
        axis: Sets up the axis of the measure up to the largest value, such as `percent_axis`; with
            `log_axis` each panel has its own.
        marks: Values with a dotted line.
        upright: A setting with a dotted line.

    Source: figures 6.3, 6.4 and E.2 of Li (2024), whose axes are linear.
    """
    runs = named_rows(collected(rows, "rows", value), panel, series, at)
    names, every_line = order(runs, "panel"), order(runs, "series")
    figure, every = panels(
        len(names), height=3.6, width=max(WIDTH, 3.2 * len(names)), sharey=axis is not log_axis
    )
    for name, axes in zip(names, every, strict=True):
        mine = [row for row in runs if row["panel"] == name]
        lines(axes, mine, "at", value, every_line, scale=scale)
        for height in marks:
            axes.axhline(height, color=GRAY, linestyle=":", linewidth=1)
        if upright is not None:
            axes.axvline(upright, color=GRAY, linestyle=":", linewidth=1)
        _settings(axes, sorted(order(mine, "at")), log)
        axes.set_title(name, fontsize=9.5, fontweight="normal")
        axes.set_xlabel(xlabel)
        if axis is not None:
            axis(axes, scale * max(row[value] for row in runs))
        axes.grid(axis="y")
    every[0].set_ylabel(ylabel)
    handles = {
        text: line
        for axes in every
        for line, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    legend_below(figure, [handles[name] for name in every_line], every_line)
    figure_title(figure, title)
    return figure


def _settings(axes: Axes, values: Sequence[float], log: bool) -> None:
    """Ticks at the settings that are not too close to the one before."""
    if log:
        axes.set_xscale("log")
    place = np.log(values) if log else np.asarray(values, float)
    least = np.ptp(place) / 11
    shown: list[int] = []
    for nth, x in enumerate(place):
        if not shown or x - place[shown[-1]] >= least:
            shown.append(nth)
    _ticks(axes.xaxis, FixedLocator([values[nth] for nth in shown]))


Law = Mapping[str, float]
"""factor c and exponent of y = c x^exponent; claimed, the exponent that theory has, or nan."""
_MAP = "gray"


@styled
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
    rows = collected(cells, "cells", "share")
    figure, panels = _panels(rows, 3.0, xlabel, title)
    for case, axes in panels.items():
        mine = [row for row in rows if row["case"] == case]
        _heat(axes, mine)
        if case in laws:
            _line(axes, sorted(order(mine, "value")), laws[case])
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    every = list(panels.values())
    every[0].set_ylabel(ylabel)
    shades = ScalarMappable(Normalize(0, 1), _MAP)
    figure.colorbar(shades, ax=every, label="trials that succeed", shrink=0.8)
    return figure


def _heat(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    values, labels = sorted(order(rows, "value")), sorted(order(rows, "labels"))
    share = np.full((len(labels), len(values)), np.nan)
    for row in rows:
        share[labels.index(row["labels"]), values.index(row["value"])] = row["share"]
    axes.set(xscale="log", yscale="log")
    axes.pcolormesh(_edges(values), _edges(labels), share, cmap=_MAP, vmin=0, vmax=1)
    half = {row["value"]: row["half"] for row in rows}
    inside = {v: h for v, h in half.items() if 0 < h < math.inf}
    axes.plot(list(inside), list(inside.values()), "o", color=COLORS[3], mec="black", mew=0.6,
              label="half of the trials")  # fmt: skip
    _ticks(axes.xaxis, _some(values, 6), _short)
    _ticks(axes.yaxis, _some(labels, 10), _short)
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


def _panels(rows: Rows, height: float, xlabel: str, title: str) -> tuple[Figure, dict[str, Axes]]:
    """A named panel for each case, two in a row where there are more than three."""
    cases = order(rows, "case")
    columns = len(cases) if len(cases) < 4 else 2
    lines = -(-len(cases) // columns)
    size = (max(WIDTH, 3.4 * columns), (height + 0.6) * lines)
    figure = Figure(figsize=size, layout="constrained")
    figure_title(figure, title)
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for axes in grid.flat[len(cases) :]:
        axes.set_visible(False)
    panels = dict(zip(cases, grid.flat, strict=False))
    for case, axes in panels.items():
        first, comma, rest = case.partition(", ")
        short, _, rest = rest.partition(", ")
        name = f"{first}{comma}{short}" + (f"\n{rest}" if rest else "")  # long ones on two lines
        axes.set_title(name, fontsize=9, fontweight="normal")
        axes.set_xlabel(xlabel)
    return figure, panels


@styled
def step_curves(
    rows: Rows,
    *,
    value: str,
    ylabel: str,
    title: str = "",
    xlabel: str = "steps of SGD",
    marks: Mapping[str, float] | None = None,
    boundary: float | None = None,
    log: bool = False,
) -> Figure:
    """A measure over the steps of training, a panel for each case: median, band from q20 to q80.

    Rows, one per look, hold case, series (name of a line), step, and the measure under the key
    `value`. Marks are heights of dotted lines in the color of a series, the boundary is the step of
    a dashed vertical line; with `log` the measure's axis is logarithmic.

    Source: figures 3.4, 3.5, 7.6, 7.7 and F.1 of Li (2024).
    """
    runs, marks = collected(rows, "rows", value), marks or {}
    figure, panels = _panels(runs, 2.8, xlabel, title)
    for case, axes in panels.items():
        mine = [row for row in runs if row["case"] == case]
        lines(axes, mine, "step", value, marker=None)
        for index, name in enumerate(order(mine, "series")):
            if name in marks:
                axes.axhline(marks[name], color=look(index)["color"], linestyle=":", linewidth=1)
        if boundary is not None:
            axes.axvline(boundary, color="black", linestyle="--", linewidth=1)
        axes.grid(axis="y")
        if log:
            axes.set_yscale("log")
    every = list(panels.values())
    for axes in every[:: 2 if len(every) > 3 else len(every)]:
        axes.set_ylabel(ylabel)
    if len(every) > 3:
        drawn = every[-1].get_legend_handles_labels()
        figure.legend(*drawn, loc="outside lower center", ncols=3)
    else:
        every[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


@styled
def power_laws(
    points: Rows, laws: Mapping[str, Law], *, xlabel: str, ylabel: str, title: str = ""
) -> Figure:
    """Numbers over a letter on two logarithmic axes, with fitted (solid) and claimed (dashed) laws.

    Points, one per trial, hold case, value and number (finite); `laws` are of the cases that have
    one.

    Source: figures 3.7 and B.6 of Li (2024).
    """
    rows = collected(points, "points", "number")
    figure, panels = _panels(rows, 2.8, xlabel, title)
    for index, (case, axes) in enumerate(panels.items()):
        mine = [row for row in rows if row["case"] == case]
        numbers = grouped(mine, "value", "number")
        low, middle, high = np.transpose([band(of) for of in numbers.values()])
        values, spread = list(numbers), [middle - low, high - middle]
        color = COLORS[index % len(COLORS)]
        axes.set(xscale="log", yscale="log")
        axes.errorbar(values, middle, yerr=spread, fmt="o", color=color, capsize=3,
                      label="median, q20 to q80")  # fmt: skip
        if case in laws:
            _line(axes, values, laws[case])
        _ticks(axes.xaxis, _some(values, 6), _short)
        _ticks(axes.yaxis, LogLocator(subs=(1, 2, 5)), _short)
        axes.grid()
        axes.legend(fontsize=8)
        place = axes.get_subplotspec()
        if place is None or place.is_first_col():
            axes.set_ylabel(ylabel)
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
