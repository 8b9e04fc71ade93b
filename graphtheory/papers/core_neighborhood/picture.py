"""Test scores over the number of labeled nodes, and over the distance that decides labels."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from graphtheory.lab.plot.style import (
    COLORS,
    LIGHT,
    Rows,
    band,
    collected,
    legend_below,
    look,
    order,
    panels,
    styled,
)
from graphtheory.papers.curve_pictures import band_line


@styled
def accuracy_over_labels(rows: Rows, *, metric: str = "accuracy", title: str = "") -> Figure:
    """Test score over the number of labeled nodes: median of each model, band from q20 to q80.

    Args:
        rows: One row per run: model, labels (nodes), test (0..1).
        metric: Name of the score for the axis.
        title: Above the picture.

    Raises:
        ValueError: If there are no rows.

    Source: figures 3.9 and B.8 of Li (2024).
    """
    runs = collected(rows, "rows", "labels")
    figure, (axes,) = panels(1, height=3.4)
    for index, model in enumerate(order(runs, "model")):
        mine = [row for row in runs if row["model"] == model]
        counts = sorted(order(mine, "labels"))
        low, middle, high = zip(
            *(band([100 * r["test"] for r in mine if r["labels"] == n]) for n in counts),
            strict=True,
        )
        style = look(index)
        axes.fill_between(counts, low, high, color=style["color"], alpha=0.18, linewidth=0)
        axes.plot(counts, middle, label=model, **style)
    axes.set_xscale("log")
    ticks = sorted(order(runs, "labels"))
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis="y")
    axes.set_xlabel("labeled nodes")
    axes.set_ylabel(f"test {metric} (%)")
    axes.set_title(title)
    axes.legend()
    return figure


@styled
def accuracy_and_bias(rows: Rows, *, bias_of: Sequence[str], title: str = "") -> Figure:
    """Test accuracy over the distance z that decides, and the learned b over the distance.

    Args:
        rows: One row per run: network, z (hops), test (0..1), and b (per distance) of some.
        bias_of: Networks whose b is drawn, a line for each z; of each z the first that has one.
        title: Above the picture.

    Raises:
        ValueError: If there are no rows.
    """
    runs = collected(rows, "rows", "test")
    figure, (left, right) = panels(2, height=4.2, width=9.0)
    for index, name in enumerate(order(runs, "network")):
        mine = [row for row in runs if row["network"] == name]
        style = look(index) if index < len(COLORS) else {"color": LIGHT, "marker": "*"}
        band_line(left, mine, "z", "test", style, name, scale=100)
    for index, z in enumerate(sorted(order(runs, "z"))):
        every = [[r["b"] for r in runs if (r["network"], r["z"]) == (name, z) and "b" in r]
                 for name in bias_of]  # fmt: skip
        found = next((of for of in every if of), [])
        line = [median(values) for values in zip(*found, strict=True)]
        right.plot(range(len(line)), line, label=f"labels by z = {z}", **look(index))
    left.set_xticks(sorted(order(runs, "z")))
    left.set_xlabel("distance z that decides (hops)")
    left.set_ylabel("test accuracy (%)")
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_xlabel("distance (hops)")
    right.set_ylabel("learned b, mean removed")
    right.legend()
    for axes in (left, right):
        axes.grid(axis="y")
    legend_below(figure, *left.get_legend_handles_labels())
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return figure
