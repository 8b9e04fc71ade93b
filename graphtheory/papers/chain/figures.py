"""Figures 7.3 to 7.5: the error over the number of examples in the prompt."""

from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch

from graphtheory.papers.chain import steps
from graphtheory.papers.chain.data import ChainData, TrajectoryErrors, shift_tasks
from graphtheory.papers.chain.training import Inference, Learner, Probe, one_layer
from graphtheory.papers.claims import Crossing, exponent_rows, fewer, reached, zeros
from graphtheory.papers.figure import Figure, Verdict, small
from graphtheory.papers.grid import Grid, Measured, axis
from graphtheory.papers.pictures import error_curves, picture_of
from graphtheory.papers.pivot import Measurements, Pivot, groups
from graphtheory.papers.stats import regression_of
from graphtheory.patterns.draw import derive

_DATA, _LEARNER = ChainData(), Learner()
_K, _M = _DATA.steps, _DATA.num_test_patterns
PRINTED = TrajectoryErrors.even(0.5, 0.8, _K, _M)  # tau^f and rho^f of section 7.5
_FACTS = ("tau", "rho", "tau_o", "rho_o", "condition")


@dataclass(frozen=True)
class Case:
    """A line of figures 7.3 to 7.5."""

    panel: str  # where it is drawn
    letter: str  # what the lines of a panel differ in
    value: float  # of the letter
    inference: Inference  # "CoT" or "ICL"
    share: float = 0.8  # alpha'
    errors: TrajectoryErrors = PRINTED  # of the examples

    @property
    def series(self) -> str:
        """The name in tables and pictures."""
        return f"{self.letter} = {self.value:g}"

    @property
    def name(self) -> str:
        """The name in progress messages."""
        return f"{self.panel}, {self.series}"

    def facts(self, data: ChainData) -> dict[str, float | bool]:
        """tau, rho, tau_o, rho_o and whether condition 7.3.2 holds; the same for every task."""
        task = shift_tasks(1, data.num_test_patterns, data.steps, torch.Generator().manual_seed(0))
        transitions = self.errors(task)
        ends = steps.k_step_matrix(transitions)
        return {
            "tau": round(float(steps.trajectory_probability(transitions, task)), 4),
            "rho": round(float(steps.primacy(transitions, task)), 4),
            "tau_o": round(float(steps.output_probability(ends)), 4),
            "rho_o": round(float(steps.output_primacy(ends)), 4),
            "condition": bool(steps.right_end_leads(ends, task).all()),
        }


@dataclass(frozen=True)
class Contexts(Grid):
    """All cases ask the same trained models."""

    cases: tuple[Case, ...] = axis("case")  # what is asked
    lengths: tuple[int, ...] = (5, 10, 20, 40, 80, 160, 320)  # l_ts
    prompts: int = 500  # of each case, length and trial
    learner: Learner = _LEARNER  # what is trained
    data: ChainData = _DATA  # on what
    seeds: int = 10
    first: int = 0


def errors(grid: Contexts, case: Case) -> list[Measured]:
    """The test error of each trial with each number of examples, and the facts of the case."""
    models, mu = one_layer(grid.learner, grid.data, grid.seeds, grid.first)
    about = {
        "panel": case.panel, "series": case.series, "value": case.value,
        "inference": case.inference, "share": case.share,
    } | case.facts(grid.data)  # fmt: skip
    probe = Probe(case.inference, case.share, case.errors, grid.prompts)
    return [
        about | {
            "seed": seed, "contexts": contexts,
            "error": probe.error(model, grid.data, mu, contexts, derive(seed, 1)),
        }
        for seed, model in enumerate(models, grid.first)
        for contexts in grid.lengths
    ]  # fmt: skip


_quick = small(learner={"steps": 400}, lengths=slice(0, 6, 2), prompts=200, seeds=2)


def _begin(row: Measured) -> list[str]:
    shown = [f"{row[name]:.3g}" for name in _FACTS[:4]]
    return [row["panel"], row["series"], *shown, "holds" if row["condition"] else "fails"]


_show = Pivot(
    "test error", {"error": "test error"}, {"panel": "case", "series": "series"}, "contexts",
    heads=("inference", "line", "tau", "rho", "tau_o", "rho_o", "cond. 7.3.2"), begin=_begin,
    facts=_FACTS, column="l = {}", words=2,
)  # fmt: skip


_picture = picture_of(
    error_curves, panel="{panel}: test error", series="{series}", at="{contexts}",
    xlabel="examples in the prompt",
)  # fmt: skip


_NEEDED = Crossing("contexts")


def fewer_examples(grid: Any, measured: Measurements) -> Verdict:
    """Every larger value of a letter needs fewer examples, a power of -2 of them being enough."""
    told, rows = [], []
    inside = _NEEDED.inside(grid, measured)
    for line, needed in _NEEDED(grid, measured).items():
        mine = [one for one in measured if one["panel"] == line]
        letter = mine[0]["series"].partition(" = ")[0]
        for value, sizes in needed.items():
            about = {"case": line, letter: value, "error": _NEEDED.threshold}
            rows += reached(sizes, "share of trials that get there", "examples needed", about)
        found = regression_of(inside[line])
        rows += exponent_rows("exponent", found, case=line)
        power = "too few values for an exponent"
        if found is not None:
            power = f"the number grows as {letter}^{found}, where -2 is claimed to suffice"
        largest = max(one["contexts"] for one in mine)
        last = [one["error"] for one in mine if one["contexts"] == largest]
        told.append(
            f"{line}: an error of {_NEEDED.threshold:g} needs "
            f"{fewer(needed, 'examples', letter)}; {power}. With {largest} examples {zeros(last)}."
        )
    return Verdict(" ".join(told), rows)


def condition_decides(grid: Contexts, measured: Measurements) -> Verdict:
    """Figure 7.5: the error of ICL falls only where condition 7.3.2 holds, that of CoT always."""
    told, holds = [], True
    shortest, longest = grid.lengths[0], grid.lengths[-1]
    for (panel, condition), mine in groups(measured, "panel", "condition").items():
        first, last = (
            [row["error"] for row in mine if row["contexts"] == at] for at in (shortest, longest)
        )
        falls = condition or panel == "CoT"
        holds &= max(last) < min(first) if falls else min(last) >= min(first)
        told.append(
            f"{panel} where condition 7.3.2 {'holds' if condition else 'fails'}: "
            f"{fmean(first):.3f} -> {fmean(last):.3f} ({min(last):.3f} to {max(last):.3f}, "
            f"{zeros(last).removeprefix('the error is ')})"
        )
    return Verdict(
        f"Error from {shortest} to {longest} examples. {'; '.join(told)}. The claim is that the "
        "error of ICL falls only where the condition holds, and that of CoT everywhere: "
        f"{'holds' if holds else 'not found'}."
    )


_EVEN, _FIRST = "errors in all steps", "errors in the first step"
_CONDITION = "condition"
_WITH = TrajectoryErrors.of_output(0.4, 0.1, _K, _M, wrong=2)
_WITHOUT = TrajectoryErrors.of_output(0.4, 0.1, _K, _M, holds=False)


def _shares(inference: Inference) -> tuple[Case, ...]:
    return tuple(Case(inference, "alpha'", a, inference, a) for a in (0.2, 0.4, 0.8))


def _even(letter: str, tau: float, rho: float, panel: str = "CoT") -> Case:
    given = TrajectoryErrors.even(tau, rho, _K, _M)
    return Case(panel, letter, {"tau": tau, "rho": rho}[letter], "CoT", errors=given)


def _output(letter: str, tau_o: float, rho_o: float) -> Case:
    given = TrajectoryErrors.of_output(tau_o, rho_o, _K, _M)
    return Case("ICL", letter, {"tau_o": tau_o, "rho_o": rho_o}[letter], "ICL", errors=given)


def _figure(figure: str, letter: str, inference: str, *cases: Case) -> Figure:
    summary = f"error of {inference} over the examples, for several {letter}"
    return Figure(
        figure, summary, Contexts(cases), errors, _show, (fewer_examples,), _picture, _quick
    )  # fmt: skip


_COT, _ICL = "chain of thought", "in-context learning"
# The source gives tau^f = 0.5, rho^f = 0.8 and alpha' = 0.8 where they are not varied, and
# tau_o^f = 0.4, rho_o^f = 0.1 in figure 7.5; it gives no matrices, no values of the lines and no
# lengths. With errors spread evenly, tau^f = 0.5 leaves rho^f 0.74 to 0.97: figure 7.3c has a
# second panel with all errors in the first step.
FIGURES = (
    _figure("fig-7-3a", "alpha'", _COT, *_shares("CoT")),
    _figure("fig-7-3b", "tau", _COT, *(_even("tau", tau, 0.8) for tau in (0.1, 0.25, 0.5))),
    _figure(
        "fig-7-3c", "rho", _COT,
        *(_even("rho", 0.5, rho, f"CoT, {_EVEN}") for rho in (0.75, 0.85, 0.95)),
        *(Case(f"CoT, {_FIRST}", "rho", rho, "CoT",
               errors=TrajectoryErrors.first(0.5, rho, _K, _M)) for rho in (0.2, 0.4, 0.8)),
    ),
    _figure("fig-7-4a", "alpha'", _ICL, *_shares("ICL")),
    _figure("fig-7-4b", "tau_o", _ICL, *(_output("tau_o", t, 0.8) for t in (0.4, 0.55, 0.75))),
    _figure("fig-7-4c", "rho_o", _ICL, *(_output("rho_o", 0.5, r) for r in (0.2, 0.4, 0.8))),
    Figure(
        "fig-7-5", "both where condition 7.3.2 holds and where it fails",
        Contexts(
            tuple(
                Case(inference, _CONDITION, float(given is _WITH), inference, errors=given)
                for inference in ("ICL", "CoT")
                for given in (_WITH, _WITHOUT)
            ),
            lengths=(10, 20, 40, 80, 160, 320, 640),
        ),
        errors, _show, (condition_decides,),
        picture_of(
            error_curves,
            lambda measured: [
                one | {"condition": "holds" if one["condition"] else "fails"} for one in measured
            ],
            panel="{panel}: test error", series="condition 7.3.2 {condition}", at="{contexts}",
            xlabel="examples in the prompt",
        ),
        _quick,
    ),
)  # fmt: skip
