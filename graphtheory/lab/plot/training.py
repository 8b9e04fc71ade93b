"""What happens epoch by epoch."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, MaxNLocator

from graphtheory.lab.plot.style import Rows, band, collected, look, named, order, panels, styled


@styled
def learning_curves(
    rows: Rows,
    *,
    metric: str = "accuracy",
    unit: str = "%",
    higher_is_better: bool = True,
    loss_unit: str = "nats",
    title: str = "",
) -> Figure:
    """Training loss and validation score over the epochs: median of the runs, band from q20 to q80.

    Without `val` in the rows, as of learning without labels, the loss alone. A curve ends where
    fewer than half of a model's runs still train: what early stopping leaves would be another,
    better selection of runs.

    Args:
        rows: One row an epoch: model, seed, epoch (from 1), train_loss, val (0..1 for the
            unit "%").
        metric: Name of the score for the axis.
        unit: "%" shows shares in percent; scores of any other unit, or of none (""), as they are.
        higher_is_better: Of the score; decides where the legend is out of the way.
        loss_unit: Of the loss; "" for none.
        title: Above the picture.

    Raises:
        ValueError: No rows.
    """
    epochs = collected(rows, "rows", "epoch")
    figure, drawn = panels(2 if "val" in epochs[0] else 1, height=3.1)
    for index, model in enumerate(order(epochs, "model")):
        mine = [row for row in epochs if row["model"] == model]
        _curve(drawn[0], mine, "train_loss", 1, index)
        for score in drawn[1:]:
            _curve(score, mine, "val", 100 if unit == "%" else 1, index)
    drawn[0].set_yscale("log")
    drawn[0].yaxis.set_major_formatter(_Plain(minor_thresholds=(2, 0.5)))
    drawn[0].yaxis.set_minor_formatter(_Plain(minor_thresholds=(2, 0.5)))
    drawn[0].set_ylabel(named("training loss", loss_unit))
    for axes in drawn:
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
        axes.grid(axis="y")
    drawn[0].set_title(title)
    for score in drawn[1:]:
        score.set_ylabel(named(f"validation {metric}", unit))
        score.legend(loc="lower right" if higher_is_better else "upper right")
    return figure


class _Plain(LogFormatter):
    """0.9 and not 9 x 10^-1, at the places that matplotlib labels."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def _curve(axes: Axes, rows: list[dict[str, Any]], key: str, scale: float, index: int) -> None:
    at: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        at[int(row["epoch"])].append(scale * row[key])
    runs = len(order(rows, "seed"))
    shown = [epoch for epoch in sorted(at) if 2 * len(at[epoch]) >= runs]
    low, middle, high = zip(*(band(at[epoch]) for epoch in shown), strict=True)
    style = look(index) | {"marker": None}
    axes.fill_between(shown, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.plot(shown, middle, label=rows[0]["model"], **style)
