"""The graph transformer layer with shortest-path-distance encoding."""

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import reset
from torch_geometric.typing import OptTensor
from torch_geometric.utils import softmax

from graphtheory.graph import Neighborhood
from graphtheory.graph.content import PerTensorCache
from graphtheory.nn.attention import AttentionMap, Bias
from graphtheory.nn.bias import BucketBias
from graphtheory.nn.conv import adjacency, on_core
from graphtheory.nn.conv.adjacency import Adjacency
from graphtheory.nn.conv.edge_features import checked_features, given_features
from graphtheory.nn.conv.transformer_conv import DotProduct
from graphtheory.ops.look_up import bias_per_edge, look_up

PairTensor = tuple[Tensor, Tensor]

MOST_BUCKETS = 254  # of vectors in the values: a bucket is a byte
_VALUE_STD = 0.02  # of those vectors at the start, as of Graphormer's embeddings


@on_core.checked
class SPDTransformerConv(DotProduct):
    r"""Multi-head attention over any neighborhood, with a learned bias per distance.

    .. math::
        x'_n = W_R\, x_n + \Big\Vert_{h} \sum_{s \in T^n} W_V^h x_s\,
        \operatorname{softmax}_{s \in T^n}\Big(
        \tfrac{1}{\sqrt{d}} (W_K^h x_s)^\top (W_Q^h x_n) + u_{(s,n)}^\top b^h \Big)

    With `edge_dim` the features e of an edge are added to its keys and values, W_K x_s + W_E e and
    W_V x_s + W_E e, as in PyG's `TransformerConv`. With `value_encoding` a learned vector p for
    each bucket and head is added to the values: where all nodes have equal features, a bias in the
    logits alone gives every node the same output. A node with an empty T^n gives W_R x_n (zeros
    without `root_weight`). PyG's `to_hetero`, its explainers, hooks on messages and ONNX take the
    layer; TorchScript does not.

    Args:
        in_channels: Input features per node, a pair for source and target nodes; -1 infers them.
        out_channels: Output features per head.
        heads: Heads, side by side in the output when `concat`, else averaged.
        num_buckets: Z; distances of Z - 1 hops or more share the last entry of b. None is b = 0.
        concat: Concatenate the heads.
        dropout: Probability of dropping an attention weight in training.
        root_weight: Add W_R x_n.
        bias: Add a bias to W_Q, W_K, W_V and W_R.
        scale: Factor of the dot products; None means 1/sqrt(out_channels); the theory model uses 1.
        edge_dim: Features per edge, if any.
        value_encoding: Add vectors p, small and random at the start; for 1 to 254 buckets.
        own_token: Give pairs with a graph token, at distance `graph.TOKEN`, a bucket of their own.

    Attributes:
        recompute: Keep x in place of queries, keys and values, as in `TransformerConv`.

    Shapes:
        - **x:** [N, in_channels], or a pair ([N_src, .], [N_dst, .]).
        - **edge_index:** [2, E], any other adjacency that PyG's layers take, or a `Neighborhood`.
        - **distance:** integer hops [E], in the order of the given edges. None takes ``.distance``
          of the neighborhood or, if it has none, 0 for self-loops and 1 for all other edges.
        - **edge_attr:** [E, edge_dim], in that order; needed with `edge_dim`.
        - **attn_bias:** [E, heads], in that order, added to the logits; such as `PathEncoding`'s.
        - **output:** [N_dst, heads * out_channels], or [N_dst, out_channels] without `concat`; with
          `return_attention_weights=True` also (edge_index, weights [E, heads]).

    Raises:
        ValueError: If channels, heads or `edge_dim` are below 1; `value_encoding` without buckets;
            `distance`, `edge_attr` or `attn_bias` of another shape.
        IndexError: If a node index is out of range.

    Source:
        Li (2024), eq. (3.1) and (3.2). Differs: the 1/sqrt(d) default, several heads, W_R, and no
        W_O, which the next layer can learn; edge features as in Shi et al. (2021), eq. (3) and (4);
        vectors in the values as in Shaw et al. (2018), eq. (3).

    Example:
        >>> conv = SPDTransformerConv(16, 8, heads=4, num_buckets=5)
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> conv(torch.randn(3, 16), edge_index).shape
        torch.Size([3, 32])
    """

    propagate_type: ClassVar[dict[str, Any]] = {
        "value": Tensor, "alpha": Tensor, "edge_value": OptTensor,
    }  # fmt: skip

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        *,
        num_buckets: int | None = 20,
        concat: bool = True,
        dropout: float = 0.0,
        root_weight: bool = True,
        bias: bool = True,
        scale: float | None = None,
        edge_dim: int | None = None,
        value_encoding: bool = False,
        own_token: bool = False,
    ) -> None:
        super().__init__(node_dim=0)
        if edge_dim is not None:
            on_core.check_counts(edge_dim=edge_dim)
        if value_encoding and (num_buckets is None or num_buckets > MOST_BUCKETS):
            raise ValueError(
                f"value_encoding: got num_buckets={num_buckets}, expected 1 to {MOST_BUCKETS} "
                "buckets, which each have a vector"
            )
        src, dst = in_channels if isinstance(in_channels, tuple) else (in_channels, in_channels)
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.concat, self.dropout, self.scale, self.edge_dim = concat, dropout, scale, edge_dim
        width = heads * out_channels
        self.lin_key = Linear(src, width, bias=bias)
        self.lin_query = Linear(dst, width, bias=bias)
        self.lin_value = Linear(src, width, bias=bias)
        self.lin_skip = (
            Linear(dst, width if concat else out_channels, bias) if root_weight else None
        )
        self.bucket_bias = None
        if num_buckets is not None:
            self.bucket_bias = BucketBias(num_buckets, heads, own_token=own_token)
        self.lin_edge = None if edge_dim is None else Linear(edge_dim, width, bias=False)
        self.value_table = None
        if value_encoding and self.bucket_bias is not None:
            self.value_table = nn.Parameter(torch.empty(len(self.bucket_bias.table), width))
            nn.init.normal_(self.value_table, std=_VALUE_STD)

    def reset_parameters(self) -> None:
        for part in self.children():
            reset(part)
        if self.value_table is not None:
            nn.init.normal_(self.value_table, std=_VALUE_STD)

    arguments = (
        "x", "edge_index", "distance", "return_attention_weights", "edge_attr", "attn_bias",
    )  # fmt: skip

    def forward(
        self,
        x: Tensor | PairTensor,
        edge_index: object,
        distance: Tensor | None = None,
        return_attention_weights: bool | None = None,
        edge_attr: Tensor | None = None,
        attn_bias: Tensor | None = None,
    ) -> Any:
        args = (x, edge_index, distance, return_attention_weights, edge_attr, attn_bias)
        if self._again is not None and not torch.compiler.is_compiling():
            found = self._again(self, *args)
            if found is not None:
                return found
        x_src, x_dst = on_core.two_features(x, self.lin_key, self.lin_query)
        if self.needs_messages():
            given = (x_src, x_dst, edge_index, distance, edge_attr, attn_bias)
            out, alpha = attend(self, *given)
            out = self._with_root(out, x_dst)
            if return_attention_weights:
                return out, adjacency.with_given_edges(edge_index, alpha, stored=True)
            return out
        adj = adjacency.adjacency_of(edge_index, x_src.size(0), x_dst.size(0))
        bias = self._bias(adj, distance)
        features = None
        if edge_attr is not None or self.lin_edge is not None:
            features = self._features(adj.num_given, edge_attr, edge_index)
        total = bias if attn_bias is None else self._with_more(bias, attn_bias, adj)
        alone = features is None and attn_bias is None and not return_attention_weights
        if alone and x_dst is x_src and not adj.neighborhood.indptr.is_cpu:
            whole = self._whole(args, adj, bias, self.lin_skip)
            if whole is not None:
                return whole
        out, weights = self._attend(
            x_src, x_dst, adj, features, bias, total, want=bool(return_attention_weights)
        )
        out = self._with_root(out, x_dst)
        return out if weights is None else (out, adj.with_weights(edge_index, weights))

    def _with_root(self, out: Tensor, x_dst: Tensor) -> Tensor:
        out = out.flatten(1) if self.concat else out.mean(1)
        return out if self.lin_skip is None else out + self.lin_skip(x_dst)

    def message(self, value_j: Tensor, alpha: Tensor, edge_value: OptTensor) -> Tensor:
        """Of each edge, [E, heads, out_channels]."""
        if edge_value is not None:
            value_j = value_j + edge_value
        return value_j * nn.functional.dropout(alpha, self.dropout, self.training)[..., None]

    def _bias(self, adj: Adjacency, distance: Tensor | None) -> Bias:
        nb, bias = adj.neighborhood, self.bucket_bias
        if bias is None:
            return None
        if distance is None:
            return bias(hops(nb) if nb.distance is None else nb.distance)
        if not isinstance(distance, Tensor) or distance.shape != (nb.indices.size(0),):
            on_core.check_entries("distance", distance, "edge", nb.indices.size(0))
        return bias(distance, adj.order)

    def _with_more(self, bias: Bias, more: Tensor | None, adj: Adjacency) -> Bias:
        if more is None:
            return bias
        on_core.check_entries("attn_bias", more, "edge", adj.num_given, self.heads)
        more = adj.to_csr_order(more)
        return more if bias is None else bias_per_edge(bias) + more

    def _features(self, edges: int, edge_attr: Tensor | None, given: object) -> Tensor | None:
        if self.edge_dim is not None:
            edge_attr = given_features(edge_attr, given, self.edge_dim)
        return checked_features(edge_attr, edges, self.lin_edge)

    def attention_map(
        self,
        x: Tensor | PairTensor,
        edge_index: object,
        distance: Tensor | None = None,
        edge_attr: Tensor | None = None,
        attn_bias: Tensor | None = None,
    ) -> AttentionMap:
        """T^n, and attention weights [E, heads] without dropout in its order of edges."""
        x_src, x_dst = (x, x) if isinstance(x, Tensor) else x
        adj = adjacency.adjacency_of(edge_index, x_src.size(0), x_dst.size(0))
        bias, features = (
            self._bias(adj, distance),
            self._features(adj.num_given, edge_attr, edge_index),
        )
        total = self._with_more(bias, attn_bias, adj)
        _, weights = self._attend(x_src, x_dst, adj, features, bias, total, want=True)
        assert weights is not None
        nb = adj.neighborhood
        return AttentionMap(copy.deepcopy(nb) if nb._sealed else nb, weights)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"


def attend(
    layer: SPDTransformerConv, x_src: Tensor, x_dst: Tensor, given: object,
    distance: Tensor | None = None, edge_attr: Tensor | None = None,
    attn_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    r"""Attention of a layer by operators of torch and PyG alone, without W_R.

    .. math::
        o_n = \sum_{s \in T^n} \alpha_{sn} v_{sn}, \qquad \alpha_{sn} = \operatorname{softmax}_s
        \big(\text{scale} \cdot \langle q_n, k_{sn} \rangle + b[\text{bucket}(s, n)] + c_{sn}\big)

    by head, with q_n = W_Q x_n, k_sn = W_K x_s + W_E e_sn, v_sn = W_V x_s + W_E e_sn +
    p[bucket(s, n)], and c of `attn_bias`: [N_dst, heads, out_channels], and weights [E, heads]
    before dropout, in the given order. Unlike `ops.attention` it has vectors for each edge.
    """
    edges = adjacency.edge_list(layer.for_messages(given))
    if not (torch.onnx.is_in_onnx_export() or torch._C._is_tracing()):
        adjacency.adjacency_of(given, x_src.size(0), x_dst.size(0))  # checks sizes and node ids
    edge_attr = layer._features(edges.size(1), edge_attr, given)
    if distance is None:
        distance = given.distance if isinstance(given, Neighborhood) else None
    elif layer.bucket_bias is not None:
        on_core.check_entries("distance", distance, "edge", edges.size(1))
    if attn_bias is not None:
        on_core.check_entries("attn_bias", attn_bias, "edge", edges.size(1), layer.heads)
    shape = (-1, layer.heads, layer.out_channels)
    edges = edges.long()
    src, dst = edges.unbind(0)
    query = layer.lin_query(x_dst).view(shape).index_select(0, dst)
    key = layer.lin_key(x_src).view(shape).index_select(0, src)
    value = layer.lin_value(x_src).view(shape)
    edge_value = None
    if layer.lin_edge is not None and edge_attr is not None:
        edge_value = layer.lin_edge(edge_attr).view(shape)
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
