"""GPT-2-style in-context learners of chapter 6: drawn, trained, asked out of their domain."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from graphtheory.data.prompts import Prompts
from graphtheory.models import GPT, gpt
from graphtheory.papers.icl import training as icl
from graphtheory.papers.icl.data import PromptSource
from graphtheory.papers.icl.errors import Exam
from graphtheory.papers.icl.tasks import training_tasks
from graphtheory.papers.icl.training import DIM, Outcome, World
from graphtheory.papers.study import Row, Step, Study
from graphtheory.patterns.draw import derive

Tokens = Literal["columns", "in turn"]


@dataclass(frozen=True)
class GptLearner:
    """A network of blocks as GPT-2 has them and how it is trained, by Adam on the hinge loss.

    Attributes:
        tokens: What a token is: "columns" are p_i of (6.1), "in turn" are x_1, y_1, x_2 and so on.
        depth: Layers.
        heads: Of each layer.
        dim: Features of a token inside.
        norm: Whether the blocks have layer norms.
        step_size: Of Adam; it falls to 0 along a cosine.
        steps: T.
        batch_size: B, fresh prompts in every step.
        alpha: Share of training contexts with a decisive pattern.
        length: l_tr.
        relevant: M1.
        blocks: U, of condition 6.3.2.
    """

    tokens: Tokens = "columns"
    depth: int = 3
    heads: int = 2
    dim: int = 64
    norm: bool = True
    step_size: float = 1e-3
    steps: int = 2000
    batch_size: int = 128
    alpha: float = 0.8
    length: int = 20
    relevant: int = 6
    blocks: int = 4

    @property
    def family(self) -> str:
        """What its step size is chosen within."""
        norm = "" if self.norm else ", no norm"
        return f"tokens {self.tokens}, width {self.dim}{norm}"

    @property
    def name(self) -> str:
        """In tables and pictures."""
        return f"{self.family}, Adam {self.step_size:g}"

    def model(self, generator: Generator) -> GPT:
        """At its start."""
        columns = self.tokens == "columns"
        model = gpt(
            self.dim, self.depth, self.heads, in_channels=2 * DIM if columns else DIM,
            out_channels=1, length=self.length + 1 if columns else 2 * self.length + 1,
            norm=self.norm,
        )  # fmt: skip
        model.reset_parameters(generator)
        return model

    def inputs(self, prompts: Prompts) -> Tensor:
        """Tokens of the prompts, the query in the last place: [P, T, channels]."""
        columns = prompts.columns()
        if self.tokens == "columns":
            return columns
        in_turn = columns.unflatten(2, (2, DIM)).flatten(1, 2)  # x and y of a context, side by side
        return in_turn[:, :-1]  # the query has no y


def world(learner: GptLearner, seed: int) -> World:
    """Patterns and q of a seed, those of the one-layer networks; U M1 training tasks."""
    given = icl.world(icl.Learner(relevant=learner.relevant), seed)
    return given._replace(tasks=training_tasks(learner.relevant, learner.blocks))


def train(learner: GptLearner, given: World, seed: int) -> GPT:
    """Minimise the hinge loss of the query's output over fresh prompts of every step."""
    generator = Generator().manual_seed(derive(seed, 62))
    model = learner.model(generator)
    source = PromptSource(given.patterns, given.tasks, given.labels, learner.alpha, learner.length)
    optimizer = torch.optim.Adam(model.parameters(), lr=learner.step_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, learner.steps)
    for _ in range(learner.steps):
        prompts = source.sample(learner.batch_size, generator)
        loss = _hinge(_value(model, learner, prompts), prompts).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model


@torch.no_grad()
def outcome(
    model: GPT, learner: GptLearner, source: PromptSource, count: int, seed: int
) -> Outcome:
    """Error and hinge loss on that many prompts; an output of 0 or NaN is an error."""
    wrong, hinge = 0.0, 0.0
    for prompts, _ in icl.prompts_of(source, 1, count, seed):
        value = _value(model, learner, prompts)
        wrong += float((~(value * prompts.answer > 0)).sum())
        hinge += float(_hinge(value, prompts).sum())
    return Outcome(wrong / count, hinge / count)


def _value(model: GPT, learner: GptLearner, prompts: Prompts) -> Tensor:
    return model(learner.inputs(prompts))[:, -1, 0]


def _hinge(value: Tensor, prompts: Prompts) -> Tensor:
    return (1 - value * prompts.answer).clamp(min=0)


@dataclass(frozen=True)
class GptStudy(Study):
    """GPT-2-style learners on test prompts; every network has patterns and training of its own.

    Attributes:
        learners: How they learn.
        tests: All of them of each learner; as long as the prompts of training at most.
        prompts: Exam prompts of each network and test.
        seeds: Networks of a learner.
        first: The first seed.
    """

    learners: tuple[GptLearner, ...]
    tests: tuple[Exam, ...]
    prompts: int = 2000
    seeds: int = 3
    first: int = 0

    def steps(self) -> list[Step]:
        """Rows: method, domain, s_1, alpha, length, seed, error, hinge."""
        return [
            self._step(learner, seed)
            for learner in self.learners
            for seed in range(self.first, self.first + self.seeds)
        ]

    def _step(self, learner: GptLearner, seed: int) -> Step:
        settings = {
            "learner": asdict(learner), "tests": [asdict(test) for test in self.tests],
            "prompts": self.prompts, "seed": seed,
        }  # fmt: skip
        name = f"GPT, {learner.name}, seed {seed}"
        return Step(name, settings, lambda: self._trained(learner, seed))

    def _trained(self, learner: GptLearner, seed: int) -> list[Row]:
        given = world(learner, seed)
        model = train(learner, given, seed)
        rows = []
        for test in self.tests:
            source = given.source(test.alpha, test.length, test.s_1)
            found = outcome(model, learner, source, self.prompts, test.seed(seed))
            rows.append({
                "method": learner.name, "domain": test.domain, "s_1": test.s_1,
                "alpha": test.alpha, "length": test.length, "seed": seed, **found._asdict(),
            })  # fmt: skip
        return rows
