"""Wrong steps in the examples of a reasoning task, as transition matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from scipy.optimize import brentq
from torch import Tensor

from graphtheory.papers.chain.checks import check_count, check_probability
from graphtheory.papers.chain.transitions import trajectories


@dataclass(frozen=True)
class TrajectoryErrors:
    r"""Examples that jump, at a wrong step, onto the right trajectory of another start.

    With :math:`s_k(i)` the place of start i after k right steps, an example that is at
    :math:`s_{k-1}(i)` goes on to :math:`s_k(i)` with probability :math:`p_k`, to :math:`s_k(j)` of
    the rival j of i with :math:`q_k`, and to each other with as much of the rest. "pairs": starts
    2n and 2n + 1 are rivals, so a second jump can mend the first. "next": the rival of i is i + 1,
    after the last the first, so jumps add up.

    Args:
        right: p_1..p_K.
        rival: q_1..q_K.
        onto: "pairs" or "next".

    Raises:
        ValueError: Probabilities out of range or not as many.

    Source:
        Not in the source, which gives tau^f and rho^f but no matrices. They decide much: with
        "pairs" condition 7.3.2 always holds, with "next" it may fail at the same tau_o and rho_o.

    Example:
        >>> from graphtheory.papers.chain.transitions import primacy, trajectory_probability
        >>> errors = TrajectoryErrors.even(tau=0.5, rho=0.8, steps=3, patterns=10)
        >>> task = torch.stack([torch.arange(10).roll(k) for k in (1, 2, 3)])
        >>> a = errors(task)
        >>> [round(f(a, task).item(), 2) for f in (trajectory_probability, primacy)]
        [0.5, 0.8]
    """

    right: tuple[float, ...]
    rival: tuple[float, ...]
    onto: Literal["pairs", "next"] = "pairs"

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
        """Given tau^f and rho^f, with the errors spread evenly over all steps, onto pairs.

        Args:
            tau: Probability that all steps are right.
            rho: Primacy of every step.
            steps: K.
            patterns: M', even.

        Raises:
            ValueError: A rho that cannot go with tau, the message gives the range; a tau that is
                no probability above 0; not a step.
        """
        check_count(steps=steps)
        check_probability("tau", tau)
        p = tau ** (1 / steps)
        _check_rho(p, rho, patterns)
        return cls((p,) * steps, ((1 - rho) * p,) * steps)

    @classmethod
    def first(cls, tau: float, rho: float, steps: int, patterns: int) -> TrajectoryErrors:
        """The same with all errors in the first step, which leaves rho^f more room.

        Then B^f is A_1^f but for the names of the ends: tau_o^f = tau^f and rho_o^f = rho^f.
        """
        check_count(steps=steps)
        check_probability("tau", tau)
        _check_rho(tau, rho, patterns)
        rest = steps - 1
        return cls((tau, *(1.0,) * rest), ((1 - rho) * tau, *(0.0,) * rest))

    @classmethod
    def of_output(
        cls, tau_o: float, rho_o: float, steps: int, patterns: int, *,
        holds: bool = True, wrong: int | None = None,
    ) -> TrajectoryErrors:  # fmt: skip
        """Given tau_o^f and rho_o^f.

        Args:
            tau_o: Probability of the most probable end.
            rho_o: Its primacy over the next one.
            steps: K.
            patterns: M', even.
            holds: Whether condition 7.3.2 does; where not, two steps have errors, onto the next.
            wrong: Steps with errors, the first ones; default all, or 2 where `holds` is False.

        Raises:
            ValueError: Numbers that no such matrices have.
        """
        check_count(steps=steps)
        check_probability("tau_o", tau_o)
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
        """Step-wise transition matrices, float32 [..., K, M, M], of tasks int64 [..., K, M].

        Raises:
            ValueError: Another number of steps, pairs of an odd number of patterns, or steps that
                make one pattern of two.
        """
        *_, steps, patterns = task.shape
        if steps != len(self.right):
            raise ValueError(f"task: {steps} steps, expected {len(self.right)}")
        if self.onto == "pairs" and patterns % 2:
            raise ValueError(f"task: {patterns} patterns, expected an even number, for pairs")
        place = trajectories(task)
        start = place.argsort(-1)  # whose trajectory it is, [..., K + 1, M]
        if not torch.equal(place.gather(-1, start), place[..., :1, :].expand_as(place)):
            raise ValueError("task: a step makes one pattern of two, expected permutations")
        by_start = self._by_start(patterns).to(task.device)  # [K, M, M]
        step = torch.arange(steps, device=task.device)[:, None, None]
        return by_start[step, start[..., :-1, :, None], start[..., 1:, None, :]]

    def _by_start(self, patterns: int) -> Tensor:
        """The matrices in terms of whose trajectory it is."""
        eye = torch.eye(patterns)
        rival = torch.arange(patterns)
        rival = rival ^ 1 if self.onto == "pairs" else (rival + 1) % patterns
        out = []
        for p, q in zip(self.right, self.rival, strict=True):
            rest = max(1 - p - q, 0.0) / max(patterns - 2, 1)
            out.append(rest + (p - rest) * eye + (q - rest) * eye[rival])
        return torch.stack(out)


def _check_rho(p: float, rho: float, patterns: int) -> None:
    """Raise unless the next one has at least an even part of the rest, and no more than all."""
    if patterns < 2:
        raise ValueError(f"patterns: got {patterns}, expected at least 2")
    low, high = 2 - 1 / p, 1 - (1 - p) / ((patterns - 1) * p)
    if not (0 < p <= 1 and max(low, 0) - 1e-9 <= rho <= high + 1e-9):
        raise ValueError(
            f"rho: got {rho}, expected {max(low, 0):.3f} to {high:.3f} where the right one has "
            f"probability {p:.3f} among {patterns}"
        )


def _root_of_pairs(tau: float, rho: float, count: int, patterns: int) -> tuple[float, float]:
    """P and q of a matrix onto pairs whose power `count` has tau and (1 - rho) tau.

    Such matrices have the eigenvalues 1, p + q - 2 r, p - q, where r is each other's part.
    """
    q = (1 - rho) * tau
    r = max(1 - tau - q, 0.0) / (patterns - 2)
    total, gap = (tau + q - 2 * r) ** (1 / count), (tau - q) ** (1 / count)
    total += 2 * (1 - total) / patterns
    return (total + gap) / 2, (total - gap) / 2


def _two_steps_to_the_next(tau: float, rho: float, patterns: int) -> tuple[float, float]:
    """P and q whose square has tau on the next start, and (1 - rho) tau on the right one.

    With P = p - r, Q = q - r and S = P + Q the square has 2 r - M r^2 everywhere, and besides
    P^2, 2 P Q and Q^2 on the start itself, on the next and on the one after.
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
