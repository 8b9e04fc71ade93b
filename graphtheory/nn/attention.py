"""Multi-head attention over any neighborhood, and the weights that it took."""

from collections.abc import Callable
from inspect import signature
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.modes import evaluating
from graphtheory.nn.conv.on_core import is_watched
from graphtheory.ops import BucketedBias
from graphtheory.patterns import AllSources, ScorePattern

Bias = Tensor | BucketedBias | None


def _on_blocks(query: Tensor, key: Tensor, value: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Attention within equal complete blocks, and its weights in the order of edges."""
    parts = (t.unflatten(0, (count, len(t) // count)).transpose(1, 2) for t in (query, key, value))
    q, k, v = parts  # [count, H, nodes, D]
    wide = torch.promote_types(q.dtype, torch.float32)
    weights = (q * q.size(-1) ** -0.5 @ k.mT).softmax(-1, dtype=wide).to(v.dtype)
    out = (weights @ v).transpose(1, 2).flatten(0, 1)
    return out, weights.permute(0, 2, 3, 1).flatten(0, 2)


class AttentionMap(NamedTuple):
    """Attention of one layer: edge e of the neighborhood has weight ``weights[e, h]`` in head h."""

    neighborhood: Neighborhood
    weights: Tensor


class Attention(nn.Module):
    r"""Multi-head attention: one linear map for query, key and value, one for the output.

    .. math::
        x'_n = W_O \Big\Vert_h \sum_{s \in T^n} W_V^h x_s \operatorname{softmax}_{s \in T^n}\Big(
        \tfrac{1}{\sqrt{d}} (W_K^h x_s)^\top (W_Q^h x_n) + b^h_{(s, n)} \Big)

    A node with an empty T^n gets the bias of W_O.

    Args:
        dim: Features of a node, in and out.
        heads: Heads of dim / heads features each, or `head_dim`.
        bias: Module that makes the b of every edge from its `relation`, as `BucketBias` does.
        pattern: Which sources count, given their scores: `TopK(0.5)` is k-nearest attention. None
            are all.
        qkv_bias: Additive bias of W_Q, W_K, W_V.
        dropout: Probability with which a weight is dropped in training.
        head_dim: Features of a head where they are not dim / heads; W_O leads back to `dim`.

    Shapes:
        x [num_dst, dim], sources [num_src, dim] or None for x itself, relation [num_edges]
        -> [num_dst, dim].

    Raises:
        TypeError: If `pattern` is no `ScorePattern`.
        ValueError: If `heads` does not divide `dim`, without `head_dim`; if `relation` is given
            without `bias`, or the reverse.

    Example:
        >>> from graphtheory.graph import cliques
        >>> Attention(8, heads=2)(torch.randn(6, 8), cliques([3, 3])).shape
        torch.Size([6, 8])
    """

    __call__: Callable[..., Tensor]

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        bias: nn.Module | None = None,
        pattern: ScorePattern | None = None,
        qkv_bias: bool = True,
        dropout: float = 0.0,
        head_dim: int | None = None,
    ) -> None:
        super().__init__()
        if heads < 1 or (head_dim is None and dim % heads):
            raise ValueError(f"heads: got {heads}, expected a divisor of dim={dim}")
        if head_dim is not None and head_dim < 1:
            raise ValueError(f"head_dim: got {head_dim}, expected 1 or more")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: got {dropout}, expected a probability in [0, 1)")
        self.dim, self.heads, self.dropout = dim, heads, dropout
        self.head_dim = dim // heads if head_dim is None else head_dim
        if pattern is not None and not isinstance(pattern, ScorePattern):
            raise TypeError(
                f"pattern: got {pattern!r}, expected a ScorePattern such as TopK(0.5); a Pattern "
                "is applied to the neighborhood instead"
            )
        self.pattern = AllSources() if pattern is None else pattern
        self.bias = bias
        self.qkv = nn.Linear(dim, 3 * heads * self.head_dim, bias=qkv_bias)
        self.out = nn.Linear(heads * self.head_dim, dim)

    def forward(
        self,
        x: Tensor,
        neighborhood: Neighborhood,
        *,
        sources: Tensor | None = None,
        relation: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Attend; `generator` is the source of the dropout."""
        parts = self.project(x, sources)
        return self.attend(*parts, neighborhood, relation=relation, generator=generator)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        neighborhood: Neighborhood,
        *,
        relation: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """`forward` from what `project` returned, for callers that read the keys, too."""
        out = self.pattern(
            query, key, value, neighborhood, bias=self._bias(relation),
            dropout=self.dropout if self.training else 0.0, generator=generator,
        )  # fmt: skip
        return self.out(out.flatten(1))

    def with_weights(self, x: Tensor, neighborhood: Neighborhood) -> tuple[Tensor, Tensor]:
        """`forward` and `weights` from one projection, of a layer without bias; no dropout."""
        query, key, value = self.project(x, None)
        if neighborhood.blocks and self.bias is None and type(self.pattern) is AllSources:
            out, weights = _on_blocks(query, key, value, neighborhood.blocks[0])
            return self.out(out.flatten(1)), weights
        weights = self.pattern.weights(query, key, neighborhood, self._bias(None))
        return self.out(ops.aggregate(weights, value, neighborhood).flatten(1)), weights

    def weights(
        self,
        x: Tensor,
        neighborhood: Neighborhood,
        *,
        sources: Tensor | None = None,
        relation: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The weights [num_edges, heads] of `forward` with the same arguments, without dropout."""
        query, key, _ = self.project(x, sources)
        return self.pattern.weights(query, key, neighborhood, self._bias(relation))

    def project(self, x: Tensor, sources: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Query [num_dst, H, D], key and value [num_src, H, D]."""
        shape = (self.heads, self.head_dim)
        if sources is None:
            query, key, value = self.qkv(x).view(-1, 3, *shape).unbind(1)
            return query, key, value
        parts = (self.heads * self.head_dim, 2 * self.heads * self.head_dim)
        if type(self.qkv) is not nn.Linear or is_watched(self.qkv):
            (query, _), (_, rest) = (self.qkv(nodes).split(parts, 1) for nodes in (x, sources))
        else:
            weights = self.qkv.weight.split(parts)
            biases = (None, None) if self.qkv.bias is None else self.qkv.bias.split(parts)
            query, rest = map(nn.functional.linear, (x, sources), weights, biases)
        key, value = rest.view(-1, 2, *shape).unbind(1)
        return query.view(-1, *shape), key, value

    def _bias(self, relation: Tensor | None) -> Bias:
        if (self.bias is None) != (relation is None):
            found = "no relation" if relation is None else "a relation"
            wanted = "one, for this layer has a bias" if relation is None else "none without a bias"
            raise ValueError(f"relation: got {found}, expected {wanted}")
        return None if self.bias is None else self.bias(relation)

    def attention_map(self, x: Tensor, neighborhood: Neighborhood, **options: Any) -> AttentionMap:
        """The neighborhood and `weights` of `forward` with the same arguments."""
        return AttentionMap(neighborhood, self.weights(x, neighborhood, **options))


def attention_maps(model: nn.Module, *inputs: Any) -> list[AttentionMap]:
    """Run a model in evaluation mode and collect the attention of every layer, in order.

    Args:
        model: Any module with layers that have `attention_map`, as `Attention` and
            `SPDTransformerConv` do, or that take `return_attention_weights`, as `GATConv` does,
            PyG's own too; its mode is the same afterwards.
        inputs: What the model takes.

    Raises:
        TypeError: A layer of the second kind was called with a sparse matrix.

    Example:
        >>> from graphtheory.graph import cliques
        >>> (found,) = attention_maps(Attention(4, heads=1), torch.randn(2, 4), cliques([2]))
        >>> round(found.weights.sum().item(), 4)
        2.0
    """
    return record_calls(model, attends, _map_of_call, *inputs)


def attends(layer: nn.Module) -> bool:
    """Whether `attention_maps` can read the attention weights of a layer."""
    takes = signature(layer.forward).parameters
    return hasattr(layer, "attention_map") or "return_attention_weights" in takes


def _map_of_call(layer: Any, *args: Any, **options: Any) -> AttentionMap:
    if hasattr(layer, "attention_map"):
        return layer.attention_map(*args, **options)
    # Not layer(...), whose hook brought us here.
    out, (edges, weights) = layer.forward(*args, **options, return_attention_weights=True)
    if isinstance(edges, Neighborhood):
        return AttentionMap(edges, weights)
    if not isinstance(edges, Tensor) or edges.layout != torch.strided:
        raise TypeError(
            f"edge_index: {type(layer).__name__} got a sparse matrix, expected an edge list or a "
            "Neighborhood"
        )
    x = args[0] if args else options["x"]
    source = x if isinstance(x, Tensor) else x[0]
    if getattr(layer, "flow", "") == "target_to_source":
        edges = edges.flip(0)
    graph = Neighborhood.from_edge_index(edges, num_src=source.size(0), num_dst=out.size(0))
    return AttentionMap(graph, weights if graph.perm is None else weights[graph.perm])


@torch.no_grad()
def record_calls(
    model: nn.Module,
    asked: Callable[[nn.Module], bool],
    record: Callable[..., Any],
    *inputs: Any,
) -> list[Any]:
    """What `record` makes of each call of the layers asked, with its inputs, in evaluation mode."""
    found, caller = list[Any](), get_ident()

    def hook(layer: nn.Module, args: Any, options: dict[str, Any] | None = None) -> None:
        if get_ident() == caller:  # other threads run through it, too, while it is registered even
            found.append(record(layer, *args, **options or {}))

    layers = list(filter(asked, model.modules()))
    hooks = [layer.register_forward_pre_hook(hook, with_kwargs=True) for layer in layers]
    try:
        with evaluating(model):
            model(*inputs)
    finally:
        for handle in hooks:
            handle.remove()
    return found
