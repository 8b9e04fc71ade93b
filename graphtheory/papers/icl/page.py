"""Attention of the query of each prompt, drawn on one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.figure import Figure
from torch import Tensor

from graphtheory.lab.bench.table import Table
from graphtheory.lab.plot.style import COLORS, styled
from graphtheory.lab.report.page import Page
from graphtheory.papers.icl.prompts import Prompts

_COLORS = {1.0: COLORS[0], -1.0: COLORS[1]}  # of labels
_LABELED = 30  # contexts, of which more leave no room for numbers above the bars
Namer = Callable[[int], str]


def prompt_page(
    prompts: Prompts,
    attention: Tensor | Mapping[str, Tensor],
    value: Tensor,
    *,
    title: str = "Attention in context",
    pattern: Namer | Sequence[str] = lambda j: f"μ{j + 1}",
) -> Page:
    """A drawing for each prompt: its contexts, their labels, and the query's attention on each.

    A column is a context, in the order of the prompt, and its bar the weight. It is blue for the
    label +1, orange for -1, green for another number; a dark frame marks contexts with the query's
    relevant pattern. The page is one file without scripts, of a few dozen prompts at most. Weights
    are [P, l], or those of several heads or layers by name.
    """
    rows = {"attention": attention} if isinstance(attention, Tensor) else dict(attention)
    _check(prompts, rows, value)
    right = value * prompts.answer > 0
    told = f"{int(right.sum())} of {len(prompts)} answers are right: the sign of F is the label."
    page = Page(title, told)
    page.table(_summary(prompts, rows))
    names = pattern if callable(pattern) else list(pattern).__getitem__
    for p in range(len(prompts)):
        page.section(f"Prompt {p + 1}: {_asked(prompts, p, names)}")
        verdict = "right" if bool(right[p]) else "wrong"
        weights = {name: of[p].tolist() for name, of in rows.items()}
        page.picture(
            _drawing(prompts[p], weights, names),
            f"F = {float(value[p]):.3f}, label {float(prompts.answer[p]):+.3g}: {verdict}.",
        )
    return page


def _check(prompts: Prompts, rows: Mapping[str, Tensor], value: Tensor) -> None:
    """Raise unless there are contexts and finite weights to draw."""
    if not prompts.length:
        raise ValueError("prompts: got no contexts, expected at least one")
    for name, weights in rows.items():
        if weights.shape != (len(prompts), prompts.length):
            raise ValueError(
                f"attention: {name} of shape {tuple(weights.shape)}, expected "
                f"[{len(prompts)}, {prompts.length}]"
            )
        if not bool(weights.isfinite().all()):
            bad = int((~weights.isfinite()).sum())
            raise ValueError(
                f"attention: {name} has {bad} infinite or NaN, expected finite weights"
            )
    if value.shape != prompts.answer.shape:
        raise ValueError(f"value: shape {tuple(value.shape)}, expected [{len(prompts)}]")


def _summary(prompts: Prompts, rows: Mapping[str, Tensor]) -> Table:
    """Attention of each head on contexts with the query's pattern, where there are patterns."""
    columns = ["", "largest weight of a context, mean"]
    lines = [[name, f"{float(w.amax(1).mean()):.3f}"] for name, w in rows.items()]
    if prompts.pattern is not None:
        same = prompts.same_pattern()
        columns += ["on the query's pattern", "share of such contexts"]
        for line, weights in zip(lines, rows.values(), strict=True):
            line += [
                f"{float((weights * same).sum(1).mean()):.3f}", f"{float(same.float().mean()):.3f}"
            ]  # fmt: skip
    return Table("All prompts", columns, lines)


def _asked(prompts: Prompts, p: int, names: Namer) -> str:
    if prompts.task is None or prompts.pattern is None:
        return f"{prompts.length} contexts"
    plus, minus = (names(int(j)) for j in prompts.task[p])
    return f"{plus} is +1, {minus} is -1, the query has {names(int(prompts.pattern[p, -1]))}"


@styled
def _drawing(prompt: Prompts, rows: Mapping[str, list[float]], names: Namer) -> Figure:
    """One prompt: pattern and label of each context, and a bar for each weight."""
    figure = Figure(figsize=(9, 0.8 + len(rows)), layout="constrained")
    places = range(prompt.length)
    labels = prompt.y[0, :-1].tolist()
    own = [False] * prompt.length if prompt.pattern is None else prompt.same_pattern()[0].tolist()
    panels = figure.subplots(len(rows), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (name, weights) in zip(panels, rows.items(), strict=True):
        colors = [_COLORS.get(y, COLORS[2]) for y in labels]
        frames = [1.5 * same for same in own]
        bars = axes.bar(places, weights, color=colors, edgecolor="black", linewidth=frames)
        if prompt.length <= _LABELED:
            axes.bar_label(bars, fmt="%.2f", fontsize=6)
        axes.set_ylabel(name, rotation=0, ha="right")
        axes.set_yticks([])
    shown = [{1.0: "+", -1.0: "\u2212"}.get(y, f"{y:.1f}") for y in labels]
    if prompt.pattern is not None:
        contexts = prompt.pattern[0, :-1].tolist()
        shown = [f"{names(j)}\n{y}" for j, y in zip(contexts, shown, strict=True)]
    axes.set_xticks(places, shown, fontsize=7)
    return figure
