"""Attention on linear maps of x, which are made where they are read and freed after it.

The conventions are those of `calls`. Of [N, H, C] a forward pass has two at a time and its
output, a backward pass two beside the gradient that it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from graphtheory.ops.backends.cpu.attention.calls import EdgeRows
from graphtheory.ops.backends.cpu.memory import empty
from graphtheory.ops.backends.cpu.primitives import dot, sums

Pair = tuple[Tensor, Tensor | None]  # W and b


class Map(NamedTuple):
    """W x + b by head, and what it adds to gradients."""

    weight: Tensor  # [H * C, channels]
    bias: Tensor | None
    heads: int

    def __call__(self, x: Tensor) -> Tensor:
        """The results of the maps, [N, H, C]."""
        out, weight = empty((len(x), len(self.weight)), x), self.weight.t()
        if self.bias is None:
            torch.mm(x, weight, out=out)
        else:
            torch.addmm(self.bias, x, weight, out=out)
        return out.unflatten(1, (self.heads, -1))

    def backward(self, grad: Tensor, x: Tensor, of_x: Tensor | None) -> tuple[Tensor, Tensor]:
        """Gradients of W and b of that of the results; that of x is added to `of_x`."""
        grad = grad.flatten(1)
        if of_x is not None:
            of_x.addmm_(grad, self.weight)
        return grad.t() @ x, grad.sum(0)


def edge_queries(query: Map, matrix: Tensor) -> Map:
    """Queries for the features of edges, M q_h for the matrix M [H, D, C] of each head."""
    weight = query.weight.unflatten(0, matrix.shape[::2])
    bias = None if query.bias is None else query.bias.view(*matrix.shape[::2], 1)
    bias = None if bias is None else (matrix @ bias).flatten()
    return Map((matrix @ weight).flatten(0, 1), bias, query.heads)


def projected_attention(
    indptr: Tensor, indices: Tensor, order: Tensor, x_src: Tensor, x_dst: Tensor,
    maps: Sequence[Pair], matrix: Tensor, features: Tensor, bias: Tensor | None,
    bucket: Tensor | None, table: Tensor | None, scale: float, dropout: float, seed: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Output [N, H, C], weights [E, H] before dropout, and sums [N, H, D] of the features."""
    query, key, value = (Map(*one, len(matrix)) for one in maps)
    edges = EdgeRows.of(features, None, x_src, order)
    weights = dot(indptr, indices, query(x_dst), key(x_src))  # so far the logits
    found = edges.attend(
        indptr, weights, edge_queries(query, matrix)(x_dst), matrix.size(1), scale, bias, bucket,
        table, dropout, seed,
    )  # fmt: skip
    out = sums(indptr, indices, weights, value(x_src), dropout=dropout, seed=seed)
    by = out.transpose(0, 1)
    torch.baddbmm(by, found.transpose(0, 1), matrix, out=by)
    return out, weights, found


def projected_attention_backward(
    parts: Sequence[Tensor], order: Tensor, grad: Tensor, x_src: Tensor, x_dst: Tensor,
    maps: Sequence[Pair], matrix: Tensor, features: Tensor, weights: Tensor, found: Tensor,
    bucket: Tensor | None, num_buckets: int, of_inputs: tuple[bool, bool, bool], scale: float,
    dropout: float, seed: int,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of x_src, x_dst and features if asked for, of W, b, matrix, logits and table."""
    indptr, indices, t_indptr, targets, perm = parts
    query, key, value = (Map(*one, len(matrix)) for one in maps)
    edges, grad = EdgeRows.of(features, None, x_src, order), grad.contiguous()
    of_src, of_dst = (torch.zeros_like(x) if asks else None
                      for x, asks in zip((x_src, x_dst), of_inputs[:2], strict=True))  # fmt: skip
    of_matrix = torch.bmm(found.permute(1, 2, 0), grad.transpose(0, 1))
    logits = dot(indptr, indices, grad, value(x_src))  # so far the gradient of the weights
    grad_sums = grad.new_empty(*grad.shape[:2], matrix.size(1))
    torch.bmm(grad.transpose(0, 1), matrix.transpose(1, 2), out=grad_sums.transpose(0, 1))
    of_table, by_feature = edges.attend_backward(
        indptr, weights, logits, grad_sums, matrix.size(1), scale, bucket, num_buckets, dropout,
        seed,
    )  # fmt: skip
    of_features, ask = None, edge_queries(query, matrix)
    if of_inputs[2]:
        of_features = edges.feature_grad(
            indptr, logits, ask(x_dst), scale, weights, grad_sums, dropout, seed
        )
    more, more_bias = (
        g.unflatten(0, (query.heads, -1)) for g in ask.backward(by_feature, x_dst, of_dst)
    )
    del grad_sums, by_feature
    of_value = value.backward(
        sums(t_indptr, targets, weights, grad, perm, 1.0, dropout, seed), x_src, of_src
    )
    of_key = key.backward(sums(t_indptr, targets, logits, query(x_dst), perm, scale), x_src, of_src)
    of_weight, of_bias = query.backward(
        sums(indptr, indices, logits, key(x_src), scale=scale), x_dst, of_dst
    )
    of_weight += (matrix.transpose(1, 2) @ more).flatten(0, 1)
    of_matrix += more @ query.weight.unflatten(0, matrix.shape[::2]).transpose(1, 2)
    if query.bias is not None:
        of_bias += (matrix.transpose(1, 2) @ more_bias[..., None]).flatten()
        of_matrix += more_bias[..., None] * query.bias.view(query.heads, 1, -1)
    maps_grads = (of_weight, of_bias, *of_key, *of_value)
    return of_src, of_dst, *maps_grads, of_matrix, of_features, logits, of_table
