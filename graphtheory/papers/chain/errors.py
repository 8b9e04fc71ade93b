"""Steps of a reasoning task as transition matrices, what they imply, and wrong ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from scipy.optimize import brentq
from torch import Tensor

from graphtheory.lab.train.contract import check_each

_CLOSE = 1e-3  # of products of patterns and of sums of probabilities


check_count = partial(check_each, "at least 1", lambda value: value >= 1)
"""Raise ValueError unless every number is at least 1; keywords are the arguments' names."""
check_probability = partial(check_each, "above 0, at most 1", lambda value: 0 < value <= 1)
"""The same unless every value is above 0 and at most 1."""


def check_numbers(share: float, noise: float, **counts: int) -> None:
    """Raise ValueError unless these are a share, a finite length, and numbers of at least 1."""
    check_count(**counts)
    check_each("0 to 1", lambda value: 0 <= value <= 1, share=share)
    check_each("0 or more", lambda value: 0 <= value < math.inf, noise=noise)


def check_orthonormal(patterns: Tensor) -> None:
    """Raise ValueError unless the rows [M, d] are orthonormal."""
    if patterns.dim() != 2:
        raise ValueError(f"patterns: shape {tuple(patterns.shape)}, expected [M, d]")
    off = patterns @ patterns.t() - torch.eye(len(patterns)).to(patterns)
    if not float(off.abs().max()) < _CLOSE:
        raise ValueError(
            f"patterns: products up to {float(off.abs().max()):.3g} from those of orthonormal rows,"
            " expected 0"
        )


def check_step(step: Tensor, count: int, steps: int) -> None:
    """Raise ValueError unless every prompt has a step in 1..K."""
    if step.shape != (count,):
        raise ValueError(f"step: shape {tuple(step.shape)}, expected ({count},)")
    if not bool(((step >= 1) & (step <= steps)).all()):
        raise ValueError(
            f"step: from {int(step.min())} to {int(step.max())}, expected 1 to {steps}"
        )


def check_task(task: Tensor, patterns: int) -> None:
    """Raise ValueError unless tasks [B, K, M] are of M patterns, at least two."""
    if task.dim() != 3 or task.size(2) != patterns or patterns < 2:
        raise ValueError(
            f"task: shape {tuple(task.shape)} with {patterns} patterns, expected [B, K, M] with M "
            "patterns, at least 2"
        )


def check_transitions(transitions: Tensor, task: Tensor) -> None:
    """Raise ValueError unless every step has a matrix whose rows are probabilities."""
    wanted = (*task.shape, task.size(-1))
    if transitions.shape != wanted:
        raise ValueError(f"transitions: shape {tuple(transitions.shape)}, expected {wanted}")
    off = (transitions.sum(-1) - 1).abs()
    if not bool((transitions >= 0).all() & (off < _CLOSE).all()):
        raise ValueError(
            f"transitions: smallest entry {float(transitions.min()):.3g}, sums of rows up to "
            f"{float(off.max()):.3g} from 1, expected 0 or more, sum 1"
        )


def trajectories(task: Tensor) -> Tensor:
    r"""Where each start is after each step, :math:`f_k \circ \dots \circ f_1(\mu_i)`.

    Tasks int64 [..., K, M], entry (k, i) the pattern that follows pattern i in step k, give int64
    [..., K + 1, M], the first row 0..M-1.
    """
    at = [torch.arange(task.size(-1), device=task.device).expand_as(task[..., 0, :])]
    for step in task.unbind(-2):
        at.append(step.gather(-1, at[-1]))
    return torch.stack(at, -2)


def k_step_matrix(transitions: Tensor) -> Tensor:
    r""":math:`B^f = \prod_k A^f_k` [..., M, M], the probability of each end after K steps.

    Source: Li (2024), before eq. (7.13).
    """
    out, *rest = transitions.unbind(-3)
    for step in rest:
        out = out @ step
    return out


def primacy(transitions: Tensor, task: Tensor) -> Tensor:
    r"""The largest :math:`\rho^f` of eq. (7.12): how far the right step leads, [...].

    .. math:: \rho^f = 1 - \max_{k, i} \max_{j \ne j^*} A^f_{k(i,j)} / A^f_{k(i,j^*)}

    It is at most 0 where a wrong step is at least as probable. Matrices are [..., K, M, M].
    """
    right = transitions.gather(-1, task[..., None])
    wrong = transitions.scatter(-1, task[..., None], 0).amax(-1, keepdim=True)
    return 1 - (wrong / right).flatten(-3).amax(-1)


def output_primacy(matrix: Tensor) -> Tensor:
    r"""The largest :math:`\rho_o^f` of eq. (7.13), likewise of the most probable ends, [...]."""
    most, next_ = matrix.topk(2, dim=-1).values.unbind(-1)
    return (1 - next_ / most).amin(-1)


def trajectory_probability(transitions: Tensor, task: Tensor) -> Tensor:
    r""":math:`\tau^f` [...], the probability that all K steps are right, the least over the starts.

    Source: Li (2024), eq. (7.17).
    """
    right = transitions.gather(-1, task[..., None])[..., 0]
    return right.gather(-1, trajectories(task)[..., :-1, :]).prod(-2).amin(-1)


def output_probability(matrix: Tensor) -> Tensor:
    r""":math:`\tau_o^f` [...], the probability of the most probable end, the least over the starts.

    Source: Li (2024), eq. (7.18).
    """
    return matrix.amax(-1).amin(-1)


def right_end_leads(matrix: Tensor, task: Tensor) -> Tensor:
    r"""Condition 7.3.2 for each start, bool [..., M]: whether the right end is the most probable.

    .. math:: \mathrm{TSR}(f(\mu'_i)) = \arg\max_j B^f_{(i,j)}

    The condition holds for a task where it holds for all starts. Equal entries fail it.

    Source: Li (2024), eq. (7.21).
    """
    end = trajectories(task)[..., -1, :, None]
    return matrix.gather(-1, end)[..., 0] > matrix.scatter(-1, end, -1).amax(-1)


@dataclass(frozen=True)
class TrajectoryErrors:
    """Examples that move, in a wrong step, to the right trajectory of another start.

    With :math:`s_k(i)` the pattern of start i after k right steps, an example that is at
    :math:`s_{k-1}(i)` goes on to :math:`s_k(i)` with probability :math:`p_k`, to :math:`s_k(j)` of
    the rival j of i with probability :math:`q_k`, and to each other pattern with an equal part of
    the rest. "pairs": starts 2n and 2n + 1 are rivals, so that a second error can undo the first.
    "next": the rival of i is i + 1, cyclically, so that errors add up.

    Source:
        Our choice: the source gives tau^f and rho^f but no matrices. The choice matters: with
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
    def even(cls, tau: float, rho: float, steps: int, patterns: int) -> TrajectoryErrors:
        """For given tau^f and rho^f of K steps on M' patterns, with errors in pairs in all steps.

        Tau is the probability that all steps are right, rho the primacy of every step, M' is even.
        """
        check_count(steps=steps)
        check_probability(tau=tau)
        p = tau ** (1 / steps)
        _check_rho(p, rho, patterns)
        return cls((p,) * steps, ((1 - rho) * p,) * steps)

    @classmethod
    def first(cls, tau: float, rho: float, steps: int, patterns: int) -> TrajectoryErrors:
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
    ) -> TrajectoryErrors:  # fmt: skip
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
        by_start = self._by_start(patterns).to(task.device)  # [K, M, M]
        step = torch.arange(steps, device=task.device)[:, None, None]
        return by_start[step, start[..., :-1, :, None], start[..., 1:, None, :]]

    def _by_start(self, patterns: int) -> Tensor:
        """The matrices [K, M, M] between trajectories, which are numbered by their start."""
        eye = torch.eye(patterns)
        rival = torch.arange(patterns)
        rival = rival ^ 1 if self.onto == "pairs" else (rival + 1) % patterns
        out = []
        for p, q in zip(self.right, self.rival, strict=True):
            rest = max(1 - p - q, 0.0) / max(patterns - 2, 1)
            out.append(rest + (p - rest) * eye + (q - rest) * eye[rival])
        return torch.stack(out)


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
    r = max(1 - tau - q, 0.0) / (patterns - 2)
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
