"""What a graph transformer has learned about distance, and where it looks."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from graphtheory.lab.plot.style import (
    COLORS,
    GRAY,
    HATCHES,
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


@styled
def learned_bias(rows: Rows, accuracy: Rows | None = None, *, title: str = "") -> Figure:
    """Learned b_z over the distance, a panel for each layer, a line for each head.

    With `accuracy` each panel also shows, dashed on its right axis, the test accuracy of models
    that aggregate only from nodes at distance exactly z. Over several runs a line is the median,
    its band q20 to q80.

    Args:
        rows: layer (from 1), head (from 1), distance (hops), bias (dimensionless, a logit).
        accuracy: One row a run: distance (hops), test (0..1), and where there are several kinds of
            such models series, the name of the kind.
        title: Above the picture.

    Raises:
        ValueError: No rows.

    Source: figures 3.8 and B.7 of Li (2024).
    """
    table = collected(rows, "rows", "bias")
    layers = order(table, "layer")
    figure, axes = panels(len(layers), height=3.4, width=max(5.0, 3.5 * len(layers)), sharey=True)
    beside = [] if accuracy is None else collected(accuracy, "accuracy", "test")
    twins = [_accuracy(panel, beside) for panel in axes if beside]
    for layer, panel in zip(layers, axes, strict=True):
        for index, head in enumerate(order(table, "head")):
            mine = [r for r in table if (r["layer"], r["head"]) == (layer, head)]
            _line(panel, mine, "bias", index, f"head {head}")
        panel.axhline(0, color=GRAY, linewidth=0.8)
        _hops(panel, [row["distance"] for row in table])
        panel.set_title(f"layer {layer}")
    axes[0].set_ylabel("learned bias $b_z$ (logit)")
    handles, labels = axes[0].get_legend_handles_labels()
    for twin in twins[:1]:
        more = twin.get_legend_handles_labels()
        handles, labels = handles + more[0], labels + more[1]
    legend_below(figure, handles, labels)
    for twin in twins[:-1]:
        twin.tick_params(labelright=False)
    if twins:
        twins[-1].set_ylabel("test accuracy of models that\naggregate only from distance z (%)")
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return figure


@styled
def attention_mass(rows: Rows, *, title: str = "") -> Figure:
    """Share of attention that goes to each distance, a bar a layer, uniform attention beside them.

    Args:
        rows: One row a run, layer and distance: layer (from 1), distance (hops), mass, uniform
            (both 0..1). Over several runs the bar is the median, the line q20 to q80.
        title: Above the picture.

    Raises:
        ValueError: No rows.
    """
    table = collected(rows, "rows", "mass")
    hops, layers = sorted(order(table, "distance")), order(table, "layer")
    figure, (axes,) = panels(1, height=3.1)
    width = 0.8 / (len(layers) + 1)
    series: list[tuple[str, str, Any]] = [("uniform attention", "uniform", layers[0])]
    series += [(f"layer {layer}", "mass", layer) for layer in layers]
    for index, (label, key, layer) in enumerate(series):
        mine = [row for row in table if row["layer"] == layer]
        low, middle, high = np.array(
            [band([100 * r[key] for r in mine if r["distance"] == z]) for z in hops]
        ).T
        place = np.arange(len(hops)) - 0.4 + width * (index + 0.5)
        color = LIGHT if index == 0 else COLORS[(index - 1) % len(COLORS)]
        axes.bar(
            place, middle, width, color=color, edgecolor=GRAY, linewidth=0.5, label=label,
            hatch=HATCHES[index % len(HATCHES)],
        )  # fmt: skip
        if index:
            axes.errorbar(
                place, middle, [middle - low, high - middle],
                fmt="none", ecolor="black", elinewidth=0.8, capsize=2,
            )  # fmt: skip
    axes.set_xticks(range(len(hops)), [str(z) if z else "0\n(itself)" for z in hops])
    axes.set_xlabel("distance (hops)")
    axes.set_ylabel("attention mass (%)")
    axes.grid(axis="y")
    axes.set_title(title)
    axes.legend()
    return figure


def _line(axes: Axes, rows: list[dict[str, Any]], key: str, index: int, label: str) -> None:
    hops = sorted(order(rows, "distance"))
    low, middle, high = zip(
        *(band([r[key] for r in rows if r["distance"] == z]) for z in hops), strict=True
    )
    style = look(index)
    axes.fill_between(hops, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.plot(hops, middle, label=label, **style)


def _accuracy(axes: Axes, rows: list[dict[str, Any]]) -> Axes:
    """The right axis of a panel."""
    twin = axes.twinx()
    axes.set_zorder(twin.get_zorder() + 1)
    axes.patch.set_visible(False)
    for index, series in enumerate(dict.fromkeys(row.get("series", "") for row in rows)):
        mine = [row for row in rows if row.get("series", "") == series]
        hops = sorted(order(mine, "distance"))
        low, middle, high = np.array(
            [band([100 * r["test"] for r in mine if r["distance"] == z]) for z in hops]
        ).T
        gray = ("black", GRAY)[index % 2]
        twin.fill_between(hops, low, high, color=gray, alpha=0.1, linewidth=0)
        line = (0, (4, 2)) if index == 0 else (0, (1, 1.5))
        twin.plot(hops, middle, color=gray, linestyle=line, linewidth=2.2, label=series or None)
    twin.spines["right"].set_visible(True)
    return twin


def _hops(axes: Axes, distances: list[int]) -> None:
    largest = max(distances)
    axes.set_xticks(range(0, largest + 1, max(1, -(-largest // 10))))
    axes.set_xlabel("distance z (hops)")
    axes.grid(axis="y")
