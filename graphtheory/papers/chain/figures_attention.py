"""Figures 7.6, 7.7 and F.1: where the query attends in the course of training."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from torch import Tensor

from graphtheory.lab.bench.rows import Row
from graphtheory.papers.chain import training
from graphtheory.papers.chain.data import ChainData, TrajectoryErrors
from graphtheory.papers.chain.model import ChainAttention, ChainModel
from graphtheory.papers.chain.training import MASSES, Learner, Probe
from graphtheory.papers.claims import reached, size_text
from graphtheory.papers.figure import Figure, Verdict, small
from graphtheory.papers.grid import Grid, Measured, axis
from graphtheory.papers.pictures import step_curves
from graphtheory.papers.pivot import Measurements, Pivot, Shown, at_most, groups
from graphtheory.patterns.draw import derive

KINDS = (*MASSES, "own columns")
ONE = 0.9  # attention that counts as the claimed 1
LEFT = 0.1  # of what was there at the start, at the end of a stage
_DATA = ChainData()
_M = _DATA.num_test_patterns


def _probe(steps: int, prompts: int) -> Probe:
    return Probe("CoT", 0.8, TrajectoryErrors.even(0.5, 0.8, steps, _M), prompts)


_PROBE = _probe(_DATA.steps, 300)


@dataclass(frozen=True)
class Dynamics(Grid):
    """Models trained one by one and looked at on the way."""

    learner: Learner  # what is trained
    data: ChainData = _DATA  # on what
    probe: Probe = _PROBE  # what attention is looked at, with as many examples as in training
    every: int = 20  # steps between two looks
    seeds: int = axis("seed", 5)
    first: int = 0


def looks(grid: Dynamics, seed: int) -> list[Measured]:
    """The attention of each step, layer and head on each kind of column; at the end the error."""
    rows: list[Measured] = []

    def look(step: int, model: ChainModel, mu: Tensor) -> None:
        if step % grid.every and step != grid.learner.steps:
            return
        found = training.masses(model, grid.data, mu, grid.probe, derive(seed, 2))
        for layer, heads in enumerate(found, 1):
            for head, mass in enumerate(heads, 1):
                rows.append({"seed": seed, "step": step, "layer": layer, "head": head} | mass)

    model, mu = training.train(grid.learner, grid.data, 1, seed, look)
    kept = model.trial(0) if isinstance(model, ChainAttention) else model
    error = grid.probe.error(kept, grid.data, mu, grid.data.contexts, derive(seed, 3))
    last = max(row["step"] for row in rows)
    return [row | ({"error": error} if row["step"] == last else {}) for row in rows]


def _show(grid: Dynamics, measured: Measurements) -> Shown:
    last = max(row["step"] for row in measured)
    shown = Pivot(
        f"attention of the query after {last} steps",
        {kind: f"attention, {kind}" for kind in KINDS},
        {"layer": "layer", "head": "head"}, heads=[""], facts=["step"],
        begin=lambda row: [f"layer {row['layer']}, head {row['head']}"],
    )(grid, at_most("step", measured))  # fmt: skip
    errors = _errors(measured)
    return shown._replace(
        rows=[*shown.rows, Row.of("test error", errors, "1", contexts=grid.data.contexts)]
    )


def _errors(measured: Measurements) -> list[float]:
    return list({row["seed"]: row["error"] for row in measured if "error" in row}.values())


def _final_error(grid: Dynamics, measured: Measurements) -> Verdict:
    error = fmean(_errors(measured))
    return Verdict(f"Test error of CoT with {grid.data.contexts} examples: {error:.3f}.")


def _picture(grid: Dynamics, measured: Measurements, title: str) -> Any:
    deep = bool(grid.learner.depth)
    ends = [end for end, _ in stages(measured).values() if end < math.inf]
    return step_curves(
        [
            {"case": f"layer {row['layer']}, head {row['head']}", "series": kind,
             "step": row["step"], "attention": row[kind]}
            for row in measured
            for kind in (KINDS if deep else MASSES)
        ],
        value="attention", ylabel="attention", title=title,
        xlabel="steps of Adam" if deep else "steps of SGD",
        upright=median(ends) if ends and not deep else None,
    )  # fmt: skip


def stages(measured: Measurements) -> dict[int, tuple[float, float]]:
    """Of each seed the steps at which attention leaves other steps, and other patterns.

    The first looks at which a tenth is left of what was there at the start: of the attention on
    other steps, and of the share of other patterns in the attention on the same step. Neither
    implies the other; infinite where there is none.
    """
    right, pattern, *steps = MASSES
    return {
        seed: (
            _left(mine, lambda row: sum(row[kind] for kind in steps)),
            _left(mine, lambda row: row[pattern] / max(row[right] + row[pattern], 1e-12)),
        )
        for (seed,), mine in sorted(groups(measured, "seed").items())
    }


def _left(rows: Measurements, measure: Callable[[Measured], float]) -> float:
    limit = LEFT * measure(rows[0])
    return next((float(row["step"]) for row in rows if measure(row) < limit), math.inf)


def best_heads(measured: Measurements) -> dict[int, dict[str, Any]]:
    """Of each layer, by seed, the head that ends with most on the same step and pattern.

    Returns:
        layer -> `start` and `end`, the mean of that attention before and after training, and
        `leads`, in how many of the `seeds` it is more than that on any other kind of column.
    """
    first = min(row["step"] for row in measured)
    out = {}
    for (layer,), mine in sorted(groups(measured, "layer").items()):
        start, end, leads = [], [], 0
        for _, own in sorted(groups(mine, "seed").items()):
            best = max(at_most("step", own), key=lambda row: row[MASSES[0]])
            before = next(r for r in own if (r["step"], r["head"]) == (first, best["head"]))
            start.append(before[MASSES[0]])
            end.append(best[MASSES[0]])
            leads += best[MASSES[0]] > max(best[kind] for kind in KINDS[1:])
        out[layer] = {"start": fmean(start), "end": fmean(end), "leads": leads, "seeds": len(end)}
    return out


def two_stages(grid: Dynamics, measured: Measurements) -> Verdict:
    """Figure 7.6: attention first leaves other steps, then other patterns, and goes to 1."""
    found, rows = stages(measured), []
    names = ("attention on other steps", "share of other patterns within the step")
    for name, steps in zip(names, zip(*found.values(), strict=True), strict=True):
        share = f"share of trials where a tenth is left, {name}"
        rows += reached(steps, share, f"steps until a tenth is left, {name}")
    both = sum(a < b for a, b in found.values())
    told = ", ".join(f"{size_text(a)} and {size_text(b)}" for a, b in found.values())
    end = best_heads(measured)[1]
    return Verdict(
        f"Steps until a tenth is left of the {names[0]}, and of the {names[1]}: {told}. The first "
        f"before the second, as claimed: {both} of {len(found)} trials. Attention on the same step "
        f"and pattern goes from {end['start']:.3f} to {end['end']:.3f}, claimed 1.",
        rows,
    )


def every_layer_selects(grid: Dynamics, measured: Measurements) -> Verdict:
    """Figures 7.7 and F.1: in every layer a head attends to the same step and pattern."""
    found = best_heads(measured)
    rows = [
        Row.of("attention of the best head", of["end"], "1", layer=layer)
        for layer, of in found.items()
    ]
    told = "; ".join(
        f"layer {layer} {of['start']:.2f} -> {of['end']:.2f}, more than on any other kind in "
        f"{of['leads']} of {of['seeds']} trials"
        for layer, of in found.items()
    )
    below = [f"layer {layer} to {of['end']:.3f}" for layer, of in found.items() if of["end"] < ONE]
    verdict = f"it selects, not to 1: {', '.join(below)}" if below else "found"
    lead = [layer for layer, of in found.items() if of["leads"] == of["seeds"]]
    if len(lead) < len(found):
        verdict = f"in part, in layers {', '.join(map(str, lead))}" if lead else "not found"
    return Verdict(
        "Attention of the best head on the same step and pattern: "
        f"{told}. A head of every layer selects: {verdict}.",
        rows,
    )


def _deep(figure: str, summary: str, grid: Dynamics) -> Figure:
    claims = (every_layer_selects, _final_error)
    quick = small(learner={"steps": 100}, probe={"prompts": 60}, every=10, seeds=1)
    return Figure(figure, summary, grid, looks, _show, claims, _picture, quick)


# The source says of the transformers the numbers of layers, heads and steps alone.
FIGURES = (
    Figure(
        "fig-7-6", "attention of the query in the course of training, one layer",
        Dynamics(Learner(step_size=2.0), every=5),
        looks, _show, (two_stages, _final_error), _picture,
        small(learner={"steps": 500}, every=50, seeds=1),
    ),
    _deep(
        "fig-7-7", "the same in three layers of two heads, two reasoning steps",
        Dynamics(
            Learner(depth=3, heads=2, step_size=1e-3, steps=1000, batch_size=32),
            replace(_DATA, steps=2), _probe(2, 200), every=25, seeds=3,
        ),
    ),
    _deep(
        "fig-f-1", "the same in three layers of one head, with sinusoidal positions",
        Dynamics(
            Learner(depth=3, position="sinusoidal", step_size=1e-3, steps=1000, batch_size=32),
            every=25, seeds=3,
        ),
    ),
)  # fmt: skip
