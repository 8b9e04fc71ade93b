"""The in-context learner of chapter 6 on its prompts: many networks drawn, trained, tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from graphtheory.data.prompts import Prompts, label_embedding
from graphtheory.graph import query_stars
from graphtheory.papers.hinge_trials import Algorithm4, HingeBatch, descend
from graphtheory.papers.icl.data import PromptSource
from graphtheory.papers.icl.model import DiagonalStart, icl_predict
from graphtheory.papers.icl.patterns import Patterns, section_6_5
from graphtheory.papers.icl.tasks import all_tasks, training_tasks, unseen_tasks
from graphtheory.papers.shallow import ShallowAttention
from graphtheory.patterns.draw import derive

LINEAR, ROOT = "1/m", "1/sqrt(m)"
INSIDE, OUTSIDE = "in domain", "out of domain"
DIM, NORM, INNER, OUTER = 30, 3.0, 0.5, 5.0  # d_x = d_y, beta, K, K'
_CHUNK = 500  # prompts of a network that are tested at once


@dataclass(frozen=True)
class Learner:
    """A network and how it is trained, in the letters of chapter 6.

    Attributes:
        scale: Size of the entries of `a`: "1/m" of the text, or "1/sqrt(m)" of the algorithm.
        delta: Diagonal of W_Q, W_K and W_V at the start; the text has at most 0.2.
        step_size: eta.
        steps: T.
        batch_size: B, fresh prompts in every step.
        width: m.
        embedding: m_a = m_b.
        alpha: Share of training contexts with a decisive pattern.
        length: l_tr.
        relevant: M1.
    """

    scale: str = LINEAR
    delta: float = 0.1
    step_size: float = 2.0
    steps: int = 1000
    batch_size: int = 128
    width: int = 200
    embedding: int = 60
    alpha: float = 0.8
    length: int = 20
    relevant: int = 6

    @property
    def family(self) -> str:
        """What its step size is chosen within."""
        return f"a = {self.scale}, delta = {self.delta:g}"

    @property
    def name(self) -> str:
        """In tables and pictures."""
        return f"{self.family}, eta = {self.step_size:g}"

    def model(self, trials: int, generator: Generator) -> ShallowAttention:
        """Networks at their start."""
        model = ShallowAttention(
            2 * DIM, self.embedding, self.width, trials=trials,
            scale=self.width ** (-1 if self.scale == LINEAR else -0.5), generator=generator,
        )  # fmt: skip
        DiagonalStart(DIM, self.delta)(model, generator)
        return model


class World(NamedTuple):
    """What the networks of one study see.

    Attributes:
        patterns: In the domain.
        labels: [-q, q].
        tasks: T_tr, [U, 2].
    """

    patterns: Patterns
    labels: Tensor
    tasks: Tensor

    def source(self, alpha: float, length: int, s_1: float | None = None) -> PromptSource:
        """Test prompts: of unseen tasks, or out of the domain with that S_1."""
        if s_1 is None:
            unseen = unseen_tasks(self.tasks, len(self.patterns.relevant))
            return PromptSource(self.patterns, unseen, self.labels, alpha, length)
        outside = self.patterns.combined(section_6_5(s_1), spread=OUTER)
        return PromptSource(outside, all_tasks(3), self.labels, alpha, length)


def world(learner: Learner, seed: int) -> World:
    """Patterns and q of a seed; M1 training tasks.

    Training and start are the same for rotated patterns, so one world serves all networks.
    """
    generator = Generator().manual_seed(derive(seed, 6))
    patterns = Patterns.orthogonal(
        learner.relevant, DIM - learner.relevant, dim=DIM, norm=NORM, spread=INNER,
        generator=generator,
    )  # fmt: skip
    labels = label_embedding(DIM, generator=generator)
    return World(patterns, labels, training_tasks(learner.relevant))


Watch = Callable[[int, ShallowAttention], bool]
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
    """Train networks with starts and prompts of their own.

    Args:
        learner: How.
        given: On what.
        trials: Networks, T.
        seed: Of starts and prompts.
        watch: Called before each step and after the last; training ends where it says True.
        choose: Which task every prompt has; without it they are drawn from all.
    """
    generator = Generator().manual_seed(derive(seed, trials, 60))
    model = learner.model(trials, generator)
    source = PromptSource(given.patterns, given.tasks, given.labels, learner.alpha, learner.length)
    count = trials * learner.batch_size
    rows = query_stars(count, learner.length)

    def draw(step: int) -> HingeBatch:
        task = None if choose is None else choose(learner.batch_size, generator)
        x, answer, queries = _nodes(source.sample(count, generator, task=task))
        return HingeBatch(x, answer.view(trials, -1), rows, queries)

    descend(
        model, draw, [model.W_O, model.W_V, model.W_K, model.W_Q],
        Algorithm4(learner.step_size, learner.steps), watch=lambda step: watch(step, model),
    )  # fmt: skip
    return model


def _nodes(prompts: Prompts) -> tuple[Tensor, Tensor, Tensor]:
    """Columns as nodes, answers, ids of the queries."""
    last = prompts.length + 1
    queries = torch.arange(1, len(prompts) + 1) * last - 1
    return prompts.columns().flatten(0, 1), prompts.answer, queries


class Outcome(NamedTuple):
    """What a network does on test prompts.

    Attributes:
        error: Share of wrong signs; an output of 0 is one.
        hinge: Mean hinge loss.
    """

    error: float
    hinge: float


def prompts_of(
    source: PromptSource, trials: int, count: int, seed: int
) -> Iterator[tuple[Prompts, Tensor]]:
    """Prompts of every network, a part at a time, and their columns [T, P, l + 1, d]."""
    generator = Generator().manual_seed(derive(seed, 61))
    for start in range(0, count, _CHUNK):
        each = min(_CHUNK, count - start)
        prompts = source.sample(trials * each, generator)
        columns = prompts.columns()
        yield prompts, columns.view(trials, each, *columns.shape[1:])


def outcomes(model: ShallowAttention, source: PromptSource, count: int, seed: int) -> list[Outcome]:
    """Of each network on prompts of its own, `count` of each."""
    wrong, hinge = torch.zeros(model.trials), torch.zeros(model.trials)
    for prompts, columns in prompts_of(source, model.trials, count, seed):
        found = icl_predict(model, columns, attention=False)
        answer = prompts.answer.view(model.trials, -1)
        wrong += found.wrong(answer).sum(1)
        hinge += (1 - answer * found.value).clamp(min=0).sum(1)
    return [Outcome(float(w) / count, float(h) / count) for w, h in zip(wrong, hinge, strict=True)]
