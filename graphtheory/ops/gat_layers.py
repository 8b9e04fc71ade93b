"""Layers of GAT and GATv2 on a GPU as work: maps, scores of edges, softmax, sums over rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import linear

from graphtheory.ops import additive
from graphtheory.ops.call import Call
from graphtheory.ops.kernels import neighborhood_of
from graphtheory.ops.layers import Layer, _by_head, _flat, _of_matrix, _over_nodes
from graphtheory.ops.recorded import Needs, Tensors, made


class MappedGAT(Layer):
    """GAT, heads side by side; of x, W, a vector for sources and targets, bias, scores of edges."""

    def forward(self, tensors: Tensors) -> Tensors:
        (x, weight, att_src, att_dst, bias, edge, seed), options = tensors, self.options
        value = made(partial(_by_head, options[0]), made(linear, x, weight))
        scores = self.kernels.node_scores(value, att_src, att_dst)
        given = self.parts[:2], value, *scores, edge, *options[1:], seed, bias
        out, stats = self.kernels.additive_attention(*given[0], *given[1:])
        return made(_flat, out), value, *scores, stats, *(() if bias is not None else (out,))

    def backward(self, grads: Sequence[Tensor], kept: Tensors, read: Tensors, needs: Needs) -> Any:
        (value, src, dst, stats, *out), (x, weight, *atts, _, edge, seed) = kept, read
        up = made(partial(_by_head, self.options[0]), grads[0])
        of_value, of_src, of_dst, _ = self.kernels.additive_attention_backward(
            *self.parts, up, value, src, dst, edge, stats, *self.options[1:], seed,
            out=out[0] if out else up, atts=tuple(atts),
        )  # fmt: skip
        flat = made(_flat, of_value)
        of_x = made(torch.mm, flat, weight) if needs[0] else None
        of_weight = made(_of_matrix, flat, x) if needs[1] else None
        of_atts = [
            made(_of_vector, scores, value) if need else None
            for scores, need in ((of_src, needs[2]), (of_dst, needs[3]))
        ]
        of_bias = made(_over_nodes, grads[0]) if needs[4] else None
        return of_x, of_weight, *of_atts, of_bias, None, None

    def definition(
        self, x: Any, weight: Any, att_src: Any, att_dst: Any, bias: Any, edge: Any, seed: Any
    ) -> Tensor:
        heads, slope, dropout = self.options
        value, nb = _by_head(heads, linear(x, weight)), neighborhood_of(self.parts, len(x))
        scores = ((value * att).sum(-1) for att in (att_src, att_dst))
        call = Call("additive_attention", nb, (value, *scores, edge), (seed, slope, dropout))
        out = additive.run_attention(call, self.backend).flatten(1)
        return out if bias is None else out + bias


def _of_vector(scores: Tensor, value: Tensor) -> Tensor:
    """The sum of values [N, H, D] by their scores [N, H], [1, H, D]."""
    every = scores.t() @ value.flatten(1)  # [H, H * D], of which a head needs its own part
    return every.view(every.size(0), *value.shape[1:]).diagonal(dim1=0, dim2=1).t()[None]


class MappedGATv2(Layer):
    """GATv2, heads side by side, of nodes that are both sources and targets.

    Of x, matrices of sources and targets, their biases, the vector [1, H, C] of the scores, a bias,
    W_E, features of edges in the order of rows, and the edges whose score is -inf, bool [E, 1]. The
    map of targets is that of sources if there is no other, which with their bias is None.
    """

    def _terms(self, source: Any, matrix: Tensor | None, rows: Tensor | None) -> list[Tensor]:
        """Features of edges and their matrix [H, K, C]; K is 0 without features."""
        heads, dim = source.shape[1:]
        if matrix is None or rows is None:
            edges = self.parts[1].size(0)
            empty = partial(torch.empty, dtype=source.dtype, device=source.device)
            return [made(partial(empty, (edges, 0))), made(partial(empty, (heads, 0, dim)))]
        return [rows, made(lambda matrix: matrix.view(heads, dim, -1).transpose(1, 2), matrix)]

    def forward(self, tensors: Tensors) -> Tensors:
        x, *maps, att, bias, matrix, rows, barred, seed = tensors
        (heads, slope, dropout), ends = self.options, self.parts[:2]
        source, target = (
            None if w is None else made(partial(_mapped, heads), x, w, *(() if b is None else (b,)))
            for w, b in zip(maps[:2], maps[2:], strict=True)
        )
        terms = self._terms(source, matrix, rows)
        to = source if target is None else target
        scores = self.kernels.additive_score(*ends, source, to, made(_only, att), *terms, slope)
        if barred is not None:
            scores = made(_barred, scores, barred)
        out, stats = self.kernels.additive_attention(
            *ends, source, None, None, scores, 1.0, dropout, seed, bias
        )
        return made(_flat, out), source, target, scores, stats, None if bias is not None else out

    def backward(self, grads: Sequence[Tensor], kept: Tensors, read: Tensors, needs: Needs) -> Any:
        source, target, scores, stats, out = kept
        x, *maps, att, _, matrix, rows, _, seed = cast(Sequence[Any], read)
        heads, slope, dropout = self.options
        up = made(partial(_by_head, heads), grads[0])
        of_value, of_scores = self.kernels.scored_attention_backward(
            *self.parts, up, source, scores, stats, dropout, seed, out=up if out is None else out
        )
        of_source, of_target, of_att, _, of_edges = self.kernels.additive_score_backward(
            *self.parts, of_scores, source, source if target is None else target,
            made(_only, att), *self._terms(source, matrix, rows), slope, False,
        )  # fmt: skip
        sums = [of_value, of_source, *([of_target] if target is None else [])]
        flat = [made(_added, *sums), None if target is None else made(_flat, of_target)]
        of_x = None
        if needs[0]:
            of_x = made(
                _of_inputs, *(t for k in range(2) for t in (flat[k], maps[k]) if t is not None)
            )
        return (
            of_x,
            *(made(_of_matrix, flat[k], x) if needs[1 + k] else None for k in range(2)),
            *(made(_over_nodes, flat[k]) if needs[3 + k] else None for k in range(2)),
            made(partial(_first_axis, att.dtype), of_att) if needs[5] else None,
            made(_over_nodes, grads[0]) if needs[6] else None,
            made(_as_map, of_edges) if needs[7] else None,
            None, None, None,
        )  # fmt: skip

    def definition(self, *tensors: Any) -> Tensor:
        x, *maps, att, bias, matrix, rows, barred, seed = tensors
        (heads, slope, dropout), nb = self.options, neighborhood_of(self.parts, len(x))
        source = _mapped(heads, x, maps[0], maps[2])
        target = source if maps[1] is None else _mapped(heads, x, maps[1], maps[3])
        given = source, target, att[0], *self._terms(source, matrix, rows)
        scores = self.backend.run(Call("additive_score", nb, given, (slope,)))
        scores = scores if barred is None else _barred(scores, barred)
        zeros = scores.new_zeros(len(x), heads)
        call = Call("additive_attention", nb, (source, zeros, None, scores), (seed, 1.0, dropout))
        out = additive.run_attention(call, self.backend).flatten(1)
        return out if bias is None else out + bias


def _mapped(heads: int, x: Tensor, *one: Tensor) -> Tensor:
    return _by_head(heads, linear(x, *one))


def _only(att: Tensor) -> Tensor:
    return att.flatten(0, 1)


def _barred(scores: Tensor, barred: Tensor) -> Tensor:
    return scores.masked_fill(barred, -torch.inf)


def _added(first: Tensor, *others: Tensor) -> Tensor:
    return sum(others, first).flatten(1)


def _of_inputs(grad: Tensor, matrix: Tensor, *other: Tensor) -> Tensor:
    found = grad @ matrix
    return torch.addmm(found, *other) if other else found


def _first_axis(dtype: torch.dtype, of_att: Tensor) -> Tensor:
    return of_att.to(dtype)[None]


def _as_map(of_matrix: Tensor) -> Tensor:
    return of_matrix.transpose(1, 2).flatten(0, 1)
