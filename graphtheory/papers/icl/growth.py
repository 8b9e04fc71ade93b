"""What in-context learning costs: prompt length, steps and training tasks, figures E.1 and E.2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from graphtheory.papers.icl import training as icl
from graphtheory.papers.icl.data import PromptSource
from graphtheory.papers.icl.errors import Exam
from graphtheory.papers.icl.model import icl_predict
from graphtheory.papers.icl.tasks import all_tasks, training_tasks, uncovered
from graphtheory.papers.icl.training import Learner, World
from graphtheory.papers.shallow import ShallowAttention
from graphtheory.papers.study import Row, Step, Study
from graphtheory.patterns.draw import derive


@dataclass(frozen=True)
class GrowthStudy(Study):
    """Training prompt length and steps that are needed, over alpha: figure E.1.

    Attributes:
        learner: Its alpha is replaced by each of `alphas`; its length where lengths vary.
        alphas: Of training.
        lengths: l_tr of the first panel.
        test: Prompts that are asked.
        every: Steps between two looks of the second panel.
        threshold: Exam error that is to be passed.
        prompts: Of each network and look.
        seeds: Networks.
        first: The first seed.
    """

    learner: Learner
    alphas: tuple[float, ...]
    lengths: tuple[int, ...]
    test: Exam
    every: int = 5
    threshold: float = 0.01
    prompts: int = 1000
    seeds: int = 5
    first: int = 0

    def steps(self) -> list[Step]:
        """Rows of kind "length" (error after training) and "steps" (error at each look)."""
        short = [self._step(alpha, length) for alpha in self.alphas for length in self.lengths]
        return short + [self._step(alpha, None) for alpha in self.alphas]

    def _step(self, alpha: float, length: int | None) -> Step:
        learner = replace(self.learner, alpha=alpha, length=length or self.learner.length)
        settings: dict[str, Any] = {
            "learner": asdict(learner), "test": asdict(self.test), "prompts": self.prompts,
            "seeds": [self.first, self.seeds],
        }  # fmt: skip
        if length is None:
            settings |= {"every": self.every, "threshold": self.threshold}
            return Step(f"alpha = {alpha:g}, steps", settings, lambda: self._curve(learner))
        about = f"alpha = {alpha:g}, {length} contexts"
        return Step(about, settings, lambda: self._trained(learner))

    def _trained(self, learner: Learner) -> list[Row]:
        given = icl.world(learner, self.first)
        model = icl.train(learner, given, self.seeds, self.first)
        return self._tested(learner, given, model, {"kind": "length", "length": learner.length})

    def _curve(self, learner: Learner) -> list[Row]:
        given = icl.world(learner, self.first)
        rows: list[Row] = []

        def watch(step: int, model: ShallowAttention) -> bool:
            if step % self.every or not step:
                return False
            found = self._tested(learner, given, model, {"kind": "steps", "step": step})
            rows.extend(found)
            return all(row["error"] < self.threshold / 4 for row in found)

        icl.train(learner, given, self.seeds, self.first, watch)
        return rows

    def _tested(
        self, learner: Learner, given: World, model: ShallowAttention, about: dict[str, Any]
    ) -> list[Row]:
        source = given.source(self.test.alpha, self.test.length, self.test.s_1)
        found = icl.outcomes(model, source, self.prompts, self.test.seed(self.first))
        return [
            about
            | {"alpha": learner.alpha, "seed": self.first + t}
            | {"error": outcome.error, "hinge": outcome.hinge}
            for t, outcome in enumerate(found)
        ]


@dataclass(frozen=True)
class CoverStudy(Study):
    """Error on unseen tasks over the number of training tasks: figure E.2.

    Up to M1 tasks are a random part of those of section 6.5 with U = 1; more are these and random
    others. Every network has a draw of its own.

    Attributes:
        learner: Its M1 is replaced by each of `relevant`.
        relevant: M1.
        beyond: Numbers of tasks beside M1, such as -1 and 2.
        test: Prompts that are asked, of tasks that the network has not seen.
        prompts: Of each network.
        seeds: Networks.
        first: The first seed.
    """

    learner: Learner
    relevant: tuple[int, ...]
    beyond: tuple[int, ...]
    test: Exam
    prompts: int = 2000
    seeds: int = 10
    first: int = 0

    def steps(self) -> list[Step]:
        """Rows: relevant, tasks, covered, seed, error, hinge."""
        return [
            self._step(replace(self.learner, relevant=m_1), m_1 + more)
            for m_1 in self.relevant
            for more in self.beyond
            if 1 <= m_1 + more < m_1 * (m_1 - 1)
        ]

    def _step(self, learner: Learner, tasks: int) -> Step:
        settings = {
            "learner": asdict(learner), "tasks": tasks, "test": asdict(self.test),
            "prompts": self.prompts, "seeds": [self.first, self.seeds],
        }  # fmt: skip
        about = f"M1 = {learner.relevant}, {tasks} tasks"
        return Step(about, settings, lambda: self._rows(learner, tasks))

    def _rows(self, learner: Learner, tasks: int) -> list[Row]:
        m_1 = learner.relevant
        every = all_tasks(m_1)
        given = icl.world(learner, self.first)._replace(tasks=every)
        generator = Generator().manual_seed(derive(self.first, m_1, tasks))
        seen = torch.stack([chosen_tasks(m_1, tasks, generator) for _ in range(self.seeds)])
        model = icl.train(learner, given, self.seeds, self.first, choose=_from(seen))
        source = PromptSource(
            given.patterns, every, given.labels, self.test.alpha, self.test.length
        )
        found = self._unseen(model, source, _from(_others(seen, len(every))))
        return [
            {
                "relevant": m_1, "tasks": tasks, "covered": not uncovered(every[own], m_1),
                "seed": self.first + t, "error": error, "hinge": hinge,
            }
            for t, (own, error, hinge) in enumerate(zip(seen, *found, strict=True))
        ]  # fmt: skip

    def _unseen(
        self, model: ShallowAttention, source: PromptSource, choose: icl.Choose
    ) -> tuple[list[float], list[float]]:
        """Error and hinge loss of each network on tasks of its own."""
        generator = Generator().manual_seed(self.test.seed(self.first))
        task = choose(self.prompts, generator)
        prompts = source.sample(self.seeds * self.prompts, generator, task=task)
        columns = prompts.columns()
        own = columns.view(self.seeds, self.prompts, *columns.shape[1:])
        answer = prompts.answer.view(self.seeds, -1)
        found = icl_predict(model, own, attention=False)
        hinge = (1 - answer * found.value).clamp(min=0)
        return found.wrong(answer).float().mean(1).tolist(), hinge.mean(1).tolist()


def chosen_tasks(relevant: int, count: int, generator: Generator) -> Tensor:
    """Ids in `all_tasks` of a training set of that size, int64 [count]; see `CoverStudy`."""
    every, cycle = all_tasks(relevant), training_tasks(relevant)
    code = every[:, 0] * relevant + every[:, 1]
    first = torch.searchsorted(code, cycle[:, 0] * relevant + cycle[:, 1])
    if count <= relevant:
        return first[torch.randperm(relevant, generator=generator)[:count]]
    rest = torch.ones(len(every), dtype=torch.bool).index_fill(0, first, False).nonzero()[:, 0]
    more = rest[torch.randperm(len(rest), generator=generator)[: count - relevant]]
    return torch.cat([first, more])


def _others(seen: Tensor, count: int) -> Tensor:
    """What is in no row of its own, [T, count - U]."""
    left = torch.ones(len(seen), count, dtype=torch.bool).scatter(1, seen, False)
    return left.nonzero()[:, 1].view(len(seen), -1)


def _from(choices: Tensor) -> icl.Choose:
    """Draws evenly from each network's row [T, U]."""

    def choose(each: int, generator: Generator) -> Tensor:
        place = torch.randint(choices.size(1), (len(choices), each), generator=generator)
        return choices.gather(1, place).flatten()

    return choose


def jump(rows: Sequence[Row], relevant: int) -> dict[str, float]:
    """Mean errors just below M1 tasks, at M1, and the largest beyond."""
    mean = {
        tasks: float(np.mean([r["error"] for r in own]))
        for tasks in sorted({r["tasks"] for r in rows if r["relevant"] == relevant})
        if (own := [r for r in rows if (r["relevant"], r["tasks"]) == (relevant, tasks)])
    }
    below = [error for tasks, error in mean.items() if tasks < relevant]
    from_on = [error for tasks, error in mean.items() if tasks >= relevant]
    nan = float("nan")
    return {
        "below": below[-1] if below else nan, "least below": min(below, default=nan),
        "at": mean.get(relevant, nan), "most from on": max(from_on, default=nan),
    }  # fmt: skip
