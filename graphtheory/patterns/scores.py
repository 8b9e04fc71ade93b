"""Patterns that depend on the attention scores: which sources of a row count, head by head."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.ops import BucketedBias, reference


def attention_logits(
    query: Tensor,
    key: Tensor,
    neighborhood: Neighborhood,
    bias: Tensor | BucketedBias | None = None,
    scale: float | None = None,
) -> Tensor:
    """The argument of the softmax in `ops.attention`, [num_edges, heads]; arguments as there."""
    scale = max(query.size(2), 1) ** -0.5 if scale is None else scale
    logits = scale * ops.edge_dot(query, key, neighborhood)
    return logits if bias is None else logits + reference.edge_bias(bias)


class ScorePattern(ABC):
    """A rule for which sources of a row count, given the attention scores, head by head.

    A `Pattern` knows the graph alone and gives a neighborhood; a score pattern chooses again in
    every layer, head and step, so it takes the place of `ops.attention` instead:
    `nn.Attention(..., pattern=TopK(0.5))`. Subclasses are frozen dataclasses that define `mask` and
    `chosen`; they may replace the call by a faster one.
    """

    @abstractmethod
    def mask(self, logits: Tensor) -> Tensor:
        """The rule's definition on dense logits [..., dst, src], slow; tests compare with it.

        Returns:
            Bool of that shape: who counts. An entry at -inf is not part of its row.
        """

    @abstractmethod
    def chosen(self, logits: Tensor, neighborhood: Neighborhood) -> Tensor | None:
        """The same for logits [num_edges, heads], Bool of that shape; None where all count."""

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        neighborhood: Neighborhood,
        *,
        bias: Tensor | BucketedBias | None = None,
        scale: float | None = None,
        **options: Any,
    ) -> Tensor:
        """Attention to the chosen sources, [num_dst, heads, head_dim]; as `ops.attention`.

        `options` are its `dropout`, `generator` and `backend`.
        """
        logits = attention_logits(query, key, neighborhood, bias, scale).detach()
        stays = self.chosen(logits, neighborhood)
        if stays is not None:
            values = torch.zeros_like(logits) if bias is None else reference.edge_bias(bias)
            bias = torch.where(stays, values, -torch.inf)
        return ops.attention(query, key, value, neighborhood, bias=bias, scale=scale, **options)

    def weights(
        self,
        query: Tensor,
        key: Tensor,
        neighborhood: Neighborhood,
        bias: Tensor | BucketedBias | None = None,
        scale: float | None = None,
    ) -> Tensor:
        """The weights [num_edges, heads] of the call, without dropout; 0 for who is left out."""
        logits = attention_logits(query, key, neighborhood, bias, scale)
        stays = self.chosen(logits.detach(), neighborhood)
        if stays is not None:
            logits = torch.where(stays, logits, -torch.inf)
        return ops.edge_softmax(logits, neighborhood)


@dataclass(frozen=True)
class AllSources(ScorePattern):
    """Every source of the row counts: `ops.attention` itself."""

    def mask(self, logits: Tensor) -> Tensor:
        return logits != -torch.inf

    def chosen(self, logits: Tensor, neighborhood: Neighborhood) -> Tensor | None:
        return None

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, neighborhood: Neighborhood, **options: Any
    ) -> Tensor:
        return ops.attention(query, key, value, neighborhood, **options)


def largest_first(scores: Tensor, many: int) -> Tensor:
    """Places of the largest along the last axis, of equal ones the earlier first."""
    if torch.onnx.is_in_onnx_export():  # which has no stable sort; its TopK breaks ties like this
        return scores.topk(many, dim=-1).indices
    return scores.argsort(dim=-1, descending=True, stable=True)[..., :many]


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
        count = math.ceil(round(self.k * length, 9))  # 0.1 * 30 is a little more than 3
        return min(max(count, 1), length)

    def counts(self, lengths: Tensor) -> Tensor:
        """`count` of every entry, of the same shape and dtype."""
        if isinstance(self.k, int):
            return lengths.clamp(max=self.k)
        count = (lengths.double() * self.k).round(decimals=9).ceil().clamp(min=1)
        return count.to(lengths.dtype).minimum(lengths)

    def mask(self, logits: Tensor) -> Tensor:
        row = logits != -torch.inf
        rank = largest_first(logits, logits.size(-1)).argsort(dim=-1)
        return row & (rank < self.counts(row.sum(-1))[..., None])

    def chosen(self, logits: Tensor, neighborhood: Neighborhood) -> Tensor:
        k: int | Tensor | None = self._common(neighborhood)
        if k is None:
            k = self.counts(neighborhood.degree())[neighborhood.targets()]
        return reference.largest(logits, neighborhood, k)

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, neighborhood: Neighborhood, **options: Any
    ) -> Tensor:
        k = self._common(neighborhood)
        if k is None:
            return super().__call__(query, key, value, neighborhood, **options)
        return ops.topk_attention(query, key, value, neighborhood, k, **options)

    def _common(self, nb: Neighborhood) -> int | None:
        """The k that fits every row, where one number does."""
        if isinstance(self.k, int):
            return self.k
        return None if nb.blocks is None else max(self.count(nb.blocks[2]), 1)
