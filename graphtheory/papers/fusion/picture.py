"""What attention among the samples of a batch finds of their classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from graphtheory.lab.plot.style import GRAY, Rows, collected, look, order, styled
from graphtheory.papers.curve_pictures import band_line

_SPAN = 30.0  # largest over smallest weight that the colors tell apart


@styled
def attention_by_depth(
    maps: Rows, rows: Rows, measures: dict[str, str], *, title: str = ""
) -> Figure:
    """Attention of some layers, samples ordered by class, over measures of every layer.

    A color says how many times uniform attention a weight is, on a logarithmic scale. Below, a line
    is the median over the runs, its band q20 to q80. Maps hold layer (from 1), labels (sorted, one
    per sample) and weights (rows of attention); rows, one per run and layer, series, layer and the
    `measures`, whose values are the names of their axes.

    Source: Li and Pimentel-Alarcon (2024), table 1.
    """
    shown, table = collected(maps, "maps", "weights"), collected(rows, "rows", "layer")
    figure = Figure(figsize=(8.4, 5.0), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 1.25))
    above, below = parts
    panels = above.subplots(1, len(shown), squeeze=False)[0]
    for axes, found in zip(panels, shown, strict=True):
        image = _map(axes, np.asarray(found["weights"]), found["labels"])
        axes.set_title(f"layer {found['layer']}")
    bar = above.colorbar(image, ax=list(panels), shrink=0.85, ticks=[0.2, 0.5, 1, 2, 5])
    bar.ax.set_yticklabels(["0.2", "0.5", "1", "2", "5"])
    bar.ax.minorticks_off()
    bar.set_label("times uniform")
    lower = below.subplots(1, len(measures), squeeze=False)[0]
    for axes, (key, name) in zip(lower, measures.items(), strict=True):
        _lines(axes, table, key)
        axes.set_ylabel(name)
        axes.set_xlabel("layer")
    handles, labels = lower[0].get_legend_handles_labels()
    below.legend(handles, labels, loc="outside lower center", ncols=4)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return figure


def _map(axes: Any, weights: Any, labels: list[int]) -> Any:
    spread = _SPAN**0.5
    times = np.clip(weights * len(labels), 1 / spread, spread)
    image = axes.imshow(
        times, cmap="cividis", norm=LogNorm(1 / spread, spread), interpolation="nearest"
    )
    for place in np.flatnonzero(np.diff(labels)) + 0.5:
        axes.axhline(place, color="white", linewidth=0.3)
        axes.axvline(place, color="white", linewidth=0.3)
    axes.set_xticks([])
    axes.set_yticks([])
    return image


def _lines(axes: Any, table: list[dict[str, Any]], key: str) -> None:
    for index, series in enumerate(order(table, "series")):
        mine = [row for row in table if row["series"] == series]
        band_line(axes, mine, "layer", key, look(index), series)
    if key == "mass":
        axes.axhline(table[0]["uniform"], color=GRAY, linewidth=1, linestyle=":", label="uniform")
    axes.set_xticks(sorted(order(table, "layer")))
    axes.set_ylim(0, 1.12 * axes.dataLim.ymax)
    axes.grid(axis="y")
