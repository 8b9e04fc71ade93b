"""Pictures of in-context learning: errors, attention, neurons, pruning; a page of prompts."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from graphtheory.lab.bench.rows import pairs
from graphtheory.lab.plot import style
from graphtheory.lab.plot.style import COLORS, GRAY, LIGHT, WIDTH, Rows, styled
from graphtheory.lab.report.page import Page
from graphtheory.papers.icl.prompts import Prompts
from graphtheory.papers.pictures import percent_axis, value_curves

_SHADES = "viridis"


prompt_errors = partial(
    value_curves, value="error", ylabel="test error (%)", scale=100, log=False, axis=percent_axis
)
"""Test error over one setting, for rows with an error (0..1). Options as in `value_curves`."""


@style.styled
def prompt_mechanism(looks: Rows, neurons: Rows, *, title: str = "") -> Figure:
    """Keys and queries, attention and neurons in the course of training, in four panels.

    Looks, one per seed, step and domain, hold step, seed, domain, same (mass), and whole, along and
    across of "query" and of "key"; the last domain's keys and queries are drawn. Neurons, one row
    per neuron and step, hold step, neuron, sign, and norm and cosine of "input" and of "label".

    Source: figure 6.2 of Li (2024).
    """
    rows = style.collected(looks, "looks", "same")
    single = style.collected(neurons, "neurons", "sign")
    figure = Figure(figsize=(WIDTH + 1.8, 6.6), layout="constrained")
    (norms, mass), (inputs, labels) = figure.subplots(2, 2)
    last = style.order(rows, "domain")[-1]
    outside = [row for row in rows if row["domain"] == last]
    lines = (
        ("whole", "-", "length of W p"), ("along", "--", "along its pattern"),
        ("across", ":", "along another"),
    )  # fmt: skip
    for index, part in enumerate(("query", "key")):
        for key, dashes, name in lines:
            drawn = style.look(index) | {"linestyle": dashes}
            _over_steps(norms, outside, f"{part} {key}", drawn, f"{part}: {name}")
    norms.set_title(f"keys and queries, {last}")
    norms.set_ylim(0, 1.5 * max(row[f"{p} whole"] for row in outside for p in ("query", "key")))
    for index, domain in enumerate(style.order(rows, "domain")):
        mine = [row for row in rows if row["domain"] == domain]
        _over_steps(mass, mine, "same", style.look(index), f"same, {domain}")
        rest = [row | {"rest": 1 - row["same"]} for row in mine]
        drawn = style.look(index) | {"linestyle": ":"}
        _over_steps(mass, rest, "rest", drawn, f"others, {domain}")
    mass.set_title("attention on the same pattern")
    mass.set_ylim(-0.02, 1.3)
    mass.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    steps = Normalize(0, max(row["step"] for row in single))
    for axes, part, what in ((inputs, "input", "mean pattern"), (labels, "label", "± q")):
        _paths(axes, single, part, steps)
        axes.set(xlabel=f"cosine with {what}", ylabel=f"length of the {part} part")
        axes.set_title(f"neurons, {part} part")
    for axes in (norms, mass):
        axes.set_xlabel("steps of SGD")
        axes.grid(axis="y")
    norms.legend(fontsize=7, loc="upper left", ncols=2)
    mass.legend(fontsize=7, loc="upper left", ncols=2)
    shade = ScalarMappable(steps, _SHADES)
    figure.colorbar(shade, ax=(inputs, labels), label="steps of SGD", shrink=0.8)
    style.figure_title(figure, title)
    return figure


def _over_steps(
    axes: Axes, rows: list[dict[str, Any]], key: str, drawn: dict[str, Any], name: str
) -> None:
    line = drawn | {"marker": None, "label": name}
    style.band_line(axes, style.grouped(rows, "step", key), line, alpha=0.12)


def _paths(axes: Axes, rows: list[dict[str, Any]], part: str, steps: Normalize) -> None:
    """The path of every neuron, colored by steps; circles where a > 0, crosses where a < 0."""
    for neuron in style.order(rows, "neuron"):
        mine = [row for row in rows if row["neuron"] == neuron]
        x, y = ([row[f"{part} {what}"] for row in mine] for what in ("cosine", "norm"))
        axes.plot(x, y, color=LIGHT, linewidth=0.8, zorder=1)
        marker = "o" if mine[0]["sign"] > 0 else "x"
        axes.scatter(
            x, y, c=[row["step"] for row in mine], norm=steps, cmap=_SHADES, marker=marker, s=14
        )
    axes.plot([], [], "o", color=GRAY, label="a > 0", linestyle="")
    axes.plot([], [], "x", color=GRAY, label="a < 0", linestyle="")
    axes.legend(fontsize=7.5, loc="upper left")
    axes.set_xlim(-1.05, 1.05)
    axes.grid()


@style.styled
def pruning_curves(
    rows: Rows,
    norms: Rows = (),
    *,
    series: str = "{rule}",
    title: str = "",
    small: Mapping[int, float] | None = None,
) -> Figure:
    """Error over the share of neurons removed, a panel for each width; their norms as bars.

    Rows, one per seed, hold width, rate (share removed, 0..1) and error (0..1); `series` names
    their line, with keys of the row in braces. Norms, one per seed and part of the neurons, hold
    width, rank (share of smaller ones) and norm; `small` is the share of small neurons, a dotted
    line.

    Source: figure 6.5 of Li (2024).
    """
    runs, sizes = [dict(row, removed=100 * row["rate"]) for row in rows], list(norms)
    figure = prompt_errors(
        runs, panel="m = {width}", series=series, at="removed", title=title,
        xlabel="neurons removed (%); bars: smallest first",
    )  # fmt: skip
    for width, axes in zip(style.order(runs, "width"), figure.get_axes(), strict=True):
        if width in (small or {}):
            axes.axvline(100 * (small or {})[width], color=GRAY, linestyle=":", linewidth=1.2)
        axes.set_xlim(-3, 100)
        _bars(axes, [dict(row) for row in sizes if row["width"] == width])
    return figure


def _bars(axes: Axes, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    sizes = style.grouped(rows, "rank", "norm")
    middle = [style.band(norms)[1] for norms in sizes.values()]
    twin = axes.twinx()
    axes.set_zorder(twin.get_zorder() + 1)
    axes.patch.set_visible(False)
    places, width = [100 * rank for rank in sizes], 90 / len(sizes)
    twin.bar(places, middle, width, color=COLORS[5], alpha=0.35, linewidth=0)
    twin.set_ylabel("length of a row of $W_O W_V$")
    twin.spines["right"].set_visible(True)


_COLORS = {1.0: COLORS[0], -1.0: COLORS[1]}  # of labels
_LABELED = 30  # contexts, of which more leave no room for numbers above the bars


def prompt_page(prompts: Prompts, attention: Tensor, value: Tensor) -> Page:
    """A drawing for each prompt: its contexts, their labels, and the query's attention on each.

    A column is a context, in the order of the prompt, and its bar the weight. It is blue for the
    label +1, orange for -1, green for another number; a dark frame marks contexts with the query's
    relevant pattern. The page is one file without scripts, of a few dozen prompts at most. Weights
    are [P, l], outputs F of the network [P].
    """
    _check(prompts, attention, value)
    right = value * prompts.answer > 0
    told = f"{int(right.sum())} of {len(prompts)} answers are right: the sign of F is the label."
    page = Page("Attention in context", told)
    found = {"largest weight of a context": attention.amax(1)}
    if prompts.pattern is not None:
        same = prompts.same_pattern()
        found["attention on the query's pattern"] = (attention * same).sum(1)
        found["share of such contexts"] = same.float()
    page.table(
        pairs("Means of all prompts", [(n, f"{float(of.mean()):.3f}") for n, of in found.items()])
    )
    for p in range(len(prompts)):
        page.section(f"Prompt {p + 1}: {_asked(prompts[p])}")
        verdict = "right" if bool(right[p]) else "wrong"
        page.picture(
            _drawing(prompts[p], attention[p].tolist()),
            f"F = {float(value[p]):.3f}, label {float(prompts.answer[p]):+.3g}: {verdict}.",
        )
    return page


def _check(prompts: Prompts, attention: Tensor, value: Tensor) -> None:
    """Raise unless there are contexts and finite weights to draw."""
    if not prompts.length:
        raise ValueError("prompts: got no contexts, expected at least one")
    wanted = (len(prompts), prompts.length)
    if attention.shape != wanted:
        raise ValueError(f"attention: shape {tuple(attention.shape)}, expected {wanted}")
    if bad := int((~attention.isfinite()).sum()):
        raise ValueError(f"attention: {bad} infinite or NaN, expected finite weights")
    if value.shape != prompts.answer.shape:
        raise ValueError(f"value: shape {tuple(value.shape)}, expected [{len(prompts)}]")


def _asked(prompt: Prompts) -> str:
    if prompt.task is None or prompt.pattern is None:
        return f"{prompt.length} contexts"
    plus, minus, query = (j + 1 for j in (*prompt.task[0].tolist(), int(prompt.pattern[0, -1])))
    return f"\u03bc{plus} is +1, \u03bc{minus} is -1, the query has \u03bc{query}"


@styled
def _drawing(prompt: Prompts, weights: list[float]) -> Figure:
    """One prompt: pattern and label of each context, and a bar for its weight."""
    figure = Figure(figsize=(9, 1.8), layout="constrained")
    axes, places, labels = figure.subplots(), range(prompt.length), prompt.y[0, :-1].tolist()
    shown = [{1.0: "+", -1.0: "\u2212"}.get(y, f"{y:.1f}") for y in labels]
    frames = [0.0] * prompt.length
    if prompt.pattern is not None:
        contexts = prompt.pattern[0, :-1].tolist()
        shown = [f"\u03bc{j + 1}\n{y}" for j, y in zip(contexts, shown, strict=True)]
        frames = (1.5 * prompt.same_pattern()[0]).tolist()
    colors = [_COLORS.get(y, COLORS[2]) for y in labels]
    bars = axes.bar(places, weights, color=colors, edgecolor="black", linewidth=frames)
    if prompt.length <= _LABELED:
        axes.bar_label(bars, fmt="%.2f", fontsize=6)
    axes.set_xticks(places, shown, fontsize=7)
    axes.set(ylabel="attention", yticks=[])
    return figure
