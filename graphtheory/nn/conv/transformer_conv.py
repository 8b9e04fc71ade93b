"""PyG's TransformerConv on the core, and attention by dot products, which may keep x alone."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.typing import OptTensor

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.graph.content import is_tracing
from graphtheory.nn.attention import Bias
from graphtheory.nn.conv import again, edge_features, on_core
from graphtheory.nn.conv.adjacency import Adjacency, adjacency_of
from graphtheory.nn.conv.direct import direct
from graphtheory.nn.conv.on_core import OnCore, is_plain
from graphtheory.nn.conv.sparse_features import version_of
from graphtheory.ops import edge_layers, layers, projected
from graphtheory.ops.dropout import draw_seed
from graphtheory.patterns import attention_logits


class _Kept(NamedTuple):
    """A saved tensor, or with a `part` that part of a linear map of x, as it was applied."""

    tensors: tuple[Tensor, ...]  # one; of a map x, the weight, and the bias if there is one
    versions: tuple[int, ...]  # under hooks torch does not look itself whether they changed
    dtype: torch.dtype
    part: tuple[Any, ...] | None = None  # size, strides, offset


def _unpack(kept: _Kept) -> Tensor:
    for tensor, version in zip(kept.tensors, kept.versions, strict=True):
        if version != version_of(tensor):
            raise RuntimeError(
                f"recompute: a tensor {list(tensor.shape)} that the backward pass needs was "
                "changed in place after the forward pass: x, a weight, or what was computed of them"
            )
    if kept.part is None:
        return kept.tensors[0]
    x, weight, *bias = (tensor.detach().to(kept.dtype) for tensor in kept.tensors)
    with torch.autocast(x.device.type, enabled=False):
        return nn.functional.linear(x, weight, *bias).as_strided(*kept.part)


def _check_plain(linear: Any) -> None:
    if not is_plain(linear):
        raise TypeError(
            f"recompute: got a {type(linear).__name__} that is wrapped or has hooks, "
            "maybe global ones, expected PyG's Linear alone: what is made again is W x + b"
        )


class Projections:
    """Linear maps of x, made again by the backward pass unless others decide what is kept."""

    def __init__(self) -> None:
        autograd: Any = torch._C._autograd
        free = autograd._saved_tensors_hooks_is_enabled  # whether nobody else decides what is kept
        top = autograd._top_saved_tensors_default_hooks
        self._on = not is_tracing() and free() and top(True) is None
        self._known: dict[int | None, tuple[Tensor, tuple[Tensor, ...]]] = {}

    def __call__(self, linear: Linear, x: Tensor) -> Tensor:
        """The layer's output; what is to be made again has to be a linear map alone."""
        out = linear(x)
        if self._on and torch.is_grad_enabled():
            _check_plain(linear)
            bias = () if linear.bias is None else (linear.bias,)
            self._known[out.data_ptr()] = out, (x, linear.weight, *bias)
        return out

    @contextmanager
    def saving(self) -> Iterator[None]:
        """The context in which results are used; earlier ones are forgotten at its end."""
        if not self._on:
            yield
            return
        with torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack):
            yield
        self._known.clear()

    def _pack(self, tensor: Tensor) -> _Kept:
        place = tensor.data_ptr() if tensor.layout == torch.strided else None
        out, tensors = self._known.get(place, (None, ()))
        part = None
        if out is None or tensor.dtype != out.dtype or tensor.numel() != out.numel():
            tensors = (tensor,)
        else:
            part = tensor.size(), tensor.stride(), tensor.storage_offset()
        return _Kept(tensors, tuple(map(version_of, tensors)), tensor.dtype, part)


class DotProduct(OnCore):
    """Mixin of the layers with dot products of queries and keys, and maybe features of edges."""

    recompute: bool = False
    scale: float | None = None  # of the dot products; None is 1/sqrt(out_channels)
    value_table: Tensor | None  # vectors by bucket that are added to the values of edges

    def _attend(
        self, x_src: Tensor, x_dst: Tensor, adj: Adjacency, features: Tensor | None,
        by_bucket: Bias, bias: Bias, *, want: bool,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Sums [N_dst, heads, out_channels], and the weights [E, heads] if they are wanted."""
        nb = adj.neighborhood
        can_stream = self.recompute and features is not None and not want
        if can_stream and self._can_stream_backward(x_src, x_dst, features, adj):
            return self._stream_backward(x_src, x_dst, adj, features, bias), None
        shape, p = (-1, self.heads, self.out_channels), self.dropout if self.training else 0.0
        made = Projections() if self.recompute else None
        with made.saving() if made else nullcontext():
            query = (made(self.lin_query, x_dst) if made else self.lin_query(x_dst)).view(shape)
            key = (made(self.lin_key, x_src) if made else self.lin_key(x_src)).view(shape)
            value = (made(self.lin_value, x_src) if made else self.lin_value(x_src)).view(shape)
            if features is not None and edge_features.project_per_edge(
                features, self.out_channels, nb.num_dst
            ):
                key, value, nb = edge_features.with_edges(key, value, self.lin_edge(features), adj)
                features = None
            edges: tuple[ops.EdgeFeatures, ...] = ()
            if features is not None or self.value_table is not None:
                edges, matrix = self._edges(adj, query, by_bucket, features)
            weights = self._softmax(query, key, adj, nb, bias, edges) if want else None
            if not edges and weights is not None:
                return ops.aggregate(nn.functional.dropout(weights, p), value, nb), weights
            given: Any = edges or None
            found = ops.attention(
                query, key, value, nb, bias=bias, scale=self.scale, dropout=p, edges=given
            )
            out, sums = found if isinstance(found, tuple) else (found, ())
            for one, of_edges in zip(edges, sums, strict=True):
                if one.row is None:
                    of_edges = torch.einsum("nhd,hdc->nhc", of_edges, matrix)
                out = out + of_edges
            return out, weights

    def _whole(
        self, args: Any, adj: Adjacency, bias: Bias, skip: Any, features: Tensor | None = None
    ) -> Tensor | None:
        """The output, W x of `skip` included, as one function; None where its parts have to run.

        Features of edges are the third of `args`.
        """
        x, parts = args[0], self._modules
        maps = [parts["lin_query"], parts["lin_key"], parts["lin_value"]]
        if skip is not None:
            maps.append(skip)
        if self.recompute or not self.concat or self.value_table is not None:
            return None
        if not on_core.run_inside(x, *maps):
            return None
        own: tuple[Any, ...] = (None, None)
        kind, free = layers.MappedAttention, [0]
        if features is not None:
            kind, free = edge_layers.MappedEdgeAttention, [0, 2]
            if bias is not None or features is not args[2] or not self._maps_edges(features, adj):
                return None
            own = features, self.lin_edge.weight, adj.order
        elif isinstance(bias, ops.BucketedBias):
            bias.check()
            own = bias.table, bias.bucket
        elif bias is not None:
            return None
        given = (x, *own, *[one._parameters[n] for n in ("weight", "bias") for one in maps])
        scale = self.out_channels**-0.5 if self.scale is None else float(self.scale)
        dropout = float(self.dropout) if self.training else 0.0
        return again.compute(
            self, args, kind, adj.neighborhood, given, self.heads, scale, dropout=dropout, free=free
        )

    def _maps_edges(self, features: Tensor, adj: Adjacency) -> bool:
        """Whether W_E is multiplied with queries and sums, and nobody sees it."""
        linear, nb = self.lin_edge, adj.neighborhood
        if edge_features.project_per_edge(features, self.out_channels, nb.num_dst):
            return False
        return on_core.run_inside(features, linear) and linear.bias is None

    def _can_stream_backward(
        self, x_src: Tensor, x_dst: Tensor, features: Any, adj: Adjacency
    ) -> bool:
        """Whether edges have features alone, on a CPU and in full precision."""
        if self.value_table is not None or features.device.type != "cpu":
            return False
        if is_tracing() or not torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return False
        maps = (self.lin_query, self.lin_key, self.lin_value)
        if any(is_lazy(getattr(one, "weight", x_src)) for one in maps):
            return False  # a first call makes the weights
        tensors = (x_src, x_dst, features, getattr(self.lin_query, "weight", x_src))
        if not all(t.dtype == features.dtype and t.layout == torch.strided for t in tensors):
            return False
        if features.dtype not in (torch.float32, torch.float64):
            return False
        num_dst = adj.neighborhood.num_dst
        return not edge_features.project_per_edge(features, self.out_channels, num_dst)

    def _stream_backward(
        self, x_src: Tensor, x_dst: Tensor, adj: Adjacency, features: Any, bias: Bias
    ) -> Tensor:
        """Attention [N_dst, H, C] whose backward pass has one gradient of a map after another."""
        maps = (self.lin_query, self.lin_key, self.lin_value)
        for linear in maps:
            _check_plain(linear)
        dropout = self.dropout if self.training else 0.0
        return projected.attention(
            x_src, x_dst, [(linear.weight, linear.bias) for linear in maps],
            edge_features.matrix_of(self.lin_edge, features, self.heads), features,
            adj.neighborhood, adj.order, bias,
            self.out_channels**-0.5 if self.scale is None else self.scale, dropout,
            draw_seed(None, features.device) if dropout > 0 else None,
        )  # fmt: skip

    def _edges(
        self, adj: Adjacency, query: Tensor, by_bucket: Bias, features: Tensor | None
    ) -> tuple[tuple[ops.EdgeFeatures, ...], Tensor | None]:
        """Features by edge and vectors by bucket, of which some are absent; and W_E [H, D, C]."""
        edges, matrix = [], None
        if features is not None:
            features = edge_features.in_rows(adj, features)
            matrix = edge_features.matrix_of(self.lin_edge, features, self.heads)
            edges.append(ops.EdgeFeatures(features, torch.einsum("nhc,hdc->nhd", query, matrix)))
        if self.value_table is not None and isinstance(by_bucket, ops.BucketedBias):
            table = self.value_table.view(-1, self.heads, self.out_channels)
            edges.append(ops.EdgeFeatures(table, row=by_bucket.bucket))
        return tuple(edges), matrix

    def _softmax(
        self, query: Tensor, key: Tensor, adj: Adjacency, nb: Neighborhood, bias: Bias,
        edges: tuple[ops.EdgeFeatures, ...],
    ) -> Tensor:  # fmt: skip
        logits = attention_logits(query, key, nb, bias, self.scale)
        scale = self.out_channels**-0.5 if self.scale is None else self.scale
        for one in edges:
            if one.query is not None:
                logits = logits + scale * edge_features.edge_logits(one.query, one.features, adj)
        return ops.edge_softmax(logits, adj.neighborhood)


@on_core.checked
class TransformerConv(DotProduct, pyg.TransformerConv):
    r"""Multi-head dot-product attention over the neighbors, with edge features and a gate.

    .. math::
        x'_i = W_1 x_i + \sum_{j \in N(i)} \alpha_{ij} (W_2 x_j + W_6 e_{ij}), \qquad
        \alpha_{ij} = \operatorname{softmax}_j
        \frac{(W_3 x_i)^\top (W_4 x_j + W_6 e_{ij})}{\sqrt{d}}

    Same arguments, parameters, state dict and results as PyG's layer of this name, whose
    documentation explains the arguments; `aggr` must be a sum, and `flow="target_to_source"`
    requires an edge list. A node without neighbors gives W_1 x_i. No tensor has both an edge axis
    and a feature axis but e itself: edge features enter `ops.attention` as
    :math:`(W_6^\top W_3 x_i)^\top e_{ij}` and :math:`W_6 \sum_j \alpha_{ij} e_{ij}`, or, where that
    is smaller, as :math:`W_6 e` of all edges.

    Attributes:
        recompute: Keep x in place of queries, keys and values, which the backward pass makes
            again: less memory for more time. With edge features on a CPU it also computes one
            gradient after another and reads e without a copy. False at the start.

    Shapes:
        - **x:** [N, in_channels], or a pair ([N_src, .], [N_dst, .]).
        - **edge_index:** [2, E], `EdgeIndex`, torch sparse or `SparseTensor` [N_dst, N_src], or a
          `Neighborhood`.
        - **edge_attr:** [E, edge_dim], in the order of the given edges.
        - **output:** [N_dst, heads * out_channels], or [N_dst, out_channels] without `concat`; with
          `return_attention_weights=True` also (edge_index, weights [E, heads]) before dropout.

    Raises:
        ValueError: If an option or a shape is not supported.
        IndexError: If a node index is out of range.

    Source:
        Shi et al. (2021), eq. (3) to (5). Differs from PyG: `return_attention_weights=False`
        returns no weights; edge features without `edge_dim` are an error; with `edge_dim=1` the
        values of a `SparseTensor` are features if there is one value per edge.

    Example:
        >>> conv = TransformerConv(16, 8, heads=4)
        >>> conv(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 32])
    """

    propagate_type: ClassVar[dict[str, Any]] = {
        "query": Tensor, "key": Tensor, "value": Tensor, "edge_attr": OptTensor,
    }  # fmt: skip
    value_table = None
    at_new_edges = staticmethod(direct)
    arguments = "x", "edge_index", "edge_attr", "return_attention_weights"

    @property
    def is_whole(self) -> bool:
        own = vars(self)
        return bool(
            own["concat"] and own["_modules"].get("lin_beta") is None and not self.recompute
        )

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Any,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        args = (x, edge_index, edge_attr, return_attention_weights)
        if self._again is not None and not torch.compiler.is_compiling():
            found = self._again(self, *args)
            if found is not None:
                return found
        if self.needs_messages():
            edge_index = self.for_messages(edge_index)
            return super().forward(x, edge_index, edge_attr, return_attention_weights or None)
        x_src, x_dst = on_core.two_features(x, self.lin_key, self.lin_query, self.flow)
        adj = adjacency_of(edge_index, x_src.size(0), x_dst.size(0), flow=self.flow)
        edge_attr = edge_features.given_features(edge_attr, edge_index, self.edge_dim)
        features = None
        if edge_attr is not None or self.lin_edge is not None:
            features = edge_features.checked_features(edge_attr, adj.num_given, self.lin_edge)
        alone = self.lin_beta is None and not return_attention_weights
        if alone and x_dst is x_src and not adj.neighborhood.indptr.is_cpu:
            skip = self.lin_skip if self.root_weight else None
            whole = self._whole(args, adj, None, skip, features)
            if whole is not None:
                return whole
        out, weights = self._attend(
            x_src, x_dst, adj, features, None, None, want=bool(return_attention_weights)
        )
        out = self._with_root(out.flatten(1) if self.concat else out.mean(1), x_dst)
        if weights is None:
            return out
        return out, adj.with_weights(edge_index, weights, stored=False)

    def _with_root(self, out: Tensor, x_dst: Tensor) -> Tensor:
        if not self.root_weight:
            return out
        root = self.lin_skip(x_dst)
        if self.lin_beta is None:
            return out + root
        gate = self.lin_beta(torch.cat([out, root, out - root], -1)).sigmoid()
        return gate * root + (1 - gate) * out
