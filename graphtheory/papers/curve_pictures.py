"""Errors and other numbers over one setting, in panels side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from graphtheory.plot.style import (
    GRAY,
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


@styled
def value_curves(
    rows: Rows,
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    scale: float = 1.0,
    log: bool = False,
    mark: float | None = None,
) -> Figure:
    """A number over one setting, a panel for each kind, a line for each series.

    A line is the median over the runs, its band q20 to q80. The setting's axis is logarithmic.

    Args:
        rows: One row per run: panel, series (name of a line), at (the setting, above 0), value.
        xlabel: Name of the setting.
        ylabel: Name of the number.
        title: Above the picture.
        scale: Factor of the number, such as 100 for percent.
        log: Whether the number's axis is logarithmic, and each panel's its own.
        mark: Where a dotted line is drawn across.
    """
    table = collected(rows, "rows", "value")
    names = order(table, "panel")
    figure, every = panels(len(names), height=3.5, width=max(7.0, 2.9 * len(names)), sharey=not log)
    for name, axes in zip(names, every, strict=True):
        mine = [row for row in table if row["panel"] == name]
        _lines(axes, mine, scale)
        if mark is not None:
            axes.axhline(mark, color=GRAY, linewidth=1, linestyle=":")
        if log:
            _logarithmic(axes)
        axes.set_title(name)
        axes.set_xlabel(xlabel)
        axes.grid(axis="y")
    every[0].set_ylabel(ylabel)
    legend_below(figure, *every[0].get_legend_handles_labels())
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return figure


def _logarithmic(axes: Any) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _lines(axes: Any, rows: list[dict[str, Any]], scale: float) -> None:
    axes.set_xscale("log")
    for index, series in enumerate(order(rows, "series")):
        mine = [row for row in rows if row["series"] == series]
        band_line(axes, mine, "at", "value", look(index), series, scale=scale)
    axes.xaxis.set_major_locator(FixedLocator(sorted(order(rows, "at"))))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", labelsize=8)
