"""A number over a setting, in panels."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from graphtheory.plot.style import (
    GREY,
    Rows,
    band,
    collected,
    legend_below,
    look,
    order,
    panels,
    styled,
)


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
        rows: One row a run: panel, series (name of a line), at (the setting, above 0), value.
        xlabel: Name of the setting.
        ylabel: Name of the number.
        title: Above the picture.
        scale: Factor of the number, such as 100 for per cent.
        log: Whether the number's axis is logarithmic, and each panel's its own.
        mark: Where a dotted line is drawn across.

    Raises:
        ValueError: No rows.
    """
    table = collected(rows, "rows", "value")
    names = order(table, "panel")
    figure, every = panels(len(names), height=3.5, width=max(7.0, 2.9 * len(names)), sharey=not log)
    for name, axes in zip(names, every, strict=True):
        mine = [row for row in table if row["panel"] == name]
        _lines(axes, mine, scale)
        if mark is not None:
            axes.axhline(mark, color=GREY, linewidth=1, linestyle=":")
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
    settings = sorted(order(rows, "at"))
    axes.set_xscale("log")
    for index, series in enumerate(order(rows, "series")):
        mine = [row for row in rows if row["series"] == series]
        at = sorted(order(mine, "at"))
        bands = [band([scale * r["value"] for r in mine if r["at"] == x]) for x in at]
        low, middle, high = zip(*bands, strict=True)
        style = look(index)
        axes.fill_between(at, low, high, color=style["color"], alpha=0.15, linewidth=0)
        axes.plot(at, middle, label=series, **style)
    axes.xaxis.set_major_locator(FixedLocator(settings))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", labelsize=8)
