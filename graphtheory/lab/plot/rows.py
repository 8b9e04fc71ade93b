"""Pictures of rows: how well networks do and how they came there, and what distance is worth."""

import math
from statistics import fmean, stdev
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, MaxNLocator

from graphtheory.lab.plot import style
from graphtheory.lab.plot.style import COLORS, GRAY, Rows, collected, named, order, panels, styled

_ROW = 0.42  # inches a bar
_TEXT: Any = {"bbox": {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}}
_PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.9, "pad": 0.5}


@styled
def score_bars(runs: Rows, *, metric: str = "accuracy", unit: str = "%", title: str = "") -> Figure:
    """Test score of each model: bars of the means from 0, and beside them, enlarged, every run.

    Args:
        runs: One row a run: model, test (0..1 for the unit "%").
        metric: Name of the score for the axis.
        unit: "%" shows shares in percent; scores of any other unit, or of none (""), as they are.
        title: Above the picture.
    """
    rows = collected(runs, "runs", "test")
    models, scale = order(rows, "model"), 100 if unit == "%" else 1
    figure, (bars, dots) = panels(2, height=1.1 + _ROW * len(models), width_ratios=(2, 3))
    for place, model in enumerate(models):
        scores = [scale * row["test"] for row in rows if row["model"] == model]
        mean, spread = fmean(scores), stdev(scores) if len(scores) > 1 else 0.0
        color = COLORS[place % len(COLORS)]
        bars.barh(place, mean, height=0.62, color=color, alpha=0.75)
        digits = ".1f" if unit == "%" else "#.3g"
        text = f"{mean:{digits}} ± {spread:{digits}}" if len(scores) > 1 else f"{mean:{digits}}"
        bars.annotate(text, (0, place), (5, 0), textcoords="offset points", va="center", **_TEXT)
        dots.errorbar(mean, place, xerr=spread, fmt="|", color="black", capsize=4, markersize=14)
        shift = np.linspace(-0.22, 0.22, len(scores)) if len(scores) > 1 else np.zeros(1)
        dots.plot(scores, place + shift, ".", color=color, markersize=6, alpha=0.8)
    _names(bars, models)
    _names(dots, [""] * len(models))
    if unit == "%":
        bars.set_xlim(0, 100)
    bars.set(xlabel=named(f"test {metric}", unit), title=title)
    dots.set_xlabel("enlarged: runs, mean ± standard deviation")
    return figure


@styled
def paired_differences(
    rows: Rows, *, first: str, unit: str = "%", higher_is_better: bool = True, title: str = ""
) -> Figure:
    """By how much `first` is ahead of each other model on the same seed: mean and interval.

    Args:
        rows: One row a model: model, difference (0..1 for the unit "%", positive where `first` is
            better), half_width (of the interval, the same; nan of one seed), reading ("ahead" and
            "behind" have a color, anything else is gray).
        first: The model that the others are compared with.
        unit: "%" shows shares in percent points; any other, or none (""), the score as it is.
        higher_is_better: Of the score, for the names: `first - other`, else `other - first`.
        title: Above the picture.
    """
    found = collected(rows, "rows", "difference")
    figure, (axes,) = panels(1, height=1.1 + _ROW * len(found))
    scale = 100 if unit == "%" else 1
    for place, row in enumerate(found):
        mean, error = scale * row["difference"], scale * row["half_width"]
        color = {"ahead": COLORS[0], "behind": COLORS[1]}.get(row["reading"], GRAY)
        error = 0.0 if math.isnan(error) else error
        axes.errorbar(mean, place, xerr=error, fmt="o", color=color, capsize=4, markersize=6)
    axes.axvline(0, color="black", linewidth=1)
    pairs = [(first, row["model"]) if higher_is_better else (row["model"], first) for row in found]
    _names(axes, [f"{one} - {other}" for one, other in pairs])
    amount = "points of the test score" if unit == "%" else named("test score", unit)
    amount += "" if higher_is_better else f" (right of 0: {first} is better)"
    axes.set(xlabel=f"{amount}, paired by seed: mean and 95 % interval", title=title)
    axes.margins(x=0.12)
    return figure


def _names(axes: Axes, names: list[str]) -> None:
    """Names down the left side, the first on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


@styled
def score_over_cost(runs: Rows, *, metric: str = "accuracy", title: str = "") -> Figure:
    """Test score of each model over the products of one image: every run, mean and deviation.

    Args:
        runs: One row a run: model, gmacs (10^9 multiply-accumulate operations), test (0..1).
        metric: Name of the score for the axis.
        title: Above the picture.
    """
    rows = collected(runs, "runs", "gmacs")
    figure, (axes,) = panels(1, height=3.6)
    for index, model in enumerate(order(rows, "model")):
        mine = [row for row in rows if row["model"] == model]
        scores = [100 * row["test"] for row in mine]
        cost = 1000 * mine[0]["gmacs"]
        color = COLORS[index % len(COLORS)]
        marker = style.MARKERS[(index + index // len(COLORS)) % len(style.MARKERS)]
        spread = stdev(scores) if len(scores) > 1 else 0.0
        axes.plot([cost] * len(scores), scores, ".", color=color, alpha=0.4, markersize=5)
        axes.errorbar(
            cost, fmean(scores), yerr=spread, color=color, marker=marker, markersize=7,
            capsize=3, linestyle="", label=model,
        )  # fmt: skip
    axes.set_xlim(left=0)
    axes.margins(y=0.12)
    axes.grid()
    cost_label = "multiply-accumulate operations of one image (millions)"
    axes.set(xlabel=cost_label, ylabel=f"test {metric} (%)", title=title)
    figure.legend(loc="outside right upper")
    return figure


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
    drawn[0].set(ylabel=named("training loss", loss_unit), title=title)
    for axes in drawn:
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
        axes.grid(axis="y")
    for score in drawn[1:]:
        score.set_ylabel(named(f"validation {metric}", unit))
        score.legend(loc="lower right" if higher_is_better else "upper right")
    return figure


class _Plain(LogFormatter):
    """0.9 and not 9 x 10^-1, at the places that matplotlib labels."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def _curve(axes: Axes, rows: list[dict[str, Any]], key: str, scale: float, index: int) -> None:
    runs, at = len(order(rows, "seed")), style.grouped(rows, "epoch", key, scale)
    shown = {epoch: values for epoch, values in at.items() if 2 * len(values) >= runs}
    style.band_line(axes, shown, style.look(index) | {"marker": None, "label": rows[0]["model"]})


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
