"""Wrong steps in the examples of a reasoning task, for given probabilities of right ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from scipy.optimize import brentq
from torch import Tensor

from graphtheory.papers.chain.steps import check_count, check_probability, trajectories


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
