"""k-nearest attention: the sources of a row with the largest attention scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.ops import reference
from graphtheory.patterns.scores import ScorePattern


@dataclass(frozen=True)
class TopK(ScorePattern):
    r"""k-nearest attention: of each row and head the k sources with the largest logits count.

    .. math:: |K_{i,h}| = \min(k, n_i) \quad\text{or}\quad \lceil k\, n_i \rceil

    n_i is the number of sources of row i, k a count or a share of them; a share above 0 leaves at
    least one. Give it to a layer, `nn.Attention(..., pattern=TopK(0.5))`, or call it in place of
    `ops.attention`. A count, or a share of rows of equal length as in cliques, runs as
    `ops.topk_attention`. A share of unequal rows, such as windows at the border of an image, is
    computed with a bias that has one value per edge and head.

    Args:
        k: A count (int from 1 up), or a share (float in (0, 1]); 1 is one source, 1.0 are all.

    Raises:
        TypeError: If k is not a number.
        ValueError: If k is a count below 1, or a share outside (0, 1].

    Source:
        Wang et al. (2022), k-NN attention, the fast version: chosen before the softmax, for each
        head. Differs: the default is half the row, not 100 of 197 tokens; a k above the length of
        the row is allowed; of equal logits the earlier ones are kept, so that exactly k remain.

    Example:
        >>> TopK(0.5).mask(torch.tensor([[3.0, 1.0, 2.0, 4.0]])).tolist()
        [[True, False, False, True]]
    """

    k: int | float = 0.5

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int | float):
            raise TypeError(f"k: got {self.k!r}, expected a count or a share of the row")
        if isinstance(self.k, int) and self.k < 1:
            raise ValueError(f"k: got {self.k}, expected 1 or more sources")
        if isinstance(self.k, float) and not 0 < self.k <= 1:
            raise ValueError(f"k: got {self.k}, expected a share in (0, 1]; counts are int")

    def count(self, length: int) -> int:
        """Number of sources kept in a row of `length` sources."""
        if isinstance(self.k, int):
            return min(self.k, length)
        return math.ceil(round(self.k * length, 9))  # 0.1 * 30 is a little more than 3

    def counts(self, lengths: Tensor) -> Tensor:
        """`count` of every entry, of the same shape and dtype."""
        if isinstance(self.k, int):
            return lengths.clamp(max=self.k)
        return (lengths.double() * self.k).round(decimals=9).ceil().to(lengths.dtype)

    def mask(self, logits: Tensor) -> Tensor:
        """The k largest of each row; of equal ones the earlier."""
        row = logits != -torch.inf
        rank = logits.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
        return row & (rank < self.counts(row.sum(-1))[..., None])

    def chosen(self, logits: Tensor, neighborhood: Neighborhood) -> Tensor:
        """The k largest of each row and head; of equal ones the earlier edge."""
        k: int | Tensor | None = self._common(neighborhood)
        if k is None:
            k = self.counts(neighborhood.degree())[neighborhood.targets()]
        return reference.largest(logits, neighborhood, k)

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, neighborhood: Neighborhood, **options: Any
    ) -> Tensor:
        """`ops.topk_attention` where one k fits every row."""
        k = self._common(neighborhood)
        if k is None:
            return super().__call__(query, key, value, neighborhood, **options)
        return ops.topk_attention(query, key, value, neighborhood, k, **options)

    def _common(self, nb: Neighborhood) -> int | None:
        """The k that fits every row, where one number does."""
        if isinstance(self.k, int):
            return self.k
        return None if nb.blocks is None else max(self.count(nb.blocks[2]), 1)
