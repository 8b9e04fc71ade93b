"""Prompts of binary tasks that two patterns decide."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from graphtheory.lab.datasets.prompts import Prompts
from graphtheory.papers.icl.patterns import Patterns
from graphtheory.papers.icl.tasks import check_tasks


def _check_asked(count: int, task: Tensor | None, tasks: int) -> None:
    """Raise unless `count` prompts of these tasks can be drawn."""
    if count < 0:
        raise ValueError(f"count: got {count}, expected 0 or more")
    if task is None:
        return
    if task.shape != (count,):
        raise ValueError(f"task: shape {tuple(task.shape)}, expected ({count},), one per prompt")
    if not bool(((task >= 0) & (task < tasks)).all()):
        raise ValueError(
            f"task: from {int(task.min())} to {int(task.max())}, expected 0 to {tasks - 1}"
        )


@dataclass(frozen=True, eq=False)
class PromptSource:
    """Draws prompts of binary tasks that two patterns decide.

    A prompt has a task, drawn evenly. Its query has one of the two decisive patterns, evenly. A
    context has each decisive pattern with probability alpha / 2 and each other one with
    (1 - alpha) / (M1 - 2). Outputs are +1 and -1 of the decisive patterns, random of the others.
    Every input also has an irrelevant pattern, drawn evenly.

    Raises:
        ValueError: If tasks or labels have another shape or a number is out of its range.

    Source:
        Li (2024), eqs. (6.6) to (6.8) and section 6.3.2; tests draw contexts in the same way,
        section 6.5; patterns of queries are drawn evenly, subroutine 2 of appendix E.

    Example:
        >>> from graphtheory.papers.icl.patterns import label_embedding
        >>> draw = Generator().manual_seed(0)
        >>> patterns = Patterns.orthogonal(generator=draw)
        >>> source = PromptSource(patterns, torch.tensor([[0, 1]]), label_embedding(generator=draw))
        >>> source.sample(100, draw).columns().shape
        torch.Size([100, 21, 60])
    """

    patterns: Patterns  # mu, nu and K
    tasks: Tensor  # patterns mapped to +1 and -1, int64 [U, 2]
    labels: Tensor  # embeddings of -1 and +1, [2, d_y]
    # share of contexts with a decisive pattern, above 0, at most 1; 1 where M1 = 2; alpha' in tests
    alpha: float = 0.8
    length: int = 20  # contexts of a prompt, l, at least 1

    def __post_init__(self) -> None:
        count = len(self.patterns.relevant)
        check_tasks(self.tasks, count)
        if self.labels.dim() != 2 or len(self.labels) != 2:
            raise ValueError(f"labels: shape {tuple(self.labels.shape)}, expected [2, d_y]")
        if not 0 < self.alpha <= 1:
            raise ValueError(f"alpha: got {self.alpha}, expected above 0, at most 1")
        if count == 2 and self.alpha < 1:
            raise ValueError(f"alpha: got {self.alpha}, expected 1, since every pattern decides")
        if self.length < 1:
            raise ValueError(f"length: got {self.length}, expected at least 1")

    def sample(self, count: int, generator: Generator, *, task: Tensor | None = None) -> Prompts:
        """Draw P = `count` prompts; the same generator state gives the same prompts.

        `task` is the index in `tasks` of every prompt, int64 [P]; None draws them.

        Raises:
            ValueError: If the number is below 0 or `task` has another shape or no such index.
        """
        _check_asked(count, task, len(self.tasks))
        if task is None:
            task = torch.randint(len(self.tasks), (count,), generator=generator)
        decisive = self.tasks[task]
        pattern = self._contexts(decisive, generator)
        coin = torch.randint(2, (count, 1), generator=generator)
        pattern[:, -1:] = decisive.gather(1, coin)
        y = torch.randint(2, pattern.shape, generator=generator).mul_(2).sub_(1).float()
        for side, value in ((0, 1.0), (1, -1.0)):
            y.masked_fill_(pattern == decisive[:, side, None], value)
        return Prompts(self._inputs(pattern, generator), y, self.labels, pattern, decisive)

    def _contexts(self, decisive: Tensor, generator: Generator) -> Tensor:
        """Relevant patterns [P, l + 1]; the last column is not the query's yet."""
        shape = (len(decisive), self.length + 1)
        share = torch.rand(shape, generator=generator)
        others = max(len(self.patterns.relevant) - 2, 1)
        pattern = torch.randint(others, shape, generator=generator)
        for skipped in decisive.sort(1).values.split(1, dim=1):  # 0, 1, ... without the two
            pattern += pattern >= skipped
        pattern = torch.where(share < self.alpha, decisive[:, 1:], pattern)
        return torch.where(share < self.alpha / 2, decisive[:, :1], pattern)

    def _inputs(self, pattern: Tensor, generator: Generator) -> Tensor:
        """Inputs of eq. (6.6), [P, l + 1, d_x]."""
        mu, nu, spread = self.patterns.relevant, self.patterns.irrelevant, self.patterns.spread
        x = mu.index_select(0, pattern.flatten())
        if len(nu):
            kind = torch.randint(len(nu), (len(x),), generator=generator)
            kappa = torch.rand(len(x), 1, generator=generator).mul_(2 * spread).sub_(spread)
            x.addcmul_(nu.index_select(0, kind), kappa)
        return x.view(*pattern.shape, mu.size(1))
