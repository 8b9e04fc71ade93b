"""Pictures of rows over distances and groups: biases, attention, margins, bars."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from graphtheory.lab.plot import style
from graphtheory.lab.plot.style import COLORS, GRAY, Rows, collected, order, panels, styled

_PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.9, "pad": 0.5}


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
        look: Any = {
            "color": COLORS[index % len(COLORS)], "alpha": 0.75, "edgecolor": "white",
            "hatch": style.HATCHES[index % len(style.HATCHES)],
        }  # fmt: skip
        place = place - 0.42 + width * (index + 0.5)
        bars = axes.bar(place, list(found.values()), width * 0.92, label=name, **look)
        if not small:
            axes.bar_label(bars, fmt="{:,.0f}", fontsize=7.5, padding=2, bbox=_PAPER)
    if reference is not None:
        axes.axhline(
            reference[1], color="black", linestyle="--", linewidth=1, label=reference[0], zorder=0.9
        )
    axes.set_xticks(range(len(groups)), groups)
    axes.tick_params(axis="x", length=0)
    axes.set(ylabel=label, title=title)
    axes.margins(y=0.12)
    axes.grid(axis="y")
    if len(series) > 1 or reference is not None:
        figure.legend(loc="outside lower center", ncols=4)
    return figure


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
            line = style.look(index) | {"label": f"head {head}"}
            style.band_line(panel, style.grouped(mine, "distance", "bias"), line)
        panel.axhline(0, color=GRAY, linewidth=0.8)
        largest = max(row["distance"] for row in table)
        panel.set_xticks(range(0, largest + 1, max(1, -(-largest // 10))))
        panel.set(xlabel="distance z (hops)", title=f"layer {layer}")
        panel.grid(axis="y")
    axes[0].set_ylabel("learned bias $b_z$ (logit)")
    handles, labels = axes[0].get_legend_handles_labels()
    for twin in twins[:1]:
        more = twin.get_legend_handles_labels()
        handles, labels = handles + more[0], labels + more[1]
    style.legend_below(figure, handles, labels)
    for twin in twins[:-1]:
        twin.tick_params(labelright=False)
    if twins:
        twins[-1].set_ylabel("test accuracy of models that\naggregate only from distance z (%)")
    style.figure_title(figure, title)
    return figure


@styled
def attention_mass(rows: Rows, *, title: str = "") -> Figure:
    """Share of attention that goes to each distance, a bar a layer, uniform attention beside them.

    Args:
        rows: One row a run, layer and distance: layer (from 1), distance (hops), mass, uniform
            (both 0..1). Over several runs the bar is the median, the line q20 to q80.
        title: Above the picture.
    """
    table = collected(rows, "rows", "mass")
    layers = order(table, "layer")
    figure, (axes,) = panels(1, height=3.1)
    width = 0.8 / (len(layers) + 1)
    series: list[tuple[str, str, Any]] = [("uniform attention", "uniform", layers[0])]
    series += [(f"layer {layer}", "mass", layer) for layer in layers]
    hops = sorted(order(table, "distance"))
    for index, (label, key, layer) in enumerate(series):
        mine = [row for row in table if row["layer"] == layer]
        bands = map(style.band, style.grouped(mine, "distance", key, 100).values())
        low, middle, high = np.array(list(bands)).T
        place = np.arange(len(hops)) - 0.4 + width * (index + 0.5)
        color = style.LIGHT if index == 0 else COLORS[(index - 1) % len(COLORS)]
        hatch = style.HATCHES[index % len(style.HATCHES)]
        look: Any = {"color": color, "edgecolor": GRAY, "linewidth": 0.5, "hatch": hatch}
        axes.bar(place, middle, width, label=label, **look)
        if index:
            lines: Any = {"fmt": "none", "ecolor": "black", "elinewidth": 0.8, "capsize": 2}
            axes.errorbar(place, middle, [middle - low, high - middle], **lines)
    axes.set_xticks(range(len(hops)), [str(z) if z else "0\n(itself)" for z in hops])
    axes.set(xlabel="distance (hops)", ylabel="attention mass (%)", title=title)
    axes.grid(axis="y")
    axes.legend()
    return figure


@styled
def winning_margin(rows: Rows, *, normalized: bool = True, title: str = "") -> Figure:
    """Average winning margin over the distance, a line for each series.

    Args:
        rows: series (name of a line), distance (hops), margin (dimensionless, -1..1; nodes where
            it is not normalized).
        normalized: Whether the margin is divided by the number of nodes.
        title: Above the picture.

    Source: figure B.5 of Li (2024).
    """
    table = collected(rows, "rows", "margin")
    figure, (axes,) = panels(1, height=3.2)
    for index, series in enumerate(order(table, "series")):
        mine = sorted((r["distance"], r["margin"]) for r in table if r["series"] == series)
        axes.plot(*zip(*mine, strict=True), label=series, **style.look(index))
    axes.axhline(0, color=GRAY, linewidth=0.8)
    axes.set_xticks(sorted(order(table, "distance")))
    label = r"normalized margin $\bar\Delta(z)$" if normalized else r"margin $\Delta(z)$ (nodes)"
    axes.set(xlabel="distance z (hops)", ylabel=label, title=title)
    axes.grid(axis="y")
    axes.legend()
    return figure


def _accuracy(axes: Axes, rows: list[dict[str, Any]]) -> Axes:
    twin = axes.twinx()
    axes.set_zorder(twin.get_zorder() + 1)
    axes.patch.set_visible(False)
    for index, series in enumerate(dict.fromkeys(row.get("series", "") for row in rows)):
        mine = [row for row in rows if row.get("series", "") == series]
        line = {
            "color": ("black", GRAY)[index % 2], "linewidth": 2.2, "label": series or None,
            "linestyle": (0, (4, 2)) if index == 0 else (0, (1, 1.5)),
        }  # fmt: skip
        style.band_line(twin, style.grouped(mine, "distance", "test", 100), line, alpha=0.1)
    twin.spines["right"].set_visible(True)
    return twin
