"""What the learners of chapter 6 see: patterns, training tasks and the prompts of tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from torch import Generator, Tensor

from graphtheory.lab.datasets.prompts import Prompts
from graphtheory.papers.grid import Measured
from graphtheory.papers.icl.data import PromptSource
from graphtheory.papers.icl.patterns import Patterns, label_embedding, section_6_5
from graphtheory.papers.icl.tasks import all_tasks, training_tasks, unseen_tasks
from graphtheory.patterns.draw import derive

INSIDE, OUTSIDE = "in domain", "out of domain"
DIM, NORM = 30, 3.0  # d_x = d_y and beta
SPREAD, SPREAD_OUTSIDE = 0.5, 5.0  # K and K'
_CHUNK = 500  # prompts of a network that are tested at once


@dataclass(frozen=True)
class PromptTest:
    """Prompts of a test."""

    alpha: float  # alpha', the share of contexts with a decisive pattern
    length: int  # l_ts
    # sum of the coefficients of mu'_1; None for unseen tasks in the domain
    s_1: float | None = None

    @property
    def domain(self) -> str:
        """In tables and pictures."""
        return INSIDE if self.s_1 is None else OUTSIDE

    @property
    def facts(self) -> Measured:
        """What every measurement on these prompts says of them."""
        return {
            "domain": self.domain, "s_1": self.s_1, "alpha": self.alpha, "length": self.length,
        }  # fmt: skip

    def seed(self, first: int) -> int:
        """Seed of its prompts; the same for every learner and method."""
        s_1 = -1 if self.s_1 is None else round(1000 * (self.s_1 + 10))
        return derive(first, round(1000 * self.alpha), self.length, s_1 + 1)


class World(NamedTuple):
    """What the networks of one figure see."""

    patterns: Patterns  # in the domain
    labels: Tensor  # [-q, q]
    tasks: Tensor  # T_tr, [U, 2]

    def training(self, alpha: float, length: int) -> PromptSource:
        """Prompts of the training tasks."""
        return PromptSource(self.patterns, self.tasks, self.labels, alpha, length)

    def test(self, asked: PromptTest) -> PromptSource:
        """Prompts of unseen tasks, or of patterns out of the domain with the S_1 asked for."""
        if asked.s_1 is None:
            patterns, tasks = self.patterns, unseen_tasks(self.tasks, len(self.patterns.relevant))
        else:
            patterns = self.patterns.combined(section_6_5(asked.s_1), spread=SPREAD_OUTSIDE)
            tasks = all_tasks(3)
        return PromptSource(patterns, tasks, self.labels, asked.alpha, asked.length)


def world(relevant: int, seed: int, blocks: int = 1) -> World:
    """Patterns and q of a seed, M1 = `relevant` of them; U = `blocks` of M1 training tasks each.

    Training and start are the same for rotated patterns, so one world serves all networks.
    """
    generator = Generator().manual_seed(derive(seed, 6))
    patterns = Patterns.orthogonal(
        relevant, DIM - relevant, dim=DIM, norm=NORM, spread=SPREAD, generator=generator
    )
    labels = label_embedding(DIM, generator=generator)
    return World(patterns, labels, training_tasks(relevant, blocks))


def prompts_of(
    source: PromptSource, networks: int, count: int, seed: int
) -> Iterator[tuple[Prompts, Tensor]]:
    """`count` prompts of each network, a part at a time, and their columns [T, P, l + 1, d]."""
    generator = Generator().manual_seed(derive(seed, 61))
    for start in range(0, count, _CHUNK):
        each = min(_CHUNK, count - start)
        prompts = source.sample(networks * each, generator)
        columns = prompts.columns()
        yield prompts, columns.view(networks, each, *columns.shape[1:])
