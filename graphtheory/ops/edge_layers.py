"""Whole layers of a GPU whose edges have features: attention with a map of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from graphtheory.ops import fused
from graphtheory.ops.arguments import EdgeFeatures
from graphtheory.ops.call import AttentionCall
from graphtheory.ops.kernels import neighborhood_of
from graphtheory.ops.layers import MappedAttention
from graphtheory.ops.recorded import Needs, made


class MappedEdgeAttention(MappedAttention):
    r"""As `MappedAttention`; of x, features of edges, W_E, their order or None, then matrices.

    The rows f of the features enter as :math:`W_E^\top q` and :math:`W_E \sum_j a_{ij} f_{ij}`.
    """

    first = 4

    def _attended(self, parts: Sequence[Tensor], tensors: Sequence[Any]) -> tuple[Tensor, ...]:
        (_, edge, matrix, order, *_, seed), (_, *options) = tensors, self.options
        rows = edge if order is None else made(_in_order, edge, order)
        query = made(_to_features, parts[0], matrix)
        out, sums, weights = self.kernels.edge_attention(
            *self.parts[:2], *parts, rows, query, None, 0, None, None, None, *options, seed
        )
        return made(_add_mapped, out, sums, matrix), query, sums, weights

    def _gradients(
        self, up: Tensor, parts: Sequence[Tensor], into: Sequence[Tensor], kept: Sequence[Any],
        read: Sequence[Any], needs: Needs,
    ) -> tuple[Any, ...]:  # fmt: skip
        (query, sums, weights), (_, edge, matrix, order, *_, seed) = kept, read
        rows = edge if order is None else made(_in_order, edge, order)  # again: layers share edge
        of_sums = made(partial(_to_features, dtype=sums.dtype), up, matrix)
        _, _, _, of_query, of_edge, *_ = self.kernels.edge_attention_backward(
            *self.parts, up, of_sums, *parts, rows, query, None, 0, weights, None, 0, needs[1],
            *self.options[1:], seed, into=into,
        )  # fmt: skip
        made(_add_mapped, into[0], of_query, matrix)
        of_edge = made(partial(_like, dtype=rows.dtype), of_edge) if needs[1] else None
        if of_edge is not None and order is not None:
            of_edge = made(_back_in_order, of_edge, order)
        of_matrix = made(_of_matrix, parts[0], of_query, up, sums) if needs[2] else None
        return of_edge, of_matrix, None

    def definition(self, *tensors: Any) -> Tensor:
        (x, edge, matrix, order, *_, seed), (heads, *options) = tensors, self.options
        query, key, value, *added = (
            linear(x, *one).view(len(x), heads, -1)
            for one in zip(*self._maps(tensors), strict=True)
        )
        rows = edge if order is None else edge.index_select(0, order)
        mapped = matrix.view(heads, query.size(2), -1)
        given = EdgeFeatures(rows, torch.einsum("nhc,hcd->nhd", query, mapped))
        nb = neighborhood_of(self.parts, len(x))
        scale, dropout = options
        call = AttentionCall(query, key, value, nb, None, scale, dropout, seed, edges=(given,))
        out, (sums,) = fused.attention(call, self.backend)
        return sum(added, out + torch.einsum("nhd,hcd->nhc", sums, mapped)).flatten(1)


def _in_order(edge: Tensor, order: Tensor) -> Tensor:
    return edge.index_select(0, order)


def _back_in_order(rows: Tensor, order: Tensor) -> Tensor:
    return torch.empty_like(rows).index_copy_(0, order.long(), rows)


def _like(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype)


def _to_features(nodes: Tensor, matrix: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """W^T of nodes [N, H, C] by head, [N, H, features]."""
    (count, heads, dim), features = nodes.shape, matrix.size(1)
    found = nodes.new_empty(count, heads, features)
    by_head = matrix.view(heads, dim, features)
    torch.bmm(nodes.transpose(0, 1), by_head, out=found.transpose(0, 1))
    return found if dtype is None else found.to(dtype)


def _add_mapped(nodes: Tensor, sums: Tensor, matrix: Tensor) -> Tensor:
    """Nodes [N, H, C], to which W of sums [N, H, features] is added."""
    heads, dim = nodes.shape[1:]
    by_head = matrix.view(heads, dim, -1).transpose(1, 2)
    nodes.transpose(0, 1).baddbmm_(sums.to(nodes.dtype).transpose(0, 1), by_head)
    return nodes


def _of_matrix(query: Tensor, of_query: Tensor, up: Tensor, sums: Tensor) -> Tensor:
    """The gradient of W_E [H * C, features] by both of its uses."""
    of_query, sums = (t.to(query.dtype).transpose(0, 1) for t in (of_query, sums))
    first = torch.bmm(query.permute(1, 2, 0), of_query)
    return torch.baddbmm(first, up.permute(1, 2, 0), sums).flatten(0, 1)
