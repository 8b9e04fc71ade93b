"""What a graph and its features look like before anything is trained."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from graphtheory.lab.plot.style import (
    COLORS,
    GRAY,
    HATCHES,
    Rows,
    collected,
    look,
    order,
    panels,
    styled,
)

_PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.9, "pad": 0.5}


@styled
def winning_margin(rows: Rows, *, title: str = "") -> Figure:
    """Normalized average winning margin over the distance, a line for each series.

    Args:
        rows: series (name of a line), distance (hops), margin (dimensionless, -1..1).
        title: Above the picture.

    Raises:
        ValueError: No rows.

    Source: figure B.5 of Li (2024).
    """
    table = collected(rows, "rows", "margin")
    figure, (axes,) = panels(1, height=3.2)
    for index, series in enumerate(order(table, "series")):
        mine = sorted((r["distance"], r["margin"]) for r in table if r["series"] == series)
        axes.plot(*zip(*mine, strict=True), label=series, **look(index))
    axes.axhline(0, color=GRAY, linewidth=0.8)
    hops = sorted(order(table, "distance"))
    axes.set_xticks(hops)
    axes.set_xlabel("distance z (hops)")
    axes.set_ylabel(r"normalized margin $\bar\Delta(z)$")
    axes.grid(axis="y")
    axes.set_title(title)
    axes.legend()
    return figure


@styled
def grouped_bars(
    rows: Rows, *, label: str, reference: tuple[str, float] | None = None, title: str = ""
) -> Figure:
    """A group of bars for each group, a bar for each series, with the numbers on top.

    Args:
        rows: group (name below the bars), series (name in the legend), value.
        label: Of the vertical axis, with its unit.
        reference: Name and height of a horizontal line.
        title: Above the picture.

    Raises:
        ValueError: No rows.

    Source: tables B.1 to B.3 and B.8 of Li (2024).
    """
    table = collected(rows, "rows", "value")
    groups, series = order(table, "group"), order(table, "series")
    figure, (axes,) = panels(1, height=3.1)
    width = 0.84 / len(series)
    small = len(groups) * len(series) > 24
    for index, name in enumerate(series):
        found = {row["group"]: row["value"] for row in table if row["series"] == name}
        place = np.array([i for i, g in enumerate(groups) if g in found], dtype=float)
        bars = axes.bar(
            place - 0.42 + width * (index + 0.5), list(found.values()), width * 0.92,
            color=COLORS[index % len(COLORS)], alpha=0.75, label=name,
            hatch=HATCHES[index % len(HATCHES)], edgecolor="white",
        )  # fmt: skip
        if not small:
            axes.bar_label(bars, fmt="{:,.0f}", fontsize=7.5, padding=2, bbox=_PAPER)
    if reference is not None:
        axes.axhline(
            reference[1], color="black", linestyle="--", linewidth=1, label=reference[0], zorder=0.9
        )
    axes.set_xticks(range(len(groups)), groups)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel(label)
    axes.margins(y=0.12)
    axes.grid(axis="y")
    axes.set_title(title)
    if len(series) > 1 or reference is not None:
        figure.legend(loc="outside lower center", ncols=4)
    return figure
