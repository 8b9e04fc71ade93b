"""Errors and other numbers over one setting, in panels side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator

from graphtheory.lab.plot.style import (
    GRAY,
    WIDTH,
    Rows,
    band,
    collected,
    legend_below,
    look,
    order,
    panels,
    styled,
)

_RELATIVE = "squared error / variance of the targets"


def band_line(
    axes: Axes, rows: Sequence[dict[str, Any]], at: str, value: str, style: dict[str, Any],
    label: str, *, scale: float = 1.0, alpha: float = 0.15,
) -> None:  # fmt: skip
    """Draw a measure times `scale` over the settings `at`: its median, and a band q20 to q80."""
    settings = sorted(order(rows, at))
    bands = [band([scale * row[value] for row in rows if row[at] == x]) for x in settings]
    low, middle, high = zip(*bands, strict=True)
    axes.fill_between(settings, low, high, color=style["color"], alpha=alpha, linewidth=0)
    axes.plot(settings, middle, label=label, **style)


@styled
def error_curves(rows: Rows, *, xlabel: str, title: str = "", from_zero: bool = True) -> Figure:
    """Error over one setting, a line for each series: median, band from q20 to q80.

    Rows, one per run, hold series (name of a line), at (the setting, a number or a name), error,
    and optionally panel (name of the vertical axis; panels lie side by side). Panels with the same
    series share a legend. With `from_zero` the vertical axes begin at 0.

    Source: figures 5.1 to 5.4 and 7.3 to 7.5 of Li (2024).
    """
    runs = collected(rows, "rows", "error")
    names = list(dict.fromkeys(row.get("panel", _RELATIVE) for row in runs))
    figure, every = panels(len(names), height=3.6)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    for name, axes in zip(names, every, strict=True):
        _error_panel(axes, [row for row in runs if row.get("panel", _RELATIVE) == name])
        axes.set_xlabel(xlabel)
        axes.set_ylabel(name)
        if from_zero:
            axes.set_ylim(bottom=0)
    lines = [axes.get_legend_handles_labels() for axes in every]
    if all(names == lines[0][1] for _, names in lines):
        legend_below(figure, *lines[0])
    else:
        for axes in every:
            axes.legend()
    return figure


def _error_panel(axes: Axes, runs: list[dict[str, Any]]) -> None:
    settings = order(runs, "at")
    named = any(isinstance(at, str) for at in settings)
    place = {at: index if named else at for index, at in enumerate(settings)}
    for index, name in enumerate(order(runs, "series")):
        mine = [row | {"at": place[row["at"]]} for row in runs if row["series"] == name]
        band_line(axes, mine, "at", "error", look(index), name)
    axes.set_xticks(
        list(place.values()),
        [at if named else f"{at:,}" for at in place],
        fontsize=8 if named else None,
    )
    axes.margins(x=0.08)
    axes.grid(axis="y")


def log_axis(axes: Axes, largest: float) -> None:
    """A logarithmic axis of the values."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def percent_axis(axes: Axes, largest: float) -> None:
    """An axis of errors in percent, logarithmic down to 0.1 and linear below, down to 0."""
    axes.set_yscale("symlog", linthresh=0.1, linscale=0.5)
    axes.set_ylim(-0.01, max(1.3 * largest, 0.2))
    ticks = [0, 0.1, 0.3, 1, 3, 10, 30, 100]
    axes.yaxis.set_major_locator(FixedLocator([t for t in ticks if t <= 1.3 * largest or t < 0.2]))
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.yaxis.set_minor_locator(NullLocator())


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
        panel: Name of a row's panel, with keys of the row in braces, such as "M1 = {relevant}".
        series: Name of its line, likewise.
        at: Key of the setting, a number.
        value: Key of the measure.
        scale: Factor of the measure, such as 100 for percent.
        log: Whether the setting's axis is logarithmic.
        axis: Sets up the axis of the measure up to the largest value, such as `percent_axis`; with
            `log_axis` each panel has its own.
        marks: Values with a dotted line.
        upright: A setting with a dotted line.

    Source: figures 6.3, 6.4 and E.2 of Li (2024), whose axes are linear.
    """
    runs = named_rows(collected(rows, "rows", value), panel, series)
    names, lines = order(runs, "panel"), order(runs, "series")
    figure, every = panels(
        len(names), height=3.6, width=max(WIDTH, 3.2 * len(names)), sharey=axis is not log_axis
    )
    for name, axes in zip(names, every, strict=True):
        mine = [row for row in runs if row["panel"] == name]
        for index, line in enumerate(lines):
            if own := [row for row in mine if row["series"] == line]:
                band_line(axes, own, at, value, look(index), line, scale=scale)
        for height in marks:
            axes.axhline(height, color=GRAY, linestyle=":", linewidth=1)
        if upright is not None:
            axes.axvline(upright, color=GRAY, linestyle=":", linewidth=1)
        _settings(axes, sorted(order(mine, at)), log)
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
    legend_below(figure, [handles[name] for name in lines], lines)
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=11)
    return figure


def named_rows(rows: Sequence[dict[str, Any]], panel: str, series: str) -> list[dict[str, Any]]:
    """The rows with the names of their panels and lines."""
    return [row | {"panel": panel.format(**row), "series": series.format(**row)} for row in rows]


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
    axes.xaxis.set_major_locator(FixedLocator([values[nth] for nth in shown]))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
