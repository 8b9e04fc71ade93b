"""The definition of every operation in plain torch: slow, any dtype, the oracle of all backends.

Rows are taken by `index_select`: threads decide the order in which the gradient of `x[rows]` is
summed.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, relu

from graphtheory.graph import Neighborhood
from graphtheory.ops.arguments import BucketedBias
from graphtheory.ops.call import AttentionCall
from graphtheory.ops.dropout import dropout_factor


def edge_dot(query: Tensor, key: Tensor, nb: Neighborhood) -> Tensor:
    """s[e, h] = <query[i, h], key[j, h]> for the edge e from j to i."""
    targets, sources = query.index_select(0, nb.targets()), key.index_select(0, nb.indices)
    return (targets * sources).sum(-1)  # [E, H]


def edge_softmax(logits: Tensor, nb: Neighborhood) -> Tensor:
    """w[e, h] = exp(s[e, h]) / sum over the row of exp(s); -inf everywhere in a row gives zeros."""
    rows = nb.targets()
    index = rows[:, None].expand_as(logits)
    top = logits.new_full((nb.num_dst, logits.size(1)), -torch.inf)
    top = top.scatter_reduce(0, index, logits.detach(), "amax")
    top = torch.where(top == -torch.inf, 0, top)
    weight = (logits - top[rows]).exp()  # [E, H]
    total = logits.new_zeros(nb.num_dst, logits.size(1)).index_add(0, rows, weight)
    return weight / torch.where(total == 0, 1, total).index_select(0, rows)


def aggregate(weights: Tensor, value: Tensor, nb: Neighborhood, reduce: str = "sum") -> Tensor:
    """out[i, h] = sum, mean, max or min over edges e from j to i of weights[e, h] * value[j, h]."""
    messages = weights[..., None] * value.index_select(0, nb.indices)  # [E, H, D]
    out, rows = messages.new_zeros(nb.num_dst, *messages.shape[1:]), nb.targets()
    degree = nb.degree()[:, None, None]
    if reduce in ("max", "min"):  # from infinity, since torch lets the initial value share
        out = out + (-torch.inf if reduce == "max" else torch.inf)
        out = out.scatter_reduce(0, rows[:, None, None].expand_as(messages), messages, f"a{reduce}")
        return torch.where(degree == 0, 0, out).to(value.dtype)
    out = out.index_add(0, rows, messages)
    return (out if reduce == "sum" else out / degree.clamp(min=1)).to(value.dtype)


def relu_sum(
    value: Tensor, features: Tensor, nb: Neighborhood, given_order: bool = False,
    matrix: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """out[i, h] = sum over edges e from j to i of relu(value[j, h] + features[e, h]).

    With a matrix features[e, h] stands for features[e] @ matrix[h].
    """
    if matrix is not None:
        features = torch.einsum("ef,hfd->ehd", features, matrix)
    if given_order and nb.perm is not None:
        features = features.index_select(0, nb.perm)
    messages = relu(value.index_select(0, nb.indices) + features)  # [E, H, D]
    return messages.new_zeros(nb.num_dst, *messages.shape[1:]).index_add(0, nb.targets(), messages)


def gated_sum(
    value: Tensor, source: Tensor | None, target: Tensor | None, edge: Tensor | None,
    nb: Neighborhood,
) -> Tensor:  # fmt: skip
    """out[i, h] = sum over edges e from j to i of gate[e] * value[j, h].

    gate[e] = sigmoid(source[j] + target[i] + edge[e]), where None adds nothing.
    """
    logits = value.new_zeros(nb.num_edges, value.size(2)) if edge is None else edge
    for nodes, ids in ((source, nb.indices), (target, nb.targets())):
        logits = logits if nodes is None else logits + nodes.index_select(0, ids)
    logits = logits.contiguous()  # torch's sigmoid rounds others in another way
    messages = logits.sigmoid()[:, None] * value.index_select(0, nb.indices)  # [E, H, D]
    return messages.new_zeros(nb.num_dst, *messages.shape[1:]).index_add(0, nb.targets(), messages)


def additive_score(
    source: Tensor, target: Tensor, att: Tensor, features: Tensor, matrix: Tensor, slope: float,
    nb: Neighborhood,
) -> Tensor:  # fmt: skip
    """s[e, h] = <att[h], leaky(source[j, h] + target[i, h] + features[e] @ matrix[h])>."""
    z = source.index_select(0, nb.indices) + target.index_select(0, nb.targets())
    z = z + torch.einsum("ef,hfc->ehc", features, matrix)
    return (leaky_relu(z, slope) * att).sum(-1)  # [E, H]


def additive_logits(
    src_score: Tensor, dst_score: Tensor | None, edge: Tensor | None, nb: Neighborhood, slope: float
) -> Tensor:
    """Leaky(src_score + dst_score + edge) as [E, H]; -inf where `edge` is -inf."""
    out = src_score.index_select(0, nb.indices)
    if dst_score is not None:
        out = out + dst_score.index_select(0, nb.targets())
    if edge is None:
        return leaky_relu(out, slope)
    barred = edge == -torch.inf
    out = leaky_relu(out + edge.masked_fill(barred, 0), slope)
    return out.masked_fill(barred, -torch.inf)


def edge_bias(bias: Tensor | BucketedBias) -> Tensor:
    """The [E, H] form of a bias."""
    if not isinstance(bias, BucketedBias):
        return bias
    bias.check()
    return bias.table.index_select(0, bias.bucket.long())


def largest(logits: Tensor, nb: Neighborhood, k: int | Tensor) -> Tensor:
    """Whether fewer than k edges of e's row come before e: larger ones, and as large earlier ones.

    An entry at -inf is never chosen. `k` is one number, or that of each edge's row, int64 [E].
    """
    rows = nb.targets()
    order = logits.argsort(dim=0, descending=True, stable=True)  # [E, H], largest first
    order = order.gather(0, rows[order].argsort(dim=0, stable=True))  # row by row
    place = torch.arange(len(rows), device=rows.device) - nb.indptr[rows]
    first = torch.zeros_like(logits, dtype=torch.bool)
    first.scatter_(0, order, (place < k)[:, None].expand_as(order))
    return first & (logits != -torch.inf)


def attention(call: AttentionCall) -> Tensor | tuple[Tensor, tuple[Tensor, ...]]:
    """aggregate(dropout(edge_softmax(scale * edge_dot + bias))), summed in float32 or wider.

    With `call.k` the logits that are not among a row's k largest count as -inf. With features of
    edges their dot products with queries of their own are added to those of the keys, and the
    result is a pair: with the output the sums of the features by the same weights.
    """
    dtype = call.query.dtype
    wide = torch.promote_types(dtype, torch.float32)
    query, key, value = (t.to(wide) for t in (call.query, call.key, call.value))
    logits = edge_dot(query, key, call.neighborhood)
    for edges in call.edges:
        if edges.query is not None:
            targets = edges.query.to(wide).index_select(0, call.neighborhood.targets())
            logits = logits + (targets * edges.per_edge().to(wide)).sum(-1)
    logits = call.scale * logits
    if call.bias is not None:
        logits = logits + edge_bias(call.bias).to(wide)
    if call.k is not None:
        stays = largest(logits.detach(), call.neighborhood, call.k)
        logits = torch.where(stays, logits, -torch.inf)
    weights = edge_softmax(logits, call.neighborhood)
    if call.seed is not None:
        weights = weights * dropout_factor(call.dropout, call.seed, weights)
    out = aggregate(weights, value, call.neighborhood).to(dtype)
    if not call.edges:
        return out
    sums = (
        edge_sums(weights, edges.per_edge().to(wide), call.neighborhood) for edges in call.edges
    )
    return out, tuple(found.to(dtype) for found in sums)


def edge_sums(weights: Tensor, features: Tensor, nb: Neighborhood) -> Tensor:
    """sums[i, h] = sum over edges e of row i of weights[e, h] * features[e, h or 0]."""
    messages = weights[..., None] * features  # [E, H, D]
    out = messages.new_zeros(nb.num_dst, *messages.shape[1:])
    return out.index_add(0, nb.targets(), messages)
