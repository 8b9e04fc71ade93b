"""Train and test the one-layer in-context learners of chapter 6, many networks at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from graphtheory.graph import query_stars
from graphtheory.papers.hinge_trials import Algorithm4, HingeBatch, Outcome, descend
from graphtheory.papers.icl.data import PromptSource
from graphtheory.papers.icl.model import DiagonalStart, icl_predict
from graphtheory.papers.icl.world import DIM, World, prompts_of
from graphtheory.papers.shallow import LINEAR, ShallowAttention, Watch, output_scale
from graphtheory.patterns.draw import derive


@dataclass(frozen=True)
class Learner:
    """A network and how it is trained, in the letters of chapter 6."""

    # size of the entries of `a`: "1/m" of the text, or "1/sqrt(m)" of the algorithm
    scale: str = LINEAR
    delta: float = 0.1  # diagonal of W_Q, W_K and W_V at the start; the text has at most 0.2
    step_size: float = 2.0  # eta
    steps: int = 1000  # T
    batch_size: int = 128  # B, new prompts in every step
    width: int = 200  # m
    embedding: int = 60  # m_a = m_b
    alpha: float = 0.8  # share of training contexts with a decisive pattern
    length: int = 20  # l_tr
    relevant: int = 6  # M1

    @property
    def family(self) -> str:
        """The learners among which a step size is chosen."""
        return f"a = {self.scale}, delta = {self.delta:g}"

    @property
    def name(self) -> str:
        """In tables and pictures."""
        return f"{self.family}, eta = {self.step_size:g}"

    def model(self, trials: int, generator: Generator) -> ShallowAttention:
        """Networks at their start."""
        model = ShallowAttention(
            2 * DIM, self.embedding, self.width, trials=trials,
            scale=output_scale(self.scale, self.width), generator=generator,
        )  # fmt: skip
        DiagonalStart(DIM, self.delta)(model, generator)
        return model


Choose = Callable[[int, Generator], Tensor]
"""(prompts of each network, generator) -> index in the source's tasks, int64 [T B]."""


def train(
    learner: Learner,
    given: World,
    trials: int,
    seed: int,
    watch: Watch = lambda step, model: False,
    *,
    choose: Choose | None = None,
) -> ShallowAttention:
    """Train networks with starts and prompts of their own, all drawn from the seed.

    `watch` is called before each step and after the last; training ends where it returns True.
    `choose` gives the task of every prompt; None draws evenly from all training tasks.
    """
    generator = Generator().manual_seed(derive(seed, trials, 60))
    model = learner.model(trials, generator)
    source = given.training(learner.alpha, learner.length)
    count = trials * learner.batch_size
    rows = query_stars(count, learner.length)
    queries = torch.arange(1, count + 1) * (learner.length + 1) - 1

    def draw(step: int) -> HingeBatch:
        task = None if choose is None else choose(learner.batch_size, generator)
        prompts = source.sample(count, generator, task=task)
        x = prompts.columns().flatten(0, 1)
        return HingeBatch(x, prompts.answer.view(trials, -1), rows, queries)

    descend(
        model, draw, [model.W_O, model.W_V, model.W_K, model.W_Q],
        Algorithm4(learner.step_size, learner.steps), watch=lambda step: watch(step, model),
    )  # fmt: skip
    return model


def outcomes(model: ShallowAttention, source: PromptSource, count: int, seed: int) -> list[Outcome]:
    """Outcome of each network on prompts of its own, `count` of each."""
    wrong, hinge = torch.zeros(model.trials), torch.zeros(model.trials)
    for prompts, columns in prompts_of(source, model.trials, count, seed):
        found = icl_predict(model, columns, attention=False)
        answer = prompts.answer.view(model.trials, -1)
        wrong += found.wrong(answer).sum(1)
        hinge += (1 - answer * found.value).clamp(min=0).sum(1)
    return [Outcome(float(h) / count, float(w) / count) for w, h in zip(wrong, hinge, strict=True)]
