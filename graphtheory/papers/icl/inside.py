"""What training puts into an in-context learner, and what pruning takes out: 6.2 and 6.5."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Generator, Tensor

from graphtheory.papers.icl import training as icl
from graphtheory.papers.icl.errors import Exam
from graphtheory.papers.icl.mechanism import mass_by_kind, neuron_alignment, projection
from graphtheory.papers.icl.model import icl_predict
from graphtheory.papers.icl.pruning import (
    AtRandom,
    ByMagnitude,
    PruningRule,
    kept_mask,
    while_pruned,
)
from graphtheory.papers.icl.training import Learner, World
from graphtheory.papers.shallow import ShallowAttention
from graphtheory.papers.study import Row, Step, Study
from graphtheory.patterns.draw import derive

_SHOWN = 5  # neurons of each sign
LARGE = 0.25  # of the largest row of W_O W_V of a network: what counts as a large neuron
RULES = ("smallest first", "random", "largest first")
BINS = 20  # of neurons in the order of their norms


def neuron_rows(model: ShallowAttention) -> Tensor:
    """W_O W_V, [T, m, d]."""
    return (model.W_O @ model.W_V).detach()


@dataclass(frozen=True)
class MechanismStudy(Study):
    """Keys, queries, attention and neurons in the course of training: figure 6.2.

    Attributes:
        learner: The network and its training.
        tests: Prompts on which attention and projections are taken.
        every: Steps between two looks.
        prompts: Of each network and test.
        seeds: Networks.
        first: The first seed.
    """

    learner: Learner
    tests: tuple[Exam, ...]
    every: int = 25
    prompts: int = 200
    seeds: int = 10
    first: int = 0

    def steps(self) -> list[Step]:
        """Rows of kind "look" (of each test), "neurons" (of each network), "neuron" (of some)."""
        settings = {
            "learner": asdict(self.learner), "tests": [asdict(test) for test in self.tests],
            "every": self.every, "prompts": self.prompts, "seeds": [self.first, self.seeds],
        }  # fmt: skip
        return [Step(f"ICL, {self.learner.name}", settings, self._rows)]

    def _rows(self) -> list[Row]:
        given = icl.world(self.learner, self.first)
        rows: list[Row] = []

        def watch(step: int, model: ShallowAttention) -> bool:
            if step % self.every == 0 or step == self.learner.steps:
                rows.extend({"step": step} | row for row in self._look(model, given))
            return False

        icl.train(self.learner, given, self.seeds, self.first, watch)
        return rows

    def _look(self, model: ShallowAttention, given: World) -> list[Row]:
        rows = self._neurons(model, given)
        for test in self.tests:
            source = given.source(test.alpha, test.length, test.s_1)
            ((prompts, columns),) = icl.prompts_of(
                source, self.seeds, self.prompts, test.seed(self.first)
            )
            found = icl_predict(model, columns)
            assert found.attention is not None and prompts.pattern is not None
            assert prompts.task is not None
            pattern = prompts.pattern.view(self.seeds, self.prompts, -1)
            task = prompts.task.view(self.seeds, self.prompts, 2)
            wrong = found.wrong(prompts.answer.view(self.seeds, -1)).float().mean(1)
            for t in range(self.seeds):
                place = {"query": slice(-1, None), "key": slice(None, -1)}
                row: dict[str, Any] = {"kind": "look", "domain": test.domain}
                row |= {"seed": self.first + t, "error": float(wrong[t])}
                row |= mass_by_kind(found.attention[t], pattern[t], task[t])
                for name, weight in (("query", model.W_Q[t]), ("key", model.W_K[t])):
                    told = projection(
                        weight.detach(), columns[t, :, place[name]].flatten(0, 1),
                        source.patterns.relevant, pattern[t, :, place[name]].flatten(),
                    )  # fmt: skip
                    row |= {f"{name} {part}": value for part, value in told._asdict().items()}
                rows.append(row)
        return rows

    def _neurons(self, model: ShallowAttention, given: World) -> list[Row]:
        weights, sign = neuron_rows(model), model.a[:, 0]
        told = neuron_alignment(weights, sign, given.patterns.relevant.mean(0), given.labels[1])
        norm = weights.norm(dim=2)
        large = norm >= LARGE * norm.amax(1, keepdim=True)
        rows: list[Row] = [
            {
                "kind": "neurons", "seed": self.first + t, "large": float(large[t].float().mean()),
                "input cosine": float(told.input_cosine[t][large[t]].mean()),
                "label cosine": float(told.label_cosine[t][large[t]].mean()),
            }
            for t in range(self.seeds)
        ]  # fmt: skip
        for value in (1, -1):
            for neuron in (sign[0].sign() == value).nonzero()[:_SHOWN, 0].tolist():
                parts = {
                    name.replace("_", " "): float(part[0, neuron])
                    for name, part in told._asdict().items()
                }
                rows.append({"kind": "neuron", "neuron": neuron, "sign": value} | parts)
        return rows


@dataclass(frozen=True)
class PruneStudy(Study):
    """Errors of learners whose neurons are taken away: figure 6.5.

    Attributes:
        learners: Each with networks of its own.
        tests: Prompts that are asked.
        rules: Of `RULES`.
        rates: Shares of neurons that go.
        prompts: Of each network and test.
        seeds: Networks of a learner.
        first: The first seed.
    """

    learners: tuple[Learner, ...]
    tests: tuple[Exam, ...]
    rules: tuple[str, ...]
    rates: tuple[float, ...]
    prompts: int = 2000
    seeds: int = 10
    first: int = 0

    def steps(self) -> list[Step]:
        """Rows of kind "error" (each rule, rate, test, network) and "norm" (by rank)."""
        return [self._step(learner) for learner in self.learners]

    def _step(self, learner: Learner) -> Step:
        settings = {
            "learner": asdict(learner), "tests": [asdict(test) for test in self.tests],
            "rules": list(self.rules), "rates": list(self.rates), "prompts": self.prompts,
            "seeds": [self.first, self.seeds],
        }  # fmt: skip
        return Step(f"m = {learner.width}", settings, lambda: self._rows(learner))

    def _rows(self, learner: Learner) -> list[Row]:
        given = icl.world(learner, self.first)
        model = icl.train(learner, given, self.seeds, self.first)
        norms = neuron_rows(model).norm(dim=2)
        rows = _by_rank(learner.width, norms, self.first)
        for name in self.rules:
            order = self._rule(name).order(norms)
            for rate in self.rates:
                with while_pruned(model, kept_mask(order, rate), ["W_O"]):
                    rows += self._errors(learner, model, given, name, rate)
        return rows

    def _rule(self, name: str) -> PruningRule:
        if name == "random":
            return AtRandom(Generator().manual_seed(derive(self.first, 65)))
        return ByMagnitude(largest=name == "largest first")

    def _errors(
        self, learner: Learner, model: ShallowAttention, given: World, rule: str, rate: float
    ) -> list[Row]:
        rows: list[Row] = []
        for test in self.tests:
            source = given.source(test.alpha, test.length, test.s_1)
            found = icl.outcomes(model, source, self.prompts, test.seed(self.first))
            rows += [
                {
                    "kind": "error", "width": learner.width, "rule": rule, "rate": rate,
                    "alpha": test.alpha, "domain": test.domain, "seed": self.first + t,
                    "error": outcome.error, "hinge": outcome.hinge,
                }
                for t, outcome in enumerate(found)
            ]  # fmt: skip
        return rows


def _by_rank(width: int, norms: Tensor, first: int) -> list[Row]:
    """Mean norms of consecutive shares of the neurons, smallest first, and who is small."""
    ranked = norms.sort(1).values
    small = (norms < LARGE * norms.amax(1, keepdim=True)).float().mean(1)
    edges = torch.linspace(0, width, BINS + 1).round().long().tolist()
    return [
        {
            "kind": "norm", "width": width, "seed": first + t, "rank": (nth + 0.5) / BINS,
            "norm": float(ranked[t, low:high].mean()), "small": float(small[t]),
        }
        for t in range(len(norms))
        for nth, (low, high) in enumerate(pairwise(edges))
    ]  # fmt: skip
