"""Test scores over the number of labeled nodes."""

from __future__ import annotations

from matplotlib.figure import Figure

from graphtheory.plot.style import Rows, band, collected, look, order, panels, styled


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
