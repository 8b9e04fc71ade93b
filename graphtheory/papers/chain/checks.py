"""Checks of the arguments of chapter 7: numbers, patterns, tasks, transition matrices."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_CLOSE = 1e-3  # of products of patterns and of sums of probabilities


def check_count(**counts: int) -> None:
    """Raise ValueError unless every number is at least 1; keywords are the arguments' names."""
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name}: got {value}, expected at least 1")


def check_numbers(share: float, noise: float, **counts: int) -> None:
    """Raise ValueError unless these are a share, a finite length, and numbers of at least 1."""
    check_count(**counts)
    if not 0 <= share <= 1:
        raise ValueError(f"share: got {share}, expected 0 to 1")
    if not 0 <= noise < math.inf:
        raise ValueError(f"noise: got {noise}, expected 0 or more")


def check_probability(name: str, value: float) -> None:
    """Raise ValueError unless the value is above 0 and at most 1."""
    if not 0 < value <= 1:
        raise ValueError(f"{name}: got {value}, expected above 0, at most 1")


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
