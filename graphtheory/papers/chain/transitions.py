"""Probabilities of ends and of errors from the transition matrices of a reasoning task."""

from __future__ import annotations

import torch
from torch import Tensor


def trajectories(task: Tensor) -> Tensor:
    r"""Where each start is after each step, :math:`f_k \circ \dots \circ f_1(\mu_i)`.

    Tasks int64 [..., K, M], entry (k, i) the pattern that follows pattern i in step k, give int64
    [..., K + 1, M], the first row 0..M-1.

    Example:
        >>> trajectories(torch.tensor([[1, 2, 0], [2, 1, 0]])).tolist()
        [[0, 1, 2], [1, 2, 0], [1, 0, 2]]
    """
    at = [torch.arange(task.size(-1), device=task.device).expand_as(task[..., 0, :])]
    for step in task.unbind(-2):
        at.append(step.gather(-1, at[-1]))
    return torch.stack(at, -2)


def k_step_matrix(transitions: Tensor) -> Tensor:
    r""":math:`B^f = \prod_k A^f_k` [..., M, M], the probability of each end after K steps.

    Source: Li (2024), before eq. (7.13).

    Example:
        >>> a = torch.tensor([[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.8, 0.2]]])
        >>> print(k_step_matrix(a))
        tensor([[0.5600, 0.4400],
                [0.6400, 0.3600]])
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
