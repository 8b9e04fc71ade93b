"""Patterns, tasks and prompts of in-context learning."""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor

from graphtheory.lab.train.contract import check_each
from graphtheory.papers.icl.prompts import Prompts
from graphtheory.papers.shallow import orthonormal

_check_none_below_0 = partial(check_each, "0 or more", lambda value: 0 <= value < math.inf)


@dataclass(frozen=True, eq=False)
class Patterns:
    r"""Relevant and irrelevant patterns, and how much of the latter is in an input.

    .. math:: x = \mu_j + \kappa \nu_k, \quad \kappa \sim U(-K, K)

    Source: Li (2024), eqs. (6.6) and (6.8), where "U(K', K')" is printed for U(-K', K').
    """

    relevant: Tensor  # mu_j, floating [M1, d_x]; any vectors
    irrelevant: Tensor  # nu_k, [M2, d_x]; M2 may be 0
    spread: float = 0.5  # K, 0 or more

    def __post_init__(self) -> None:
        if self.relevant.dim() != 2 or len(self.relevant) < 2:
            shape = tuple(self.relevant.shape)
            raise ValueError(f"relevant: shape {shape}, expected [M1, d_x] with M1 at least 2")
        if self.irrelevant.dim() != 2 or self.irrelevant.size(1) != self.relevant.size(1):
            shape, dim = tuple(self.irrelevant.shape), self.relevant.size(1)
            raise ValueError(f"irrelevant: shape {shape}, expected [M2, {dim}]")
        _check_none_below_0(spread=self.spread)

    @classmethod
    def orthogonal(
        cls, relevant: int = 6, irrelevant: int = 24, *, dim: int = 30, norm: float = 3.0,
        spread: float = 0.5, generator: Generator,
    ) -> "Patterns":  # fmt: skip
        """Random orthogonal patterns of equal norm: M1, M2, d_x, beta and K, in this order."""
        _check_none_below_0(irrelevant=irrelevant)
        check_each("above 0", lambda value: 0 < value < math.inf, norm=norm)
        count = relevant + irrelevant
        check_each(f"at least M1 + M2 = {count}", lambda value: value >= count, dim=dim)
        mu, nu = (orthonormal(count, dim, generator) * norm).split((relevant, irrelevant))
        return cls(mu, nu, spread)

    def combined(self, coefficients: Tensor, spread: float = 5.0) -> "Patterns":
        r"""Patterns out of the domain, :math:`\mu'_j = \sum_i k_{ji} \mu_i`, with k [M1', M1].

        The first M2' = M1' irrelevant patterns stay, and `spread` is K'.

        Source: Li (2024), eq. (6.12) and section 6.5.
        """
        if coefficients.dim() != 2 or coefficients.size(1) != len(self.relevant):
            shape, count = tuple(coefficients.shape), len(self.relevant)
            raise ValueError(f"coefficients: shape {shape}, expected [M1', {count}]")
        kept = self.irrelevant[: len(coefficients)]
        return Patterns(coefficients @ self.relevant, kept, spread)


def section_6_5(total: float) -> Tensor:
    r"""Coefficients [3, 6] of the thesis's patterns out of the domain, for a given S_1.

    .. math:: \mu'_1 = 0.3(\mu_1 - \mu_2) + a \mu_5 + b \mu_6, \quad
        \mu'_2 = (\mu_1 + \mu_2) / \sqrt2, \quad \mu'_3 = (\mu_3 + \mu_4) / \sqrt2

    with a + b = S_1 = `total`, a >= b and norm 1: |S_1| is at most
    :math:`\sqrt{2 (1 - 2 \cdot 0.3^2)} = 1.28`.
    """
    rest = 0.3
    left = 1 - 2 * rest**2
    if not total**2 <= 2 * left:
        raise ValueError(f"total: got {total}, expected at most {math.sqrt(2 * left):.4f}")
    apart = math.sqrt(left / 2 - total**2 / 4)
    a, b, half = total / 2 + apart, total / 2 - apart, math.sqrt(0.5)
    rows = [[rest, -rest, 0, 0, a, b], [half, half, 0, 0, 0, 0], [0, 0, half, half, 0, 0]]
    return torch.tensor(rows, dtype=torch.float32)


def unmet_conditions(coefficients: Tensor, tolerance: float = 1e-4) -> list[str]:
    """Conditions of theorem 6.3.4 that patterns with k [M1', M1] fail; none where it applies.

    It asks for sums S_j of at least 1 and for orthogonal patterns of norm beta.
    """
    found = [
        f"S_{j} = {total:g}, expected at least 1"
        for j, total in enumerate(coefficients.sum(1).tolist(), 1)
        if total < 1 - tolerance
    ]
    gram = coefficients @ coefficients.t()
    for j, row in enumerate(gram.tolist(), 1):
        if abs(row[j - 1] - 1) > tolerance:
            found.append(f"pattern {j} has the norm {math.sqrt(row[j - 1]):g} beta, expected beta")
        found += [
            f"patterns {j} and {i} are not orthogonal"
            for i, value in enumerate(row[j:], j + 1)
            if abs(value) > tolerance
        ]
    return found


def label_embedding(dim: int = 30, *, generator: Generator) -> Tensor:
    """A random q of length 1 as the labels of `Prompts`: [-q, q], shape [2, dim]."""
    q = torch.randn(dim, generator=generator)
    q *= 1 / q.norm()
    return torch.stack([-q, q])


def all_tasks(patterns: int) -> Tensor:
    """Every ordered pair of M1 different patterns, the first mapped to +1, int64 [M1 (M1 - 1), 2].

    Source: Li (2024), definition 6.3.1.
    """
    pairs = torch.cartesian_prod(torch.arange(patterns), torch.arange(patterns))
    return pairs[pairs[:, 0] != pairs[:, 1]]


def training_tasks(patterns: int, blocks: int = 1) -> Tensor:
    """M1 tasks per block that satisfy condition 6.3.2: block k maps mu_j to +1, mu_(j+k) to -1.

    With M1 - 1 blocks these are all tasks; int64 [blocks * M1, 2].

    Source: Li (2024), section 6.5.
    """
    check_each(f"1 to {patterns - 1}", lambda value: 1 <= value < patterns, blocks=blocks)
    own = torch.arange(patterns)
    return torch.cat([torch.stack([own, (own + k) % patterns], 1) for k in range(1, blocks + 1)])


def unseen_tasks(tasks: Tensor, patterns: int) -> Tensor:
    """The tasks that are not among `tasks`, int64 [V, 2]; ValueError if there are none."""
    check_tasks(tasks, patterns)
    code = torch.tensor([patterns, 1])
    every = all_tasks(patterns)
    left = every[~torch.isin((every * code).sum(1), (tasks * code).sum(1))]
    if not len(left):
        raise ValueError(f"tasks: all {len(every)} are given, expected at least one unseen task")
    return left


def check_tasks(tasks: Tensor, patterns: int) -> None:
    """Raise ValueError unless these are int64 pairs [U, 2] of different patterns."""
    if tasks.dim() != 2 or tasks.size(1) != 2 or not len(tasks) or tasks.dtype != torch.int64:
        raise ValueError(
            f"tasks: {tasks.dtype} of shape {tuple(tasks.shape)}, expected int64 [U, 2], U >= 1"
        )
    if int(tasks.min()) < 0 or int(tasks.max()) >= patterns:
        raise ValueError(
            f"tasks: patterns {int(tasks.min())} to {int(tasks.max())}, expected 0 to "
            f"{patterns - 1}"
        )
    if bool((tasks[:, 0] == tasks[:, 1]).any()):
        raise ValueError("tasks: one maps a pattern to both labels, expected two patterns")


def uncovered(tasks: Tensor, patterns: int) -> list[str]:
    """Why training tasks T_tr fail condition 6.3.2; none where they satisfy it.

    Every pattern has to be mapped to each label by |T_tr| / M1 tasks, at least one.
    """
    check_tasks(tasks, patterns)
    each, uneven = divmod(len(tasks), patterns)
    found = [f"{len(tasks)} tasks, expected a multiple of M1 = {patterns}"] if uneven else []
    for j in range(patterns):
        for side, label in ((0, "+1"), (1, "-1")):
            count = int((tasks[:, side] == j).sum())
            if not count:
                found.append(f"no task maps mu_{j + 1} to {label}")
            elif count != each and not uneven:
                found.append(f"{count} tasks map mu_{j + 1} to {label}, expected {each}")
    return found


@dataclass(frozen=True, eq=False)
class PromptSource:
    """Draws prompts of binary tasks that two patterns decide.

    A prompt has a task, drawn evenly. Its query has one of the two decisive patterns, evenly. A
    context has each decisive pattern with probability alpha / 2 and each other one with
    (1 - alpha) / (M1 - 2). Outputs are +1 and -1 of the decisive patterns, random of the others.
    Every input also has an irrelevant pattern, drawn evenly.

    Source: Li (2024), eqs. (6.6) to (6.8) and section 6.3.2; tests draw contexts in the same way,
        section 6.5; patterns of queries are drawn evenly, subroutine 2 of appendix E.
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
        check_each("above 0, at most 1", lambda value: 0 < value <= 1, alpha=self.alpha)
        if count == 2 and self.alpha < 1:
            raise ValueError(f"alpha: got {self.alpha}, expected 1, since every pattern decides")
        check_each("at least 1", lambda value: value >= 1, length=self.length)

    def sample(self, count: int, generator: Generator, *, task: Tensor | None = None) -> Prompts:
        """Draw P = `count` prompts; the same generator state gives the same prompts.

        `task` is the index in `tasks` of every prompt, int64 [P]; None draws them.
        """
        _check_none_below_0(count=count)
        if task is None:
            task = torch.randint(len(self.tasks), (count,), generator=generator)
        if task.shape != (count,):
            shape = tuple(task.shape)
            raise ValueError(f"task: shape {shape}, expected ({count},), one per prompt")
        if not bool(((task >= 0) & (task < len(self.tasks))).all()):
            given = f"from {int(task.min())} to {int(task.max())}"
            raise ValueError(f"task: {given}, expected 0 to {len(self.tasks) - 1}")
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
