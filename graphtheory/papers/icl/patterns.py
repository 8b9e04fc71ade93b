"""Patterns of in-context prompts, in and out of the domain of training."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from graphtheory.papers.orthonormal import orthonormal


@dataclass(frozen=True, eq=False)
class Patterns:
    r"""Relevant and irrelevant patterns, and how much of the latter is in an input.

    .. math:: x = \mu_j + \kappa \nu_k, \quad \kappa \sim U(-K, K)

    Raises:
        ValueError: If relevant patterns are fewer than two, dimensions differ or K is negative.

    Source: Li (2024), eqs. (6.6) and (6.8), where "U(K', K')" is printed for U(-K', K').

    Example:
        >>> inside = Patterns.orthogonal(4, 6, dim=10, generator=Generator().manual_seed(0))
        >>> inside.relevant.norm(dim=1).round().tolist()
        [3.0, 3.0, 3.0, 3.0]
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
        if not 0 <= self.spread < math.inf:
            raise ValueError(f"spread: got {self.spread}, expected 0 or more")

    @classmethod
    def orthogonal(
        cls,
        relevant: int = 6,
        irrelevant: int = 24,
        *,
        dim: int = 30,
        norm: float = 3.0,
        spread: float = 0.5,
        generator: Generator,
    ) -> Patterns:
        """Random orthogonal patterns of equal norm: M1, M2, d_x, beta and K, in this order.

        Raises:
            ValueError: If patterns exceed the dimensions or a number is out of its range.
        """
        if irrelevant < 0:
            raise ValueError(f"irrelevant: got {irrelevant}, expected 0 or more")
        if not 0 < norm < math.inf:
            raise ValueError(f"norm: got {norm}, expected above 0")
        count = relevant + irrelevant
        if count > dim:
            raise ValueError(f"dim: got {dim}, expected at least M1 + M2 = {count}")
        mu, nu = (orthonormal(count, dim, generator) * norm).split((relevant, irrelevant))
        return cls(mu, nu, spread)

    def combined(self, coefficients: Tensor, spread: float = 5.0) -> Patterns:
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

    Raises:
        ValueError: If no a and b of that norm have this sum.
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

    Example:
        >>> unmet_conditions(section_6_5(1.0)), unmet_conditions(section_6_5(0.5))
        ([], ['S_1 = 0.5, expected at least 1'])
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
