"""Patterns that depend on the attention scores: which sources of a row count, head by head."""

from __future__ import annotations

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
        """Every entry of the row."""
        return logits != -torch.inf

    def chosen(self, logits: Tensor, neighborhood: Neighborhood) -> Tensor | None:
        """All."""
        return None

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, neighborhood: Neighborhood, **options: Any
    ) -> Tensor:
        """`ops.attention`."""
        return ops.attention(query, key, value, neighborhood, **options)
