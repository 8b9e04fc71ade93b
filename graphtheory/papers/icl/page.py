"""Attention of the query of each prompt, drawn on one page."""

from matplotlib.figure import Figure
from torch import Tensor

from graphtheory.lab.bench.table import pairs
from graphtheory.lab.plot.style import COLORS, styled
from graphtheory.lab.report.page import Page
from graphtheory.papers.icl.prompts import Prompts

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
