"""In-context prompts: examples of a task and a query, as tensors and as star graphs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch_geometric.data import Batch, Data

from graphtheory.data.pattern_tasks import check_tasks
from graphtheory.data.prompt_patterns import Patterns
from graphtheory.graph import Neighborhood, query_stars


@dataclass(frozen=True, eq=False)
class Prompts:
    r"""P prompts of one length, the query in the last place.

    .. math:: P = \begin{pmatrix} x_1 & \dots & x_l & x_{query} \\ y_1 & \dots & y_l & 0
        \end{pmatrix}

    Attributes:
        x: Inputs, floating [P, l + 1, d_x].
        y: Outputs [P, l + 1]: +1 or -1, or any number of a regression; that of the query is the
            answer, which no column holds.
        labels: Embeddings of the outputs -1 and +1, [2, d_y]; other numbers lie on their line.
        pattern: Relevant pattern of every input, int64 [P, l + 1]; None where there is none.
        task: Decisive patterns of every prompt, mapped to +1 and -1, int64 [P, 2]; or None.

    Raises:
        ValueError: Tensors whose shapes do not go together.

    Source:
        Li (2024), eq. (6.1).
    """

    x: Tensor
    y: Tensor
    labels: Tensor
    pattern: Tensor | None = None
    task: Tensor | None = None

    def __post_init__(self) -> None:
        if self.x.dim() != 3 or not self.x.size(1):
            raise ValueError(f"x: shape {tuple(self.x.shape)}, expected [P, l + 1, d_x]")
        if self.labels.dim() != 2 or len(self.labels) != 2:
            raise ValueError(f"labels: shape {tuple(self.labels.shape)}, expected [2, d_y]")
        count, places, _ = self.x.shape
        for name, wanted in (("y", (count, places)), ("pattern", (count, places)),
                             ("task", (count, 2))):  # fmt: skip
            given = getattr(self, name)
            if given is not None and given.shape != wanted:
                shape = tuple(given.shape)
                raise ValueError(f"{name}: shape {shape}, expected {wanted}, as x has it")

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, chosen: int | slice | Tensor) -> Prompts:
        """Some of the prompts, or one of them, which are prompts too.

        Raises:
            IndexError: No prompt of that number.
        """
        if isinstance(chosen, int):
            at = range(len(self))[chosen]
            chosen = slice(at, at + 1)
        pattern, task = (None if t is None else t[chosen] for t in (self.pattern, self.task))
        return Prompts(self.x[chosen], self.y[chosen], self.labels, pattern, task)

    @property
    def length(self) -> int:
        """Contexts, l."""
        return self.x.size(1) - 1

    @property
    def answer(self) -> Tensor:
        """Output of every query, [P]."""
        return self.y[:, -1]

    def columns(self) -> Tensor:
        """p_1 to p_l and p_query, [P, l + 1, d_x + d_y]; the label part of the query is 0."""
        low, high = self.labels
        middle, half = (high + low) / 2, (high - low) / 2
        told = torch.addcmul(middle, self.y[..., None], half)
        told[:, -1] = 0
        return torch.cat([self.x, told], 2)

    def graph(self) -> tuple[Tensor, Neighborhood, Tensor]:
        """Columns as nodes [P (l + 1), d], the rows of the queries, and the queries' ids [P]."""
        rows = query_stars(len(self), self.length)
        queries = torch.arange(1, len(self) + 1) * (self.length + 1) - 1
        return self.columns().flatten(0, 1), rows, queries

    def same_pattern(self) -> Tensor:
        """Whether a context has the query's relevant pattern, bool [P, l].

        Raises:
            ValueError: The prompts have no patterns.
        """
        if self.pattern is None:
            raise ValueError("prompts: have no patterns, expected those of a PromptSource")
        return self.pattern[:, :-1] == self.pattern[:, -1:]

    def data(self) -> list[Data]:
        """A PyG graph for each prompt, edges from the contexts to the query.

        Shapes:
            x [l + 1, d_x + d_y]; edge_index [2, l]; y [1], the query's output; query_index [1],
            the query's node, also of a `Batch` of these graphs.
        """
        edges = torch.stack([torch.arange(self.length), torch.full((self.length,), self.length)])
        query = torch.tensor([self.length])
        return [
            Data(x=x, edge_index=edges, y=y[-1:], query_index=query)
            for x, y in zip(self.columns(), self.y, strict=True)
        ]

    def batch(self) -> Batch:
        """The graphs of `data` as one.

        Raises:
            ValueError: No prompt.
        """
        if not len(self):
            raise ValueError("prompts: got none, expected at least one of a batch")
        return Batch.from_data_list(self.data())


def _check_asked(count: int, task: Tensor | None, tasks: int) -> None:
    """Raise unless so many prompts can be drawn, of these tasks."""
    if count < 0:
        raise ValueError(f"count: got {count}, expected 0 or more")
    if task is None:
        return
    if task.shape != (count,):
        raise ValueError(f"task: shape {tuple(task.shape)}, expected ({count},), one of a prompt")
    if not bool(((task >= 0) & (task < tasks)).all()):
        raise ValueError(
            f"task: from {int(task.min())} to {int(task.max())}, expected 0 to {tasks - 1}"
        )


def label_embedding(dim: int = 30, norm: float = 1.0, *, generator: Generator) -> Tensor:
    """A random q of that norm as `labels`: [-q, q], shape [2, dim]."""
    q = torch.randn(dim, generator=generator)
    q *= norm / q.norm()
    return torch.stack([-q, q])


@dataclass(frozen=True, eq=False)
class PromptSource:
    r"""Draws prompts of binary tasks that two patterns decide.

    A prompt has a task, drawn evenly. Its query has one of the two decisive patterns, evenly. A
    context has each decisive pattern with probability alpha / 2 and each other one with
    (1 - alpha) / (M1 - 2). Outputs are +1 and -1 of the decisive patterns, random of the others.
    Every input has an irrelevant pattern, drawn evenly, besides.

    Args:
        patterns: mu, nu and K.
        tasks: Patterns mapped to +1 and -1, int64 [U, 2].
        labels: Embeddings of -1 and +1, [2, d_y].
        alpha: Share of contexts with a decisive pattern, above 0 to 1; 1 where M1 = 2. The same
            letter with a dash in tests.
        length: Contexts of a prompt, l, at least 1.

    Raises:
        ValueError: Tasks or labels of another shape, or a number out of its range.

    Source:
        Li (2024), eqs. (6.6) to (6.8) and section 6.3.2; that tests draw contexts so too,
        section 6.5; that patterns of the queries come evenly, subroutine 2 of appendix E.

    Example:
        >>> draw = Generator().manual_seed(0)
        >>> patterns = Patterns.orthogonal(generator=draw)
        >>> source = PromptSource(patterns, torch.tensor([[0, 1]]), label_embedding(generator=draw))
        >>> source.sample(100, draw).columns().shape
        torch.Size([100, 21, 60])
    """

    patterns: Patterns
    tasks: Tensor
    labels: Tensor
    alpha: float = 0.8
    length: int = 20

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
        """Draw prompts; the same generator state gives the same prompts.

        Args:
            count: P.
            generator: Source of randomness.
            task: Index in `tasks` of every prompt, int64 [P], where they are not to be drawn.

        Raises:
            ValueError: A number below 0, or tasks that are not as many or not there.
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
