"""Steps of a reasoning task as transition matrices, and what they imply."""

import math
from functools import partial, reduce

import torch
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
    return reduce(torch.matmul, transitions.unbind(-3))


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
