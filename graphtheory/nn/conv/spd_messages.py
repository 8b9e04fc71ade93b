"""The graph transformer layer edge by edge, on PyG's messages: what `SPDTransformerConv` means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.utils import softmax

from graphtheory.graph import Neighborhood
from graphtheory.nn.conv import on_core
from graphtheory.nn.conv.adjacency import Adjacency, adjacency_of, edge_list
from graphtheory.ops.look_up import bias_per_edge, look_up
from graphtheory.graph.cache import PerTensorCache

if TYPE_CHECKING:
    from graphtheory.nn.conv.spd_transformer_conv import SPDTransformerConv


def run(
    layer: SPDTransformerConv, x_src: Tensor, x_dst: Tensor, given: object,
    distance: Tensor | None, edge_attr: Tensor | None, attn_bias: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`attend` on what the layer was called with, checked; weights are in the given order."""
    edges = edge_list(layer.for_messages(given))
    if not torch.onnx.is_in_onnx_export():
        adjacency_of(given, x_src.size(0), x_dst.size(0))  # checks sizes and node ids
    own = given.distance if isinstance(given, Neighborhood) else None
    if layer.edge_dim is not None:
        edge_attr = on_core.given_features(edge_attr, given, layer.edge_dim)
    on_core.check_given(edge_attr, layer.lin_edge)
    if layer.bucket_bias is not None:
        distance = checked_distance(distance, own, edges.size(1))
    check_bias(attn_bias, edges.size(1), layer.heads)
    return attend(layer, x_src, x_dst, edges, distance, edge_attr, attn_bias)


def attend(
    layer: SPDTransformerConv,
    x_src: Tensor,
    x_dst: Tensor,
    edges: Tensor,
    distance: Tensor | None = None,
    edge_attr: Tensor | None = None,
    attn_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Attention of a layer by operators of torch and PyG alone, without W_R.

    .. math::
        o_n = \sum_{s \in T^n} \alpha_{sn} v_{sn}, \qquad \alpha_{sn} = \operatorname{softmax}_s
        \big(\text{scale} \cdot \langle q_n, k_{sn} \rangle + b[\text{bucket}(s, n)] + c_{sn}\big)

    by head, with q_n = W_Q x_n, k_sn = W_K x_s + W_E e_sn, v_sn = W_V x_s + W_E e_sn +
    p[bucket(s, n)], and c of `attn_bias`. A node without edges gets zeros. Explainers, hooks on
    messages and ONNX take this path; unlike `ops.attention` it has vectors for each edge.

    Args:
        layer: Its parameters; PyG calls its `message`, which drops weights in training.
        x_src: Features of source nodes.
        x_dst: Features of target nodes.
        edges: Source and target node of each edge.
        distance: Hops; None is 0 for self-loops and 1 for all other edges.
        edge_attr: Features of edges, given if, and only if, the layer has `edge_dim`.
        attn_bias: Added to the logits.

    Shapes:
        x_src [N_src, in_channels], x_dst [N_dst, in_channels], edges int64 [2, E], distance
        integers [E], edge_attr [E, edge_dim], attn_bias [E, heads]
        -> [N_dst, heads, out_channels], weights [E, heads] before dropout.

    Source:
        Li (2024), eq. (3.1) and (3.2); differences as of `SPDTransformerConv`.
    """
    shape = (-1, layer.heads, layer.out_channels)
    edges = edges.long()
    src, dst = edges.unbind(0)
    query = layer.lin_query(x_dst).view(shape).index_select(0, dst)
    key = layer.lin_key(x_src).view(shape).index_select(0, src)
    value = layer.lin_value(x_src).view(shape)
    edge_value = None
    if layer.lin_edge is not None and edge_attr is not None:
        features = on_core.edge_features(edge_attr, edges.size(1), layer.lin_edge.in_channels)
        edge_value = layer.lin_edge(features).view(shape)
        key = key + edge_value
    scale = layer.out_channels**-0.5 if layer.scale is None else layer.scale
    logits = scale * (query * key).sum(-1)  # [E, H]
    if layer.bucket_bias is not None:
        bias = layer.bucket_bias((src != dst).long() if distance is None else distance)
        logits = logits + bias_per_edge(bias)
        if layer.value_table is not None and not isinstance(bias, Tensor):
            vectors = look_up(layer.value_table.view(shape), bias.bucket)
            edge_value = vectors if edge_value is None else edge_value + vectors
    if attn_bias is not None:
        logits = logits + attn_bias
    weights = softmax(logits, dst, num_nodes=x_dst.size(0))
    out: Tensor = layer.propagate(
        edges, size=(x_src.size(0), x_dst.size(0)), value=value, alpha=weights,
        edge_value=edge_value,
    )  # fmt: skip
    return out, weights


_between: PerTensorCache[Tensor] = PerTensorCache(
    lambda targets, sources: (sources != targets).to(torch.uint8)
)


def hops(nb: Neighborhood) -> Tensor:
    """Of a neighborhood without distances: 0 for self-loops and 1 for all other edges."""
    return _between(nb.targets(), nb.indices)


def _selected(distance: Tensor, order: Tensor) -> Tensor:
    return distance.index_select(0, order)


def in_rows(adj: Adjacency, distance: Tensor) -> Tensor:
    """Distances of given edges in CSR order, sorted once for the same tensor and edges."""
    if adj.order is None or torch.compiler.is_compiling():
        return adj.to_csr_order(distance)
    known: PerTensorCache[Tensor] = adj.cached("distances", lambda: PerTensorCache(_selected))
    return known(distance, adj.order)


def checked_distance(distance: Tensor | None, own: Tensor | None, edges: int) -> Tensor | None:
    """`distance`, or what the neighborhood has; raises unless it has one entry per edge."""
    if distance is None:
        return own
    if not isinstance(distance, Tensor):
        raise TypeError(f"distance: got {type(distance).__name__}, expected a tensor of hops")
    if distance.shape != (edges,):
        raise ValueError(
            f"distance: shape {tuple(distance.shape)}, expected one entry per edge: [{edges}]"
        )
    return distance


def check_bias(attn_bias: Tensor | None, edges: int, heads: int) -> None:
    """Raise unless `attn_bias`, if any, has one value per edge and head."""
    if attn_bias is not None and attn_bias.shape != (edges, heads):
        raise ValueError(
            f"attn_bias: shape {tuple(attn_bias.shape)}, expected one value per edge and head: "
            f"{[edges, heads]}"
        )
