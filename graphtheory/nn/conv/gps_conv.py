"""GPS: message passing beside global attention, as PyG's layer of the same name."""

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.module import _has_any_global_hook as has_global_hooks
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.inits import reset

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.nn.attention import AttentionMap, Bias
from graphtheory.nn.batches import graph_cliques
from graphtheory.nn.conv import on_core
from graphtheory.ops.look_up import bias_per_edge
from graphtheory.patterns import attention_logits


class GPSConv(pyg.GPSConv):
    r"""Any PyG convolution beside attention among all nodes of each graph, without padding.

    .. math::
        y = \operatorname{N}_1(x + \operatorname{conv}(x, E))
        + \operatorname{N}_2(x + \operatorname{MHA}(x)), \qquad
        x' = \operatorname{N}_3(y + \operatorname{MLP}(y))

    Drop-in for PyG's `GPSConv` with ``attn_type="multihead"``: same constructor, parameters and
    state dict, same results up to rounding; only attention dropout draws other random numbers.
    Each graph is a set of `graph.cliques`, so memory depends on the graphs of the batch and not on
    the largest of them. `torch.export` takes any number of nodes, edges and graphs, ONNX too where
    nothing is added to the logits.

    Args:
        channels, conv, heads, dropout, act, act_kwargs, norm, norm_kwargs: As in PyG.
        attn_type: "multihead".
        attn_kwargs: Arguments of `torch.nn.MultiheadAttention`, such as ``{"dropout": 0.1}``.
        bias: Module that makes the bias of every pair of nodes from its `distance`, as `BucketBias`
            does; PyG's layer has none.

    Shapes:
        - **x:** [N, channels].
        - **edge_index:** what `conv` takes; keywords that are not listed here go to it, too.
        - **batch:** graph of each node, int64 [N] in ascending order; None is one graph.
        - **distance:** integers [P], or [P, k] for a `JointBias`, for the P pairs of nodes of the
          same graph, target by target as in ``graph.cliques(sizes)``, and as `batch.distance` of
          cached distances has them; required with `bias`.
        - **attn_bias:** floating [P, heads], added to the logits.
        - **output:** [N, channels].

    Raises:
        ValueError: If `attn_type` is not "multihead" or `attn_kwargs` add sources or sizes of their
            own; if `batch` does not ascend, or shapes differ from these.

    Source:
        Rampášek et al. (2022), eqs. (4) to (8). The biases are those of GraphGPS's Graphormer
        layer, which PyG's leaves out.

    Example:
        >>> from torch_geometric.nn import GCNConv
        >>> layer = GPSConv(16, GCNConv(16, 16), heads=4)
        >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> batch = torch.tensor([0, 0, 1, 1])
        >>> layer(torch.randn(4, 16), edge_index, batch).shape
        torch.Size([4, 16])
    """

    bias: nn.Module | None
    inlined: ClassVar[on_core.Inlined] = {"attn": (nn.MultiheadAttention,)}

    __call__: Callable[..., Tensor]

    def __init__(
        self,
        channels: int,
        conv: nn.Module | None,
        heads: int = 1,
        dropout: float = 0.0,
        act: str | Callable[..., Any] | None = "relu",
        act_kwargs: dict[str, Any] | None = None,
        norm: str | Callable[..., Any] | None = "batch_norm",
        norm_kwargs: dict[str, Any] | None = None,
        attn_type: str = "multihead",
        attn_kwargs: dict[str, Any] | None = None,
        *,
        bias: nn.Module | None = None,
    ) -> None:
        _check_kind(attn_type)
        super().__init__(
            channels, conv, heads, dropout, act, act_kwargs, norm, norm_kwargs, attn_type,
            attn_kwargs,
        )  # fmt: skip
        self.check_options(self)
        self.register_module("bias", bias)

    @staticmethod
    def check_options(layer: pyg.GPSConv) -> None:
        """Raise if `layer`, PyG's or this one, attends in a way that is not computed here."""
        _check_kind(layer.attn_type)
        problem = _other_attention(layer)
        if problem:
            raise ValueError(f"attn_kwargs: got {problem}")

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self._modules.get("bias") is not None:
            reset(self._modules["bias"])

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        batch: Tensor | None = None,
        *,
        distance: Tensor | None = None,
        attn_bias: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        if x.dim() != 2 or x.size(1) != self.channels:
            raise ValueError(f"x: shape {tuple(x.shape)}, expected [num_nodes, {self.channels}]")
        plain = distance is None and attn_bias is None and self._modules.get("bias") is None
        reason = on_core.changed(self, GPSConv) or _other_attention(self)
        seen = not torch.compiler.is_compiling() and has_global_hooks()
        if plain and (reason or seen):  # torch calls a hook of each module
            return super().forward(x, edge_index, batch, **kwargs)
        if reason:
            raise NotImplementedError(
                f"attn: {reason}; with bias, distance or attn_bias it has to be torch's "
                "MultiheadAttention without hooks: remove what was changed"
            )
        parts = []
        if self.conv is not None:
            parts.append(self._add(self.conv(x, edge_index, **kwargs), x, self.norm1, batch))
        exporting = torch.compiler.is_exporting()
        dense = exporting and (batch is None or torch.onnx.is_in_onnx_export())
        if dense and plain:  # by torch's own operator
            attended = self._attend(x, batch)
        else:
            of_pairs = attn_bias if distance is None else distance
            nb = self._neighbors(x, batch, of_pairs)
            attended = self._attend(x, nb, self._bias(nb, distance, attn_bias))
        parts.append(self._add(attended, x, self.norm2, batch))
        out = sum(parts)
        return self._norm(self.norm3, out + self.mlp(out), batch)

    def attention_map(
        self,
        x: Tensor,
        edge_index: Any,
        batch: Tensor | None = None,
        *,
        distance: Tensor | None = None,
        attn_bias: Tensor | None = None,
        **kwargs: Any,
    ) -> AttentionMap:
        """Who attends to whom, and weights [P, heads] of `forward` without dropout."""
        nb = self._neighbors(x, batch)
        query, key, _ = self._project(x)
        logits = attention_logits(query, key, nb, self._bias(nb, distance, attn_bias), None)
        weights = ops.edge_softmax(logits, nb)
        return AttentionMap(copy.deepcopy(nb) if nb._sealed else nb, weights)

    def _neighbors(
        self, x: Tensor, batch: Tensor | None, of_pairs: Tensor | None = None
    ) -> Neighborhood:
        if not torch.compiler.is_exporting():
            return graph_cliques(batch, x.size(0), x.device)
        if batch is None:
            batch = torch.zeros(x.size(0), dtype=torch.int64, device=x.device)
        return clique_edges(batch, None if of_pairs is None else of_pairs.size(0))

    def _bias(self, nb: Neighborhood, distance: Tensor | None, attn_bias: Tensor | None) -> Bias:
        if attn_bias is not None:
            on_core.check_entries("attn_bias", attn_bias, "pair", nb.num_edges, self.heads)
        bias = self._modules.get("bias")  # a layer of PyG that changed class has no such entry
        if bias is None:
            if distance is not None:
                raise ValueError("distance: given, expected None: the layer was built without bias")
            return attn_bias
        if distance is None:
            raise ValueError(
                f"distance: got None, expected one value per pair, [{nb.num_edges}]: the layer has "
                "a bias"
            )
        on_core.check_entries("distance", distance, "pair", nb.num_edges, *distance.shape[1:])
        made = bias(distance)
        return made if attn_bias is None else bias_per_edge(made) + attn_bias

    def _project(self, x: Tensor) -> tuple[Tensor, ...]:
        both = functional.linear(x, self.attn.in_proj_weight, self.attn.in_proj_bias)
        return both.view(x.size(0), 3, self.heads, self.channels // self.heads).unbind(1)

    def _attend(self, x: Tensor, among: Neighborhood | Tensor | None, bias: Bias = None) -> Tensor:
        """Attention over a neighborhood or, of a program with dense attention, within graphs."""
        p = self.attn.dropout if self.training else 0.0
        query, key, value = self._project(x)
        if isinstance(among, Neighborhood):
            out = ops.attention(query, key, value, among, bias=bias, dropout=p)
        else:
            out = dense_attention(query, key, value, among, p)
        return functional.linear(out.flatten(1), self.attn.out_proj.weight, self.attn.out_proj.bias)

    def _add(self, h: Tensor, x: Tensor, norm: nn.Module | None, batch: Tensor | None) -> Tensor:
        h = functional.dropout(h, p=self.dropout, training=self.training)
        return self._norm(norm, h + x, batch)

    def _norm(self, norm: nn.Module | None, h: Tensor, batch: Tensor | None) -> Tensor:
        if norm is None:
            return h
        return norm(h, batch=batch) if self.norm_with_batch else norm(h)


def _check_kind(attn_type: str) -> None:
    if attn_type != "multihead":
        why = ": Performer replaces the softmax by random features" * (attn_type == "performer")
        raise ValueError(f"attn_type: got {attn_type!r}, expected 'multihead'{why}")


def _other_attention(layer: pyg.GPSConv) -> str:
    """Which option of a layer's attention differs from what is computed here; "" if none does."""
    attn = layer.attn
    if not isinstance(attn, nn.MultiheadAttention):
        return ""
    if attn.bias_k is not None:
        return "add_bias_kv=True, expected False: it adds a learned source to every graph"
    if attn.add_zero_attn:
        return "add_zero_attn=True, expected False: it adds a zero source to every graph"
    if not attn._qkv_same_embed_dim:
        sizes = f"kdim={attn.kdim} and vdim={attn.vdim}"
        return f"{sizes}, expected {attn.embed_dim} as the nodes have"
    if attn.num_heads != layer.heads or not attn.batch_first:
        return f"{attn}, expected {layer.heads} heads and batch_first=True"
    return ""


def clique_edges(batch: Tensor, num_pairs: int | None = None) -> Neighborhood:
    """The edges of `graph.cliques` for `torch.export`; a tensor of pairs may tell their number."""
    first = torch.searchsorted(batch, batch)
    size = torch.searchsorted(batch, batch, right=True) - first
    indptr = torch.cat([size.new_zeros(1), size.cumsum(0)])
    nodes = torch.arange(batch.size(0), device=batch.device)
    rows = nodes.repeat_interleave(size, output_size=num_pairs)  # [E]
    place = torch.arange(rows.size(0), device=batch.device) - indptr.index_select(0, rows)
    return Neighborhood(indptr, first.index_select(0, rows) + place, validate=False)


def dense_attention(
    query: Tensor, key: Tensor, value: Tensor, batch: Tensor | None, dropout: float
) -> Tensor:
    """Attention [N, H, C] within graphs by torch's own operator, which ONNX has, with a mask."""
    q, k, v = (t.transpose(0, 1)[None] for t in (query, key, value))  # [1, H, N, C]
    mask = None if batch is None else batch[:, None] == batch
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    return out[0].transpose(0, 1)
