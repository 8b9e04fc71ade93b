"""Attention of the query of each prompt, drawn on one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from torch import Tensor

from graphtheory.lab.bench.table import Table
from graphtheory.lab.report.page import Page
from graphtheory.papers.icl.prompts import Prompts

_WIDTH, _LEFT, _CELL = 900, 120, 34  # pixels
_LINE, _TOP = 26, 56
_PLUS, _MINUS, _NUMBER, _INK, _QUIET = "#0072B2", "#D55E00", "#009E73", "#1d1f21", "#6B6B6B"
Namer = Callable[[int], str]


def prompt_page(
    prompts: Prompts,
    attention: Tensor | Mapping[str, Tensor],
    value: Tensor,
    *,
    title: str = "Attention in context",
    pattern: Namer | Sequence[str] = lambda j: f"μ{j + 1}",
    lead: str = "",
) -> Page:
    """A drawing for each prompt: its contexts, their labels, and the query's attention on each.

    A column is a context, in the order of the prompt; pointing at a bar shows its weight. The
    highest bar of a row is the largest weight of that prompt. A bar is blue for the label +1,
    orange for -1, green for another number; a dark frame marks contexts with the query's relevant
    pattern. The page is one file without scripts, of a few dozen prompts at most. Weights are
    [P, l], or those of several heads or layers by name.
    """
    rows = {"attention": attention} if isinstance(attention, Tensor) else dict(attention)
    _check(prompts, rows, value)
    right = value * prompts.answer > 0
    told = f"{int(right.sum())} of {len(prompts)} answers are right: the sign of F is the label."
    page = Page(title, lead or told)
    page.table(_summary(prompts, rows))
    names = pattern if callable(pattern) else list(pattern).__getitem__
    for p in range(len(prompts)):
        page.section(f"Prompt {p + 1}: {_asked(prompts, p, names)}")
        verdict = "right" if bool(right[p]) else "wrong"
        weights = {name: of[p].tolist() for name, of in rows.items()}
        page.drawing(
            _drawing(prompts[p], weights, f"Attention of prompt {p + 1}", names),
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


def _drawing(prompt: Prompts, rows: Mapping[str, list[float]], label: str, names: Namer) -> str:
    """One prompt: pattern and label of each context, and a bar for each weight."""
    cell = min(_CELL, (_WIDTH - _LEFT) / prompt.length)
    places = [_LEFT + i * cell for i in range(prompt.length + 1)]
    labels = prompt.y[0, :-1].tolist()
    own = [False] * prompt.length if prompt.pattern is None else prompt.same_pattern()[0].tolist()
    parts = [_text(_LEFT - 8, 16, "context", "end"), _text(_LEFT - 8, 38, "label", "end")]
    for i, y in enumerate(labels if cell >= 14 else []):  # else there is no room for letters
        middle = places[i] + cell / 2
        if prompt.pattern is not None:
            name, ink = names(int(prompt.pattern[0, i])), _INK if own[i] else _QUIET
            parts.append(_text(middle, 16, name, "middle", ink, bold=own[i]))
        shown = {1.0: "+", -1.0: "\u2212"}.get(y, f"{y:.1f}")
        parts.append(_text(middle, 38, shown, "middle", _color(y)))
    for nth, (name, weights) in enumerate(rows.items(), 1):
        base, top = _TOP + nth * (2 * _LINE + 12) - 6, max(weights)
        parts.append(_text(_LEFT - 8, base - 1.4 * _LINE, name, "end"))
        parts.append(_text(_LEFT - 8, base - 0.7 * _LINE, f"highest {top:.2f}", "end", _QUIET))
        parts.append(_element("line", x1=_LEFT, x2=places[-1], y1=base, y2=base, stroke="#9aa0a6"))
        for i, weight in enumerate(weights):
            high = max(2 * _LINE * weight / max(top, 1e-9), 0.75)
            frame = {"stroke": _INK, "stroke_width": 1.4} if own[i] else {}
            about = escape(f"context {i + 1}, label {labels[i]:+.3g}: {weight:.4f}")
            parts.append(_element(
                "rect", f"<title>{about}</title>", x=round(places[i] + 0.12 * cell, 1),
                y=round(base - high, 1), width=round(0.76 * cell, 1), height=round(high, 1),
                fill=_color(labels[i]), **frame,
            ))  # fmt: skip
    height, width = _TOP + len(rows) * (2 * _LINE + 12), max(places[-1] + 8, 320)
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" '
        f'aria-label="{escape(label, quote=True)}" style="max-width:100%;height:auto" '
        f'font-family="system-ui,sans-serif" font-size="11">{"".join(parts)}</svg>'
    )


def _color(y: float) -> str:
    return {1.0: _PLUS, -1.0: _MINUS}.get(y, _NUMBER)


def _text(
    x: float, y: float, text: str, anchor: str, ink: str = _INK, *, bold: bool = False
) -> str:
    weight = {"font_weight": "700"} if bold else {}
    return _element(
        "text", escape(text), x=round(x, 1), y=round(y, 1), fill=ink, text_anchor=anchor, **weight
    )


def _element(tag: str, inner: str = "", **attributes: Any) -> str:
    told = " ".join(f'{key.replace("_", "-")}="{value}"' for key, value in attributes.items())
    return f"<{tag} {told}>{inner}</{tag}>"
