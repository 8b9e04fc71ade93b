"""Errors of in-context learners on test prompts, beside textbook methods: figures 6.3 and 6.4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from graphtheory.papers.icl import training as icl
from graphtheory.papers.icl.baselines import context_predictions
from graphtheory.papers.icl.training import INSIDE, OUTSIDE, Learner
from graphtheory.papers.power_law import Exponent, regression_of
from graphtheory.papers.study import Row, Step, Study
from graphtheory.patterns.draw import derive


@dataclass(frozen=True)
class Exam:
    """Prompts that are asked.

    Attributes:
        alpha: alpha'.
        length: l_ts.
        s_1: Sum of the coefficients of mu'_1; None for unseen tasks in the domain.
    """

    alpha: float
    length: int
    s_1: float | None = None

    @property
    def domain(self) -> str:
        """In tables and pictures."""
        return INSIDE if self.s_1 is None else OUTSIDE

    def seed(self, first: int) -> int:
        """Of its prompts; the same for every method."""
        s_1 = -1 if self.s_1 is None else round(1000 * (self.s_1 + 10))
        return derive(first, round(1000 * self.alpha), self.length, s_1 + 1)


@dataclass(frozen=True)
class ErrorStudy(Study):
    """Learners and methods on the same test prompts.

    Attributes:
        learners: Every one has networks of its own.
        tests: All of them of each learner and method.
        methods: Of `context_baselines.BASELINES`; they see the prompts alone.
        prompts: Exam prompts of each network and test.
        seeds: Networks of a learner.
        first: The first seed; it decides patterns, starts, training and test prompts.
    """

    learners: tuple[Learner, ...]
    tests: tuple[Exam, ...]
    methods: tuple[str, ...] = ()
    prompts: int = 2000
    seeds: int = 10
    first: int = 0

    def steps(self) -> list[Step]:
        """Rows: method, domain, s_1, alpha, length, seed, error, and of a learner hinge."""
        return [self._learner(learner) for learner in self.learners] + [
            self._method(name, test) for test in self.tests for name in self.methods
        ]

    def _learner(self, learner: Learner) -> Step:
        settings = {
            "learner": asdict(learner), "tests": [asdict(test) for test in self.tests],
            "prompts": self.prompts, "seeds": [self.first, self.seeds],
        }  # fmt: skip
        return Step(f"ICL, {learner.name}", settings, lambda: self._trained(learner))

    def _trained(self, learner: Learner) -> list[Row]:
        given = icl.world(learner, self.first)
        model = icl.train(learner, given, self.seeds, self.first)
        rows = []
        for test in self.tests:
            source = given.source(test.alpha, test.length, test.s_1)
            found = icl.outcomes(model, source, self.prompts, test.seed(self.first))
            rows += [
                self._row(learner.name, test, nth, outcome.error) | {"hinge": outcome.hinge}
                for nth, outcome in enumerate(found)
            ]
        return rows

    def _method(self, name: str, test: Exam) -> Step:
        settings = {
            "method": name, "test": asdict(test), "prompts": self.prompts,
            "seeds": [self.first, self.seeds],
        }  # fmt: skip
        about = f"{name}, alpha' = {test.alpha:g}, {test.length} contexts, {test.domain}"
        return Step(about, settings, lambda: self._fitted(name, test))

    def _fitted(self, name: str, test: Exam) -> list[Row]:
        given = icl.world(self.learners[0], self.first)
        source = given.source(test.alpha, test.length, test.s_1)
        wrong = torch.zeros(self.seeds)
        asked = icl.prompts_of(source, self.seeds, self.prompts, test.seed(self.first))
        for prompts, _ in asked:
            answers = context_predictions(name, prompts.x, prompts.y[:, :-1])
            wrong += (~(answers * prompts.answer > 0)).view(self.seeds, -1).sum(1)
        return [
            self._row(name, test, nth, float(count) / self.prompts)
            for nth, count in enumerate(wrong)
        ]

    def _row(self, method: str, test: Exam, nth: int, error: float) -> Row:
        return {
            "method": method, "domain": test.domain, "s_1": test.s_1, "alpha": test.alpha,
            "length": test.length, "seed": self.first + nth, "error": error,
        }  # fmt: skip


def mean_error(rows: Sequence[Row], **where: Any) -> float:
    """Over the rows with these entries."""
    return float(np.mean([r["error"] for r in matching(rows, **where)]))


def matching(rows: Sequence[Row], **where: Any) -> list[Row]:
    """The rows with these entries.

    Raises:
        ValueError: There are none.
    """
    found = [r for r in rows if all(r[key] == value for key, value in where.items())]
    if not found:
        raise ValueError(f"rows: none with {where}, expected at least one")
    return found


def needed_lengths(
    rows: Sequence[Row], threshold: float, axis: str = "length"
) -> dict[float, list[float]]:
    """Alpha -> of each seed, at which length the error falls below, infinite where never.

    It is the first length from which no longer one has an error above; before it, the logarithm of
    the error is a straight line of the logarithm of the length.
    """
    needed: dict[float, list[float]] = {}
    for alpha in sorted({r["alpha"] for r in rows}):
        needed[alpha] = []
        for seed in sorted({r["seed"] for r in rows}):
            own = sorted((r[axis], r["error"]) for r in matching(rows, alpha=alpha, seed=seed))
            needed[alpha].append(_first_below(own, threshold))
    return needed


def _first_below(curve: list[tuple[float, float]], threshold: float) -> float:
    at = len(curve)
    while at and curve[at - 1][1] < threshold:
        at -= 1
    if at == len(curve):
        return float("inf")
    (low, above), (high, below) = curve[max(at - 1, 0)], curve[at]
    if not at:
        return float(high)
    fall = np.log(above / threshold) / np.log(above / max(below, threshold / 100))
    return float(low * (high / low) ** fall)


def length_law(needed: dict[float, list[float]]) -> Exponent | None:
    """The power of alpha in the length needed; None where fewer than two alphas have one.

    Alphas where a seed never gets there are left out.
    """
    return regression_of({alpha: n for alpha, n in needed.items() if np.isfinite(n).all()})
