"""Figures 7.3 to 7.7 and F.1: errors over the length of the prompt, attention over the steps."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from graphtheory.papers.chain import training as chain
from graphtheory.papers.chain.data import ChainData, shift_tasks
from graphtheory.papers.chain.errors import TrajectoryErrors
from graphtheory.papers.chain.inference import ChainModel
from graphtheory.papers.chain.model import ChainAttention
from graphtheory.papers.chain.training import Inference, Learner, Probe
from graphtheory.papers.chain.transitions import (
    k_step_matrix,
    output_primacy,
    output_probability,
    primacy,
    right_end_leads,
    trajectory_probability,
)
from graphtheory.papers.study import Row, Step, Study
from graphtheory.patterns.draw import derive

_DATA = ChainData()
_K, _M = _DATA.steps, _DATA.num_test_patterns
PRINTED = TrajectoryErrors.even(0.5, 0.8, _K, _M)  # tau^f and rho^f of section 7.5
_LEARNER, _PROBE = Learner(), Probe("CoT", 0.8, PRINTED, 300)


@dataclass(frozen=True)
class Case:
    """A line of figures 7.3 to 7.5.

    Attributes:
        panel: Where it is drawn.
        letter: What the lines of a panel differ in.
        value: Of the letter.
        inference: "CoT" or "ICL".
        share: alpha'.
        errors: Of the examples.
    """

    panel: str
    letter: str
    value: float
    inference: Inference
    share: float = 0.8
    errors: TrajectoryErrors = PRINTED

    @property
    def series(self) -> str:
        """In tables and pictures."""
        return f"{self.letter} = {self.value:g}"

    def letters(self, data: ChainData) -> dict[str, float | bool]:
        """tau, rho, tau_o, rho_o and whether condition 7.3.2 holds."""
        generator = torch.Generator().manual_seed(0)  # they are the same of every task
        task = shift_tasks(1, data.num_test_patterns, data.steps, generator)
        transitions = self.errors(task)
        ends = k_step_matrix(transitions)
        return {
            "tau": round(float(trajectory_probability(transitions, task)), 4),
            "rho": round(float(primacy(transitions, task)), 4),
            "tau_o": round(float(output_probability(ends)), 4),
            "rho_o": round(float(output_primacy(ends)), 4),
            "condition": bool(right_end_leads(ends, task).all()),
        }


@dataclass(frozen=True)
class ContextStudy(Study):
    """Error over the number of examples: figures 7.3, 7.4 and 7.5.

    All cases ask the same trained models.

    Attributes:
        cases: What is asked.
        lengths: l_ts.
        prompts: Of each case, length and trial.
        learner: What is trained.
        data: On what.
        seeds: Trials.
        first: The first seed.
    """

    cases: tuple[Case, ...]
    lengths: tuple[int, ...] = (5, 10, 20, 40, 80, 160, 320)
    prompts: int = 500
    learner: Learner = _LEARNER
    data: ChainData = _DATA
    seeds: int = 10
    first: int = 0

    def steps(self) -> list[Step]:
        """Rows: panel, series, value, inference, contexts, seed, error, and the letters."""
        return [self._step(case) for case in self.cases]

    def _step(self, case: Case) -> Step:
        settings = {
            "case": asdict(case), "lengths": list(self.lengths), "prompts": self.prompts,
            "learner": asdict(self.learner), "data": asdict(self.data),
            "seeds": [self.first, self.seeds],
        }  # fmt: skip
        return Step(f"{case.panel}, {case.series}", settings, lambda: self._rows(case))

    def _rows(self, case: Case) -> list[Row]:
        models, mu = chain.one_layer(self.learner, self.data, self.seeds, self.first)
        about = {
            "panel": case.panel, "series": case.series, "value": case.value,
            "inference": case.inference, "share": case.share,
        } | case.letters(self.data)  # fmt: skip
        probe = Probe(case.inference, case.share, case.errors, self.prompts)
        return [
            about | {
                "seed": self.first + i, "contexts": contexts,
                "error": probe.error(model, self.data, mu, contexts, derive(self.first + i, 1)),
            }
            for i, model in enumerate(models)
            for contexts in self.lengths
        ]  # fmt: skip


@dataclass(frozen=True)
class DynamicsStudy(Study):
    """Where the query attends in the course of training: figures 7.6, 7.7 and F.1.

    Attributes:
        learner: What is trained.
        data: On what.
        probe: What attention is looked at, with as many examples as in training.
        every: Steps between two looks.
        seeds: Trials.
        first: The first seed.
    """

    learner: Learner = _LEARNER
    data: ChainData = _DATA
    probe: Probe = _PROBE
    every: int = 20
    seeds: int = 5
    first: int = 0

    def steps(self) -> list[Step]:
        """Rows: seed, step, layer, head, the attention on each kind, and at the end the error."""
        return [self._step(self.first + i) for i in range(self.seeds)]

    def _step(self, seed: int) -> Step:
        settings = {
            "learner": asdict(self.learner), "data": asdict(self.data), "every": self.every,
            "probe": asdict(self.probe), "seed": seed,
        }  # fmt: skip
        return Step(f"seed {seed}", settings, lambda: self._rows(seed))

    def _rows(self, seed: int) -> list[Row]:
        rows: list[Row] = []

        def look(step: int, model: ChainModel, mu: Tensor) -> None:
            if step % self.every and step != self.learner.steps:
                return
            found = chain.masses(model, self.data, mu, self.probe, derive(seed, 2))
            for layer, heads in enumerate(found, 1):
                for head, mass in enumerate(heads, 1):
                    rows.append({"seed": seed, "step": step, "layer": layer, "head": head} | mass)

        model, mu = chain.train(self.learner, self.data, 1, seed, look)
        kept = model.trial(0) if isinstance(model, ChainAttention) else model
        error = self.probe.error(kept, self.data, mu, self.data.contexts, derive(seed, 3))
        last = max(row["step"] for row in rows)
        return [row | ({"error": error} if row["step"] == last else {}) for row in rows]


_SHARES = (0.2, 0.4, 0.8)
_ALPHA, _TAU, _RHO = "alpha'", "tau", "rho"
_EVEN, _FIRST = "errors in all steps", "errors in the first step"


def _output(tau_o: float, rho_o: float, holds: bool = True) -> TrajectoryErrors:
    return TrajectoryErrors.of_output(tau_o, rho_o, _K, _M, holds=holds)


def _over_context(inference: Inference) -> tuple[Case, ...]:
    return tuple(Case(inference, _ALPHA, a, inference, a) for a in _SHARES)


_WITH = TrajectoryErrors.of_output(0.4, 0.1, _K, _M, wrong=2)
_WITHOUT = TrajectoryErrors.of_output(0.4, 0.1, _K, _M, holds=False)

CONTEXTS: dict[str, ContextStudy] = {
    "fig-7-3a": ContextStudy(_over_context("CoT")),
    "fig-7-3b": ContextStudy(
        tuple(
            Case("CoT", _TAU, t, "CoT", errors=TrajectoryErrors.even(t, 0.8, _K, _M))
            for t in (0.1, 0.25, 0.5)
        )
    ),
    "fig-7-3c": ContextStudy(
        tuple(
            Case(f"CoT, {_EVEN}", _RHO, r, "CoT", errors=TrajectoryErrors.even(0.5, r, _K, _M))
            for r in (0.75, 0.85, 0.95)
        )
        + tuple(
            Case(f"CoT, {_FIRST}", _RHO, r, "CoT", errors=TrajectoryErrors.first(0.5, r, _K, _M))
            for r in (0.2, 0.4, 0.8)
        )
    ),
    "fig-7-4a": ContextStudy(_over_context("ICL")),
    "fig-7-4b": ContextStudy(
        tuple(Case("ICL", "tau_o", t, "ICL", errors=_output(t, 0.8)) for t in (0.4, 0.55, 0.75))
    ),
    "fig-7-4c": ContextStudy(
        tuple(Case("ICL", "rho_o", r, "ICL", errors=_output(0.5, r)) for r in (0.2, 0.4, 0.8))
    ),
    "fig-7-5": ContextStudy(
        tuple(
            Case(inference, "condition", float(errors is _WITH), inference, errors=errors)
            for inference in ("ICL", "CoT")
            for errors in (_WITH, _WITHOUT)
        ),
        lengths=(10, 20, 40, 80, 160, 320, 640),
    ),
}  # fmt: skip
"""Figures by name. The source gives tau^f = 0.5, rho^f = 0.8 and alpha' = 0.8 where they are not
varied, and tau_o^f = 0.4, rho_o^f = 0.1 in figure 7.5; it gives no matrices, no values of the
lines, no lengths, and of the transformers layers, heads and steps alone. With errors spread evenly,
tau^f = 0.5 leaves rho^f 0.74 to 0.97: figure 7.3c has a second panel with all errors in the first
step."""

DYNAMICS: dict[str, DynamicsStudy] = {
    "fig-7-6": DynamicsStudy(replace(_LEARNER, step_size=2.0), every=5),
    "fig-7-7": DynamicsStudy(
        Learner(depth=3, heads=2, step_size=1e-3, steps=1000, batch_size=32),
        replace(_DATA, steps=2),
        Probe("CoT", 0.8, TrajectoryErrors.even(0.5, 0.8, 2, _M), 200),
        every=25, seeds=3,
    ),
    "fig-f-1": DynamicsStudy(
        Learner(depth=3, position="sinusoidal", step_size=1e-3, steps=1000, batch_size=32),
        every=25, seeds=3,
    ),
}  # fmt: skip


def study(figure: str) -> ContextStudy | DynamicsStudy:
    """The study of a figure."""
    return CONTEXTS[figure] if figure in CONTEXTS else DYNAMICS[figure]


def quick(given: ContextStudy | DynamicsStudy) -> ContextStudy | DynamicsStudy:
    """The same with few prompts, trials and steps, for a first look."""
    if isinstance(given, ContextStudy):
        learner = replace(given.learner, steps=400)
        return replace(given, learner=learner, lengths=given.lengths[:6:2], prompts=200, seeds=2)
    deep = bool(given.learner.depth)
    steps = given.learner.steps // (10 if deep else 2)
    learner, probe = replace(given.learner, steps=steps), given.probe
    if deep:
        probe = replace(probe, prompts=60)
    return replace(given, learner=learner, probe=probe, every=max(steps // 10, 1), seeds=1)
