"""Degree groups: assignment of nodes to groups, and parameters given per group."""

from __future__ import annotations

import hashlib
import math
from itertools import pairwise

import torch
from torch import Tensor


def check_boundaries(groups: int | tuple[float, ...]) -> None:
    """Raise unless this is a number of groups, or a tuple of increasing limits."""
    if isinstance(groups, tuple):
        if not groups or not all(a < b for a, b in pairwise((-math.inf, *groups))):
            raise ValueError(f"groups: got {groups}, expected increasing degrees, at least one")
    elif not isinstance(groups, int) or groups < 1:
        raise ValueError(
            f"groups: got {groups!r}, expected a whole number of groups, at least 1, or a tuple of "
            "the degrees at which the next one begins"
        )


def group_by_degree(degree: Tensor, groups: int | tuple[float, ...]) -> Tensor:
    """Group of each node, int64 [N], from 0 in the order of growing degree.

    Args:
        degree: int64 [N].
        groups: Number of groups, evenly spaced on a log scale, or the degrees at which the next
            group begins.

    Raises:
        TypeError: If the degrees are not int64 [N].
        ValueError: If there is no group, or if the limits do not increase.
    """
    if not isinstance(degree, Tensor) or degree.dtype != torch.int64 or degree.dim() != 1:
        kind, shape = getattr(degree, "dtype", type(degree).__name__), getattr(degree, "shape", ())
        raise TypeError(
            f"degree: got {kind} of shape {tuple(shape)}, expected int64 [N], the sources of each "
            "node"
        )
    check_boundaries(groups)
    if isinstance(groups, int):
        if groups == 1 or len(degree) == 0:
            return torch.zeros_like(degree)
        least, most = (max(int(end), 1) for end in (degree.min(), degree.max()))
        groups = tuple(least * (most / least) ** (k / groups) for k in range(1, groups))
    limits = torch.tensor(groups, dtype=torch.float64, device=degree.device)
    return torch.bucketize(degree.double(), limits, right=True)


def group_sizes(index: Tensor, groups: int | tuple[float, ...]) -> Tensor:
    """N_l, int64 [L].

    Raises:
        ValueError: If a group has no node.
    """
    expected = groups if isinstance(groups, int) else len(groups) + 1
    size = torch.bincount(index, minlength=expected)
    if bool((size == 0).any()):
        empty = int((size == 0).nonzero()[0])
        raise ValueError(
            f"groups: group {empty} of 0..{len(size) - 1} has no node, expected at least one; "
            f"sizes are {size.tolist()}"
        )
    return size


def each_group(
    name: str,
    value: float | tuple[float, ...],
    groups: int,
    *,
    least: float,
    most: float = math.inf,
    above: bool = False,
    whole: bool = False,
) -> Tensor:
    """One value per group, float64 [L], from one value for all groups or one per group.

    Raises:
        ValueError: If the number of values is wrong, or if one is out of range: `above` excludes
            `least` itself, `whole` all fractions.
    """
    values = value if isinstance(value, tuple) else (value,) * groups
    if len(values) != groups:
        raise ValueError(f"{name}: {len(values)} values, expected one for each of {groups} groups")
    for group, number in enumerate(values):
        low = number > least if above else number >= least
        broken = whole and not float(number).is_integer()
        if broken or not (low and number <= most and math.isfinite(number)):
            limits = f"{'above ' if above else ''}{least:g}" + (
                " or more" if most == math.inf and not above else f" to {most:g}"
            )
            limits = f"a whole number, {limits}" if whole else limits
            raise ValueError(f"{name}: got {number} for group {group}, expected {limits}")
    return torch.tensor(values, dtype=torch.float64)


def check_assignment(assignment: Tensor) -> None:
    """Raise unless this is one group per node."""
    if not isinstance(assignment, Tensor) or assignment.dtype != torch.int64:
        kind = getattr(assignment, "dtype", type(assignment).__name__)
        raise TypeError(f"assignment: got {kind}, expected an int64 tensor [N]")
    if assignment.dim() != 1 or (len(assignment) and int(assignment.min()) < 0):
        raise ValueError(
            f"assignment: shape {tuple(assignment.shape)}, expected one group of 0 or more per node"
        )


def digest(assignment: Tensor) -> str:
    """A hash of the assignment, hexadecimal."""
    return hashlib.sha256(assignment.cpu().contiguous().numpy().tobytes()).hexdigest()[:16]
