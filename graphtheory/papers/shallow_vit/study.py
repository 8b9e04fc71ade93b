"""The synthetic study of chapter 2: figures 2.1 to 2.5."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import nan
from typing import ClassVar, Literal

from graphtheory.papers.core_neighborhood.study import SUCCESS
from graphtheory.papers.core_neighborhood.training import LINEAR
from graphtheory.papers.shallow import ShallowAttention
from graphtheory.papers.shallow_vit import training as tokens
from graphtheory.papers.shallow_vit.data import TokenPatterns
from graphtheory.papers.shallow_vit.training import CNN, Learner
from graphtheory.papers.study import Row, Step, Study
from graphtheory.patterns.draw import derive

TOGETHER = 20  # trials that train at once
Axis = Literal["alpha_star", "sigma"]
_DATA = TokenPatterns()


@dataclass(frozen=True)
class Case:
    """A learner on one reading of the data.

    Attributes:
        learner: The network and its training.
        data: The sets, but for what varies.
        others: The share of non-discriminative tokens that stays while alpha_star varies, the
            confusion share being the rest; None keeps the confusion share.
    """

    learner: Learner
    data: TokenPatterns = _DATA
    others: float | None = None

    @property
    def name(self) -> str:
        """In tables and pictures."""
        if self.others is None:
            return f"{self.learner.name}, alpha_# = {self.data.alpha_confusion:g}"
        return f"{self.learner.name}, others = {self.others:g}"

    def at(self, axis: Axis, value: float) -> tuple[Learner, TokenPatterns]:
        """Learner and data of one value of the axis."""
        if axis == "sigma":
            return replace(self.learner, sigma=value), self.data
        confusion = self.data.alpha_confusion if self.others is None else 1 - self.others - value
        return self.learner, replace(self.data, alpha_star=value, alpha_confusion=confusion)


@dataclass(frozen=True)
class TokenPhases(Study):
    """Which trials succeed, over one letter and the number of training sets: figures 2.1, 2.3.

    Attributes:
        axis: "alpha_star" or "sigma".
        values: Of the axis.
        labels: N.
        cases: What learns.
        claims: The claimed exponent of each case.
        seeds: Trials in each cell (thesis: 20).
        first: The first seed.
    """

    axis: Axis
    values: tuple[float, ...]
    labels: tuple[int, ...]
    cases: tuple[Case, ...]
    claims: tuple[float, ...]
    seeds: int = 20
    first: int = 0
    side_by_side: ClassVar[bool] = True

    def steps(self) -> list[Step]:
        """Rows: case, the axis, labels, seed, hinge, error, steps."""
        return [
            self._step(case, value, labels)
            for case in self.cases
            for value in self.values
            for labels in self.labels
        ]

    def _step(self, case: Case, value: float, labels: int) -> Step:
        settings = {
            "case": asdict(case), self.axis: value, "labels": labels,
            "seeds": [self.first, self.seeds],
        }  # fmt: skip
        name = f"{case.name}, {self.axis} = {value:g}, {labels} sets"
        return Step(name, settings, lambda: self._rows(case, value, labels))

    def _rows(self, case: Case, value: float, labels: int) -> list[Row]:
        learner, data = case.at(self.axis, value)
        rows = []
        for start in range(self.first, self.first + self.seeds, TOGETHER):
            seeds = range(start, min(start + TOGETHER, self.first + self.seeds))
            trials = [tokens.draw(data, labels, _seed(s, labels, value)) for s in seeds]
            model, steps = tokens.run(learner, trials, data.tokens, _seed(start, labels, value))
            for seed, found in zip(seeds, tokens.evaluate(model, trials), strict=True):
                rows.append(
                    {"case": case.name, self.axis: value, "labels": labels, "seed": seed,
                     "hinge": found.hinge, "error": found.error, "steps": steps}
                )  # fmt: skip
        return rows


@dataclass(frozen=True)
class TokenCurves(Study):
    """Test loss and attention in the course of training: figures 2.2 and 2.4.

    Attributes:
        values: Of alpha_star.
        cases: What learns.
        labels: N.
        every: Steps between two looks.
        claims: The claimed exponent of alpha_star in the number of steps, of each case; or ().
        seeds: Trials.
        first: The first seed.
    """

    values: tuple[float, ...]
    cases: tuple[Case, ...]
    labels: int = 200
    every: int = 10
    claims: tuple[float, ...] = ()
    seeds: int = 10
    first: int = 0
    side_by_side: ClassVar[bool] = True

    @property
    def axis(self) -> Axis:
        """alpha_star."""
        return "alpha_star"

    def steps(self) -> list[Step]:
        """Rows: case, alpha_star, seed, step, hinge, error, mass."""
        return [self._step(case, value) for case in self.cases for value in self.values]

    def _step(self, case: Case, value: float) -> Step:
        settings = {
            "case": asdict(case), self.axis: value, "labels": self.labels, "every": self.every,
            "seeds": [self.first, self.seeds], "claims": bool(self.claims),
        }  # fmt: skip
        name = f"{case.name}, {self.axis} = {value:g}"
        return Step(name, settings, lambda: self._rows(case, value))

    def _rows(self, case: Case, value: float) -> list[Row]:
        learner, data = case.at(self.axis, value)
        seeds = range(self.first, self.first + self.seeds)
        trials = [tokens.draw(data, self.labels, _seed(s, self.labels, value)) for s in seeds]
        rows: list[Row] = []

        def watch(step: int, model: ShallowAttention) -> bool:
            if step % self.every:
                return False
            tests, masses = tokens.evaluate(model, trials), tokens.relevant_mass(model, trials)
            for seed, found, mass in zip(seeds, tests, masses, strict=True):
                rows.append(
                    {"case": case.name, self.axis: value, "seed": seed, "step": step,
                     "hinge": found.hinge, "error": found.error, "mass": mass}
                )  # fmt: skip
            return bool(self.claims) and all(t.hinge < SUCCESS for t in tests)

        tokens.run(learner, trials, data.tokens, _seed(self.first, self.labels, value), watch)
        return rows


@dataclass(frozen=True)
class SparseStudy(Study):
    """Test loss after tokens were removed from training and test sets: figure 2.5.

    Attributes:
        kept: Tokens that stay, S.
        case: What learns.
        rules: Sparsifiers.
        labels: N.
        seeds: Trials, the same for every rule.
        first: The first seed.
    """

    kept: tuple[int, ...]
    case: Case
    rules: tuple[str, ...] = (tokens.RANDOM, tokens.RELEVANT, tokens.NOISE, tokens.ATTENTION)
    labels: int = 80
    seeds: int = 20
    first: int = 0
    side_by_side: ClassVar[bool] = True

    def steps(self) -> list[Step]:
        """Rows: rule, kept, seed, hinge, error, alpha_star (after sparsification)."""
        return [self._step(rule, kept) for rule in self.rules for kept in self.kept]

    def _step(self, rule: str, kept: int) -> Step:
        settings = {
            "case": asdict(self.case), "rule": rule, "kept": kept, "labels": self.labels,
            "seeds": [self.first, self.seeds],
        }  # fmt: skip
        return Step(f"{rule}, {kept} tokens stay", settings, lambda: self._rows(rule, kept))

    def _rows(self, rule: str, kept: int) -> list[Row]:
        data, learner = self.case.data, self.case.learner
        rows = []
        for start in range(self.first, self.first + self.seeds, TOGETHER):
            seeds = range(start, min(start + TOGETHER, self.first + self.seeds))
            trials = [
                tokens.draw(data, self.labels, _seed(s, self.labels, 0), kept, rule) for s in seeds
            ]
            model, _ = tokens.run(learner, trials, data.tokens, _seed(start, self.labels, 0))
            for seed, trial, found in zip(
                seeds, trials, tokens.evaluate(model, trials), strict=True
            ):
                rows.append(
                    {"rule": rule, "kept": kept, "seed": seed, "hinge": found.hinge,
                     "error": found.error,
                     "alpha_star": float(trial.train.relevant.float().mean())}
                )  # fmt: skip
        return rows


def _seed(seed: int, labels: int, value: float) -> int:
    return derive(seed, labels, round(1e6 * value))


_LEARNT = Learner(width=200)
_LONG = replace(_LEARNT, steps=700)
_HALF = TokenPatterns(100)
_ALPHAS = (0.31, 0.36, 0.42, 0.49)
_LABELS = (4, 8, 16, 32, 64)
_NOISY = TokenPatterns(50, 0.6, 0.05, noisy=0.2, c_noisy=1.0)

STUDIES: dict[str, TokenPhases | TokenCurves | SparseStudy] = {
    "fig-2-1a": TokenPhases(
        "alpha_star", _ALPHAS, _LABELS, (Case(_LONG, _HALF, 0.5), Case(_LONG, _HALF)), (-2, -2),
        seeds=10,
    ),
    "fig-2-1b": TokenPhases(
        "sigma", (0.05, 0.1, 0.2, 0.4, 0.8), _LABELS,
        (Case(_LONG, TokenPatterns(50, 0.3, 0.2)),), (nan,),
    ),
    "fig-2-2": TokenCurves(
        _ALPHAS,
        (Case(replace(_LONG, delta=0.4)), Case(replace(_LONG, delta=0.4), others=0.5)),
        claims=(-1, -1),
    ),
    "fig-2-3": TokenPhases(
        "alpha_star", _ALPHAS, _LABELS,
        (Case(_LONG, _HALF, 0.5), Case(replace(_LONG, network=CNN), _HALF, 0.5)), (-2, -4),
        seeds=8,
    ),
    "fig-2-4": TokenCurves(
        (0.5,),
        (
            Case(_LEARNT),
            Case(replace(_LEARNT, places=False)),
            Case(replace(_LEARNT, scale=LINEAR, places=False, step_size=2.0)),
        ),
    ),
    "fig-2-5": SparseStudy((50, 45, 40, 35, 30), Case(replace(_LEARNT, delta=0.5), _NOISY)),
}  # fmt: skip
"""Figures by name. Chosen here, because the source does not say: step size, T, B, the confusion
share of figure 2.2, and in figure 2.5 which tokens are noisy and how much. Below alpha_* = 0.31
the majority of figure 2.1a, with a share of 0.5 for others, is too small to be learned in T steps.
Differs from the source to save time: 200 neurons in place of 1000, and 10 trials in figure 2.1a and
8 in figure 2.3 in place of 20."""


def quick(
    given: TokenPhases | TokenCurves | SparseStudy,
) -> TokenPhases | TokenCurves | SparseStudy:
    """The same with few cells, trials and neurons, for a first look."""
    if isinstance(given, SparseStudy):
        return replace(given, kept=given.kept[::4], case=_small(given.case), seeds=4)
    cases = tuple(_small(case) for case in given.cases)
    ends = (given.values[0], given.values[-1]) if len(given.values) > 1 else given.values
    if isinstance(given, TokenPhases):
        return replace(given, cases=cases, values=ends, labels=given.labels[::2], seeds=2)
    return replace(given, cases=cases, values=ends, seeds=2, every=2 * given.every)


def _small(case: Case) -> Case:
    return replace(case, learner=replace(case.learner, width=case.learner.width // 4))
