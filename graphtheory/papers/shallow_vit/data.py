"""Sets of tokens where a majority of two patterns decides the label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from graphtheory.papers.orthonormal import orthonormal


class TokenSets(NamedTuple):
    """N sets of L tokens."""

    x: Tensor  # tokens [N, L, d]
    y: Tensor  # labels +1 or -1 [N], evenly many
    pattern: Tensor  # 0 for mu_1, 1 for mu_2, higher otherwise [N, L]
    relevant: Tensor  # which tokens have the label's pattern, bool [N, L]


@dataclass(frozen=True)
class TokenPatterns:
    """Tokens that are noisy patterns, in random order.

    x_l ~ N(mu_j, c_0^2 I) with orthonormal mu_1..mu_M. Of label +1 a share alpha_star of the tokens
    has mu_1 and a share alpha_confusion mu_2, of label -1 the other way round; the others spread
    evenly over mu_3..mu_M. Shares are the same in every set, rounded to whole tokens.

    Raises:
        ValueError: If a parameter is out of its range, or the shares leave no majority.

    Source:
        Li (2024), sections 2.3.2 and 2.4.1. `noisy` is not in the source, whose figure 2.5 removes
        tokens of significant noise and does not say how many there are.

    Example:
        >>> sets = TokenPatterns(10, 0.5, 0.1).sample(4, torch.eye(10)[:5], Generator())
        >>> sets.relevant.sum(1).tolist(), sets.y.tolist()
        ([5, 5, 5, 5], [1.0, -1.0, 1.0, -1.0])
    """

    tokens: int = 50  # L
    alpha_star: float = 0.3  # share of label-relevant tokens, larger than alpha_confusion
    alpha_confusion: float = 0.05  # share of confusion tokens
    num_patterns: int = 5  # M
    dim: int = 10  # d, at least M
    c_0: float = 0.01  # standard deviation of the noise
    # share of tokens, of any pattern, whose noise has deviation `c_noisy` instead
    noisy: float = 0.0
    c_noisy: float = 0.0  # see there

    def __post_init__(self) -> None:
        self._require("tokens", self.tokens >= 1, "at least 1")
        for name in ("alpha_star", "alpha_confusion", "noisy"):
            self._require(name, 0 <= getattr(self, name) <= 1, "between 0 and 1")
        for name in ("c_0", "c_noisy"):
            self._require(name, getattr(self, name) >= 0, "at least 0")
        self._require("num_patterns", self.num_patterns >= 3, "at least 3")
        self._require("dim", self.dim >= self.num_patterns, f"at least M = {self.num_patterns}")
        star, confusion, _ = self.counts
        fits = confusion < star <= self.tokens - confusion
        self._require(
            "alpha_star",
            fits,
            f"more than {confusion} and at most {self.tokens - confusion} tokens",
        )

    def _require(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ValueError(f"{name}: got {getattr(self, name)!r}, expected {expected}")

    @property
    def counts(self) -> tuple[int, int, int]:
        """Label-relevant, confusion and other tokens."""
        star, confusion = (
            round(share * self.tokens) for share in (self.alpha_star, self.alpha_confusion)
        )
        return star, confusion, self.tokens - star - confusion

    def patterns(self, generator: Generator) -> Tensor:
        """Orthonormal mu, [M, d]."""
        return orthonormal(self.num_patterns, self.dim, generator)

    def sample(self, count: int, mu: Tensor, generator: Generator) -> TokenSets:
        """Draw `count` sets with the patterns [M, d]; labels alternate, +1 first."""
        star, confusion, others = self.counts
        spread = 2 + torch.arange(others) % (self.num_patterns - 2)
        sizes = torch.tensor([star, confusion])
        kinds = torch.stack(
            [torch.cat([torch.tensor(own).repeat_interleave(sizes), spread])
             for own in ((0, 1), (1, 0))]
        )  # fmt: skip
        own = torch.arange(count) % 2
        shape = (count, self.tokens)
        order = torch.rand(shape, generator=generator).argsort(1)
        pattern = kinds[own].gather(1, order)
        rank = torch.rand(shape, generator=generator).argsort(1)
        loud = rank < round(self.noisy * self.tokens)
        size = torch.where(loud, self.c_noisy, self.c_0)
        noise = torch.randn(*shape, self.dim, generator=generator)
        x = mu[pattern] + size[..., None] * noise
        return TokenSets(x, 1.0 - 2.0 * own, pattern, pattern == own[:, None])
