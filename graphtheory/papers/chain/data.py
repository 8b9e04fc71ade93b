"""Data of chapter 7: patterns, positions, tasks, errors of examples, and prompts of all steps."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from scipy.optimize import brentq
from torch import Generator, Tensor

from graphtheory.papers.chain import steps as checks
from graphtheory.papers.chain.steps import check_count, check_probability, trajectories
from graphtheory.papers.shallow import orthonormal


@dataclass(frozen=True)
class TrajectoryErrors:
    """Examples that move, in a wrong step, to the right trajectory of another start.

    With :math:`s_k(i)` the pattern of start i after k right steps, an example that is at
    :math:`s_{k-1}(i)` goes on to :math:`s_k(i)` with probability :math:`p_k`, to :math:`s_k(j)` of
    the rival j of i with probability :math:`q_k`, and to each other pattern with an equal part of
    the rest. "pairs": starts 2n and 2n + 1 are rivals, so that a second error can undo the first.
    "next": the rival of i is i + 1, cyclically, so that errors add up.

    Source: Our choice: the source gives tau^f and rho^f but no matrices. The choice matters: with
        "pairs" condition 7.3.2 always holds, with "next" it may fail at the same tau_o and rho_o.
    """

    right: tuple[float, ...]  # p_1..p_K
    rival: tuple[float, ...]  # q_1..q_K
    onto: Literal["pairs", "next"] = "pairs"  # "pairs" or "next"

    def __post_init__(self) -> None:
        if self.onto not in ("pairs", "next"):
            raise ValueError(f"onto: got {self.onto!r}, expected 'pairs' or 'next'")
        if len(self.right) != len(self.rival):
            raise ValueError(
                f"rival: {len(self.rival)} steps, expected {len(self.right)} as right has"
            )
        for p, q in zip(self.right, self.rival, strict=True):
            if not (0 < p <= 1 and -1e-9 <= q <= 1 - p + 1e-9):
                raise ValueError(
                    f"rival: got {q:.4g} beside right={p:.4g}, expected 0 to {1 - p:.4g}"
                )

    @classmethod
    def even(cls, tau: float, rho: float, steps: int, patterns: int) -> "TrajectoryErrors":
        """For given tau^f and rho^f of K steps on M' patterns, with errors in pairs in all steps.

        Tau is the probability that all steps are right, rho the primacy of every step, M' is even.
        """
        check_count(steps=steps)
        check_probability(tau=tau)
        p = tau ** (1 / steps)
        _check_rho(p, rho, patterns)
        return cls((p,) * steps, ((1 - rho) * p,) * steps)

    @classmethod
    def first(cls, tau: float, rho: float, steps: int, patterns: int) -> "TrajectoryErrors":
        """The same with all errors in the first step, which allows a smaller rho^f.

        B^f is then A_1^f with renamed columns: tau_o^f = tau^f and rho_o^f = rho^f.
        """
        check_count(steps=steps)
        check_probability(tau=tau)
        _check_rho(tau, rho, patterns)
        rest = steps - 1
        return cls((tau, *(1.0,) * rest), ((1 - rho) * tau, *(0.0,) * rest))

    @classmethod
    def of_output(
        cls, tau_o: float, rho_o: float, steps: int, patterns: int, *,
        holds: bool = True, wrong: int | None = None,
    ) -> "TrajectoryErrors":  # fmt: skip
        """For given tau_o^f and rho_o^f of K steps on M' patterns, an even number.

        Tau_o is the probability of the most probable end, rho_o its primacy over the second. Unless
        condition 7.3.2 `holds`, two steps have errors, onto the next start; else the first `wrong`
        ones do, None being all.
        """
        check_count(steps=steps)
        check_probability(tau_o=tau_o)
        _check_rho(tau_o, rho_o, patterns)
        if holds:
            count = steps if wrong is None else wrong
            p, q = _root_of_pairs(tau_o, rho_o, count, patterns)
        else:
            count = 2
            p, q = _two_steps_to_the_next(tau_o, rho_o, patterns)
            if steps < 2 or wrong not in (None, 2):
                raise ValueError(f"wrong: got {wrong} of {steps} steps, expected 2 of at least 2")
        rest = steps - count
        right, rival = (p,) * count + (1.0,) * rest, (q,) * count + (0.0,) * rest
        return cls(right, rival, "pairs" if holds else "next")

    def __call__(self, task: Tensor) -> Tensor:
        """Step-wise transition matrices, float32 [..., K, M, M], of tasks int64 [..., K, M]."""
        *_, steps, patterns = task.shape
        if steps != len(self.right):
            raise ValueError(f"task: {steps} steps, expected {len(self.right)}")
        if self.onto == "pairs" and patterns % 2:
            raise ValueError(f"task: {patterns} patterns, expected an even number, for pairs")
        place = trajectories(task)
        start = place.argsort(-1)  # of the trajectory through each pattern, [..., K + 1, M]
        if not torch.equal(place.gather(-1, start), place[..., :1, :].expand_as(place)):
            raise ValueError("task: a step maps two patterns to one, expected permutations")
        eye, rival = torch.eye(patterns), torch.arange(patterns)
        rival = rival ^ 1 if self.onto == "pairs" else (rival + 1) % patterns
        out = []  # matrices [M, M] between trajectories, which are numbered by their start
        for p, q in zip(self.right, self.rival, strict=True):
            rest = max(1 - p - q, 0.0) / max(patterns - 2, 1)
            out.append(rest + (p - rest) * eye + (q - rest) * eye[rival])
        by_start = torch.stack(out).to(task.device)  # [K, M, M]
        step = torch.arange(steps, device=task.device)[:, None, None]
        return by_start[step, start[..., :-1, :, None], start[..., 1:, None, :]]


def _check_rho(p: float, rho: float, patterns: int) -> None:
    """Raise unless the rival has between an equal part of the rest and all of it."""
    if patterns < 2:
        raise ValueError(f"patterns: got {patterns}, expected at least 2")
    low, high = 2 - 1 / p, 1 - (1 - p) / ((patterns - 1) * p)
    if not (0 < p <= 1 and max(low, 0) - 1e-9 <= rho <= high + 1e-9):
        raise ValueError(
            f"rho: got {rho}, expected {max(low, 0):.3f} to {high:.3f} where the right one of "
            f"{patterns} patterns has probability {p:.3f}"
        )


def _root_of_pairs(tau: float, rho: float, count: int, patterns: int) -> tuple[float, float]:
    """P and q of pairs whose power `count` has tau and (1 - rho) tau, through its eigenvalues."""
    q = (1 - rho) * tau
    r = max(1 - tau - q, 0.0) / max(patterns - 2, 1)
    total, gap = (tau + q - 2 * r) ** (1 / count), (tau - q) ** (1 / count)
    total += 2 * (1 - total) / patterns
    return (total + gap) / 2, (total - gap) / 2


def _two_steps_to_the_next(tau: float, rho: float, patterns: int) -> tuple[float, float]:
    """P and q of a matrix whose square has tau at the next start, (1 - rho) tau at the right one.

    With P = p - r, Q = q - r and S = P + Q the square has 2 r - M r^2 everywhere, plus P^2, 2 P Q
    and Q^2 at the start itself, at the next one and at the one after.
    """
    gap = rho * tau

    def of(r: float) -> tuple[float, float]:
        s = 1 - patterns * r
        p = (s + max(s * s - 3 * gap, 0.0) ** 0.5) / 3
        return p, s - p

    def off(r: float) -> float:
        p, q = of(r)
        return 2 * p * q + 2 * r - patterns * r * r - tau

    last = (1 - (3 * gap) ** 0.5) / patterns
    if not (3 * gap < 1 and off(0) >= 0 >= off(last)):
        raise ValueError(
            f"tau_o: got {tau} with rho_o={rho}, expected at most {tau + off(0):.3f} where the "
            "condition fails"
        )
    r = brentq(off, 0, last)
    p, q = of(r)
    return p + r, q + r


class ChainPrompts(NamedTuple):
    """B prompts of l examples with K steps each, and the right steps of their queries."""

    context: Tensor  # x_i, y_i1, .., y_iK of each example, [B, l, K + 1, d]
    context_pattern: Tensor  # their patterns [B, l, K + 1]
    query: Tensor  # z_0, .., z_K [B, K + 1, d]
    query_pattern: Tensor  # their patterns [B, K + 1]
    vocabulary: Tensor  # the patterns [M, d], which are also the possible outputs

    @property
    def steps(self) -> int:
        """The number of reasoning steps, K."""
        return self.context.size(2) - 1

    def columns(self) -> Tensor:
        """E_1..E_l of eqs. (7.1) and (7.4), [B, l K, 2 d]."""
        return self._columns(0)

    def icl_columns(self) -> Tensor:
        """E_1..E_l of eq. (7.8), [B, l K, 2 d]: x_i and y_iK, then K - 1 columns of zeros."""
        ends = torch.cat([self.context[:, :, 0], self.context[:, :, -1]], 2)
        out = ends.new_zeros(*ends.shape[:2], self.steps, ends.size(2))
        out[:, :, 0] = ends
        return out.flatten(1, 2)

    def at(self, step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The prompts that ask for step k [B], in 1..K, given the right steps before it: eq. (7.1).

        Returns:
            Columns [B, l K + K, 2 d], of which the last K - k do not count; the number of columns
            that count [B]; labels z_k [B, d].
        """
        checks.check_step(step, len(self.query), self.steps)
        own, dim = torch.arange(self.steps, device=step.device), self.query.size(2)
        out = self._columns(self.steps)
        asked = out[:, -self.steps :]
        asked[..., :dim] = self.query[:, :-1]
        asked[..., dim:] = self.query[:, 1:] * (own < step[:, None] - 1)[..., None]
        sizes = self.context.size(1) * self.steps + step
        return out, sizes, self.query[torch.arange(len(step), device=step.device), step]

    def _columns(self, more: int) -> Tensor:
        """E_1..E_l and uninitialized room for more columns; every entry is written once."""
        count, length, states, dim = self.context.shape
        size = length * self.steps
        out = self.context.new_empty(count, size + more, 2 * dim)
        shape = (count, length, self.steps, 2 * dim)
        parts = out.as_strided(shape, (out.stride(0), 2 * dim * (states - 1), 2 * dim, 1))
        parts[..., :dim], parts[..., dim:] = self.context[:, :, :-1], self.context[:, :, 1:]
        return out

    def relation(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """Example columns of the query's step, and those with its pattern; both bool [B, l K]."""
        count, length = self.context_pattern.shape[:2]
        checks.check_step(step, count, self.steps)
        own = torch.arange(self.steps, device=step.device).repeat(length)
        same_step = own[None] == step[:, None] - 1
        now = self.query_pattern[torch.arange(count, device=step.device), step - 1]
        return same_step, self.context_pattern[:, :, :-1].flatten(1) == now[:, None]


def draw_prompts(
    patterns: Tensor,
    task: Tensor,
    contexts: int,
    share: float,
    generator: Generator,
    *,
    transitions: Tensor | None = None,
    noise: float = 0.0,
) -> ChainPrompts:
    r"""Prompts of given tasks int64 [B, K, M], one of each, with l = `contexts` examples.

    A share of the examples, alpha or alpha', rounded to a whole number, starts at the query's
    pattern, the others at other patterns, in random order. Steps of examples follow the transition
    matrices [B, K, M, M], None for right steps, and their vectors have noise :math:`\delta \perp
    \mathcal M'` of fixed length. The query has right steps and no noise. Patterns are [M, d],
    orthonormal where there is noise.

    Source: Li (2024), eqs. (7.10) to (7.12).
    """
    checks.check_numbers(share, noise, contexts=contexts)
    checks.check_task(task, len(patterns))
    if transitions is not None:
        checks.check_transitions(transitions, task)
    count, steps, known = task.shape
    dim = patterns.size(1)
    if noise and known == dim:
        raise ValueError(f"noise: got {noise}, expected 0, since {known} patterns span the space")
    if noise:
        checks.check_orthonormal(patterns)
    start = torch.randint(known, (count, 1), generator=generator)
    other = torch.randint(1, known, (count, contexts), generator=generator)
    same = torch.rand(count, contexts, generator=generator).argsort(1) < round(share * contexts)
    at = [torch.where(same, start, (start + other) % known)]
    for k in range(steps):
        if transitions is None:
            at.append(task[:, k].gather(1, at[-1]))
        else:
            at.append(_moved(transitions[:, k], at[-1], generator))
    pattern = torch.stack(at, 2)
    asked = trajectories(task).gather(2, start[:, None].expand(-1, steps + 1, 1))[..., 0]
    context = patterns[pattern]
    if noise:
        delta = torch.randn(context.shape, generator=generator).to(patterns.dtype)
        delta -= (delta @ patterns.t()) @ patterns
        context += noise * delta / delta.norm(dim=-1, keepdim=True)
    return ChainPrompts(context, pattern, patterns[asked], asked, patterns)


def _moved(matrix: Tensor, at: Tensor, generator: Generator) -> Tensor:
    """The next pattern of each example [B, l], drawn from its row of [B, M, M]."""
    reach = matrix.cumsum(2)[..., :-1]  # the last pattern takes the rest
    rows = reach.gather(1, at[..., None].expand(-1, -1, reach.size(2)))
    return (torch.rand(*at.shape, 1, generator=generator) >= rows).sum(2)


def step_positions(patterns: Tensor, steps: int, generator: Generator) -> Tensor:
    """Orthonormal c_1..c_K [K, 2 d], in the upper half of a column and orthogonal to all patterns.

    The lower half, which holds the values, is 0. Patterns [M, d] are orthonormal, K is at most d -
    M.

    Source: Li (2024), sections 7.2.2 and 7.3.2, which only ask for orthogonality.
    """
    checks.check_count(steps=steps)
    checks.check_orthonormal(patterns)
    count, dim = patterns.shape
    if steps > dim - count:
        raise ValueError(f"steps: got {steps}, expected at most d - M = {dim - count}")
    drawn = torch.randn(steps, dim, generator=generator).to(patterns.dtype)
    drawn -= drawn @ patterns.t() @ patterns
    rows = torch.linalg.qr(drawn.t())[0].t()
    return torch.cat([rows, torch.zeros_like(rows)], 1)


def shift_tasks(count: int, patterns: int, steps: int, generator: Generator) -> Tensor:
    r"""Tasks :math:`f_k(\mu_{p_i}) = \mu_{p_{(i+k) \bmod M}}`, each with its own permutation p.

    Returns: int64 [B, K, M], entry (k, i) the pattern that follows pattern i in step k.

    Source: Li (2024), section 7.5.
    """
    order = torch.rand(count, patterns, generator=generator).argsort(1)
    place = order.argsort(1)
    return torch.stack(
        [order.gather(1, (place + k) % patterns) for k in range(1, steps + 1)], 1
    )  # fmt: skip


@dataclass(frozen=True)
class ChainData:
    """The synthetic data of section 7.5.

    Source: Li (2024), section 7.5. Every prompt has a task of its own, in training, too; the source
        does not say how many permutations it draws.
    """

    dim: int = 30  # d_X
    num_patterns: int = 20  # M, patterns of training, at most d_X
    num_test_patterns: int = 10  # M', 2 to M: random orthonormal combinations
    steps: int = 3  # K
    share: float = 0.4  # alpha, of training
    contexts: int = 20  # l_tr (not in the source)
    noise: float = 0.2  # length of the noise of test examples

    def __post_init__(self) -> None:
        if not 2 <= self.num_test_patterns <= self.num_patterns <= self.dim:
            raise ValueError(
                f"num_patterns: got {self.num_patterns} with {self.num_test_patterns} of the test, "
                f"expected 2 <= M' <= M <= dim={self.dim}"
            )
        checks.check_numbers(self.share, self.noise, steps=self.steps, contexts=self.contexts)

    def patterns(self, generator: Generator) -> Tensor:
        """The training patterns mu_1..mu_M, [M, d]."""
        return orthonormal(self.num_patterns, self.dim, generator)

    def test_patterns(self, patterns: Tensor, generator: Generator) -> Tensor:
        """mu'_1..mu'_M' [M', d], in the span of the patterns, eq. (7.19)."""
        return orthonormal(self.num_test_patterns, self.num_patterns, generator) @ patterns

    def training(self, patterns: Tensor, count: int, generator: Generator) -> ChainPrompts:
        """Prompts without noise and errors."""
        task = shift_tasks(count, len(patterns), self.steps, generator)
        return draw_prompts(patterns, task, self.contexts, self.share, generator)

    def testing(
        self, patterns: Tensor, count: int, contexts: int, share: float,
        errors: TrajectoryErrors, generator: Generator,
    ) -> ChainPrompts:  # fmt: skip
        """Prompts of new tasks on test patterns mu' [M', d], with noise, errors, l_ts, alpha'."""
        task = shift_tasks(count, len(patterns), self.steps, generator)
        return draw_prompts(
            patterns, task, contexts, share, generator,
            transitions=errors(task), noise=self.noise,
        )  # fmt: skip
