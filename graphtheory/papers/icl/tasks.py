"""Binary tasks that two patterns decide, and which of them cover all the others."""

from __future__ import annotations

import torch
from torch import Tensor


def all_tasks(patterns: int) -> Tensor:
    """Every ordered pair of M1 different patterns, the first mapped to +1, int64 [M1 (M1 - 1), 2].

    Source: Li (2024), definition 6.3.1.
    """
    pairs = torch.cartesian_prod(torch.arange(patterns), torch.arange(patterns))
    return pairs[pairs[:, 0] != pairs[:, 1]]


def training_tasks(patterns: int, blocks: int = 1) -> Tensor:
    """M1 tasks per block that satisfy condition 6.3.2: block k maps mu_j to +1, mu_(j+k) to -1.

    With M1 - 1 blocks these are all tasks; int64 [blocks * M1, 2].

    Raises:
        ValueError: If there are too many blocks, or none.

    Source: Li (2024), section 6.5.

    Example:
        >>> training_tasks(3).tolist()
        [[0, 1], [1, 2], [2, 0]]
    """
    if not 1 <= blocks < patterns:
        raise ValueError(f"blocks: got {blocks}, expected 1 to {patterns - 1}")
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

    Example:
        >>> uncovered(training_tasks(4), 4)
        []
        >>> uncovered(torch.tensor([[0, 1], [1, 2]]), 3)
        ['2 tasks, expected a multiple of M1 = 3', 'no task maps mu_1 to -1',
         'no task maps mu_3 to +1']
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
