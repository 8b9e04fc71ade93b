"""What a score costs."""

from __future__ import annotations

from statistics import fmean, stdev

from matplotlib.figure import Figure

from graphtheory.lab.plot.style import COLORS, MARKERS, Rows, collected, order, panels, styled


@styled
def score_over_cost(runs: Rows, *, metric: str = "accuracy", title: str = "") -> Figure:
    """Test score of each model over the products of one image: every run, mean and deviation.

    Args:
        runs: One row a run: model, gmacs (10^9 multiply-accumulate operations), test (0..1).
        metric: Name of the score for the axis.
        title: Above the picture.

    Raises:
        ValueError: No rows.
    """
    rows = collected(runs, "runs", "gmacs")
    figure, (axes,) = panels(1, height=3.6)
    for index, model in enumerate(order(rows, "model")):
        mine = [row for row in rows if row["model"] == model]
        scores = [100 * row["test"] for row in mine]
        cost = 1000 * mine[0]["gmacs"]
        color = COLORS[index % len(COLORS)]
        marker = MARKERS[(index + index // len(COLORS)) % len(MARKERS)]
        spread = stdev(scores) if len(scores) > 1 else 0.0
        axes.plot([cost] * len(scores), scores, ".", color=color, alpha=0.4, markersize=5)
        axes.errorbar(
            cost, fmean(scores), yerr=spread, color=color, marker=marker, markersize=7,
            capsize=3, linestyle="", label=model,
        )  # fmt: skip
    axes.set_xlim(left=0)
    axes.margins(y=0.12)
    axes.grid()
    axes.set_xlabel("multiply-accumulate operations of one image (millions)")
    axes.set_ylabel(f"test {metric} (%)")
    axes.set_title(title)
    figure.legend(loc="outside right upper")
    return figure
