"""PyG's layers on few new edges: what they compute, without their inspection of a call.

Where a hook or an explainer asks for messages, and for errors, PyG's own code runs.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric import nn as pyg
from torch_geometric.nn.aggr import SumAggregation
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.utils import scatter, softmax

from graphtheory.nn.conv import on_core
from graphtheory.ops.derivatives import first_gradients, needs_grad
from graphtheory.ops.recorded import Needs, Recorded, Tensors, Work


def _summed(messages: Tensor, nodes: Tensor, count: int) -> Tensor:
    return messages.new_zeros(count, *messages.shape[1:]).index_add_(0, nodes, messages)


_FEW = 8_192  # edges up to which torch's `index_add` takes less time than PyG's `scatter`


class Direct(MessagePassing):
    """Mixin of PyG's layer whose messages are made of features of neighbors and maybe of edges."""

    inlined: ClassVar[on_core.Inlined] = {"aggr_module": tuple(on_core.REDUCTIONS)}

    def propagate(self, edge_index: Any, size: Any = None, *, x: Any, **of_edges: Any) -> Tensor:
        x_src, x_dst = (x, x) if isinstance(x, Tensor) else x
        reduce = on_core.REDUCTIONS.get(type(self.aggr_module))
        whole = self._decomposed_layers == 1 and x_src is x_dst
        if whole and reduce is not None and not on_core.changed(self, Direct):
            ends = edge_index if self.flow == "source_to_target" else edge_index.flip(0)
            try:
                src, dst = ends.unbind()
                messages = self.message(x_src.index_select(self.node_dim, src), **of_edges)
                count = x_dst.shape[self.node_dim]
                if reduce == "sum" and messages.dim() == 2 and dst.numel() < _FEW:
                    return _summed(messages, dst, count)
                return scatter(messages, dst, self.node_dim, count, reduce)
            except (IndexError, RuntimeError):  # which PyG raises in its own words
                pass
        return cast(Tensor, super().propagate(edge_index, size=size, x=x, **of_edges))


class _WeighedSum(Work):
    """Sums of messages [E, H, C] over the edges of nodes, by the softmax of their logits [E, H].

    PyG's softmax and product are 10 operations for autograd; here they are one.
    """

    name, outputs = "weighed sum", 1

    def __init__(self, nodes: Tensor, count: int, dropout: float) -> None:
        self.parts: Sequence[Tensor] = [nodes]
        self._count, self._dropout = count, dropout

    def forward(self, tensors: Tensors) -> Tensors:
        (logits, messages), nodes = cast(Any, tensors), self.parts[0]
        rows, shape = nodes[:, None].expand_as(logits), (self._count, logits.size(1))
        most = logits.new_zeros(shape).scatter_reduce_(0, rows, logits, "amax", include_self=False)
        weights = (logits - most.index_select(0, nodes)).exp_()
        total = logits.new_zeros(shape).scatter_add_(0, rows, weights).add_(1e-16)
        weights /= total.index_select(0, nodes)
        used, drawn = weights, None
        if self._dropout > 0:  # by what PyG's weights are multiplied
            drawn = functional.dropout(torch.ones_like(weights), self._dropout)
            used = weights * drawn
        weighed = messages * used.unsqueeze(-1)
        out = _summed(weighed, nodes, self._count)
        return out, weights, drawn, out

    def backward(self, grads: Sequence[Tensor], kept: Tensors, read: Tensors, needs: Needs) -> Any:
        (grad,), (weights, drawn, out), (_, messages) = grads, cast(Any, kept), cast(Any, read)
        nodes = self.parts[0]
        up = grad.index_select(0, nodes)
        of_weights, used = (up * messages).sum(-1), weights
        if drawn is not None:
            of_weights, used = of_weights * drawn, weights * drawn
        of_weights -= (grad * out).sum(-1).index_select(0, nodes)
        return of_weights.mul_(weights), up.mul_(used.unsqueeze(-1))

    def differentiable(self, grads: Any, kept: Tensors, read: Tensors, needs: Needs) -> Any:
        return first_gradients(partial(self.definition, kept[1]), read, grads)

    def definition(self, drawn: Tensor | None, logits: Any, messages: Any) -> Tensor:
        """The output by operations that autograd differentiates."""
        nodes = self.parts[0]
        weights = softmax(logits, nodes, num_nodes=self._count)
        if drawn is not None:
            weights = weights * drawn
        return scatter(messages * weights.unsqueeze(-1), nodes, 0, self._count, "sum")


class _Attention(_WeighedSum):
    """The same of query, key, value and features of edges [E, H, C] or None, added to both ends.

    The logits are scaled products of the queries of nodes and the keys of their neighbors.
    """

    def __init__(self, neighbors: Tensor, *args: Any) -> None:
        super().__init__(*args)
        self.parts = [*self.parts, neighbors]

    def _of_each_edge(self, query: Tensor, *others: Tensor) -> list[Tensor]:
        nodes, neighbors = self.parts
        return [query.index_select(0, nodes), *(t.index_select(0, neighbors) for t in others)]

    def forward(self, tensors: Tensors) -> Tensors:
        *of_nodes, edge = cast(Any, tensors)
        query, key, value = self._of_each_edge(*of_nodes)
        if edge is not None:
            key, value = key.add_(edge), value.add_(edge)
        logits = (query * key).sum(-1) * query.size(-1) ** -0.5
        return *super().forward((logits, value)), query, key, value

    def backward(self, grads: Sequence[Tensor], kept: Tensors, read: Tensors, needs: Needs) -> Any:
        (*of_sum, query, key, value), (nodes, neighbors) = cast(Any, kept), self.parts
        of_logits, of_value = super().backward(grads, of_sum, (None, value), needs)
        of_logits = (of_logits * query.size(-1) ** -0.5).unsqueeze(-1)
        found = key * of_logits, query * of_logits, of_value
        ends = nodes, neighbors, neighbors
        sums = map(_summed, found, ends, [len(t) for t in cast(Any, read[:3])])
        return *sums, found[1] + of_value if needs[3] else None

    def definition(self, drawn: Tensor | None, *tensors: Any) -> Tensor:
        query, key, value = self._of_each_edge(*tensors[:3])
        if tensors[3] is not None:
            key, value = key + tensors[3], value + tensors[3]
        return super().definition(drawn, (query * key).sum(-1) * query.size(-1) ** -0.5, value)


class _Attending(Direct):
    """Mixin of PyG's layer that sums messages by the softmax of logits."""

    inlined: ClassVar[on_core.Inlined] = {"aggr_module": (SumAggregation,)}

    def _ends(self, nodes: Tensor, edge_index: Tensor, edge_attr: Any) -> Any:
        """Neighbors and nodes of edges, dropout; None where PyG's own code has to run."""
        plain = (self.lin_edge is None) == (edge_attr is None) and self._decomposed_layers == 1
        if not plain or on_core.changed(self, _Attending):
            return None
        if torch.is_autocast_enabled(nodes.device.type):
            return None
        ends = edge_index if self.flow == "source_to_target" else edge_index.flip(0)
        return *ends.unbind(), float(self.dropout) if self.training else 0.0

    def _of_edges(self, edge_attr: Tensor) -> Tensor:
        return cast(Tensor, self.lin_edge(edge_attr).view(-1, self.heads, self.out_channels))


def _run(work: Work, *tensors: Tensor | None) -> Tensor:
    return cast(Tensor, Recorded(work, None)(tensors, needs_grad(tensors))[0])


class _Transformer(_Attending):
    def propagate(self, edge_index: Any, size: Any = None, **given: Any) -> Tensor:
        query, key, value, edge = (given[k] for k in ("query", "key", "value", "edge_attr"))
        if ends := self._ends(query, edge_index, edge):
            (src, dst, dropout), count = ends, query.size(0)
            try:
                edge = None if edge is None else self._of_edges(edge)
                return _run(_Attention(src, dst, count, dropout), query, key, value, edge)
            except (IndexError, RuntimeError):  # which PyG raises in its own words
                pass
        return cast(Tensor, super(Direct, self).propagate(edge_index, size=size, **given))


class _Sum(NamedTuple):
    of_messages: Tensor


class _GATv2(_Attending):
    def edge_updater(self, edge_index: Any, size: Any = None, **given: Any) -> Any:
        """PyG's weights of edges, or what `propagate` would make of them."""
        (x_src, x_dst), edge_attr = given["x"], given["edge_attr"]
        if ends := self._ends(x_src, edge_index, edge_attr):
            (src, dst, dropout), count = ends, x_dst.size(0)
            try:
                messages = x_src.index_select(0, src)
                x = x_dst.index_select(0, dst) + messages
                if edge_attr is not None:
                    x = x + self._of_edges(edge_attr)
                logits = (functional.leaky_relu(x, self.negative_slope) * self.att).sum(-1)
                return _Sum(_run(_WeighedSum(dst, count, dropout), logits, messages))
            except (IndexError, RuntimeError):  # which PyG raises in its own words
                pass
        return super().edge_updater(edge_index, size=size, **given)

    def propagate(self, edge_index: Any, size: Any = None, **given: Any) -> Tensor:
        found = given["alpha"]
        if isinstance(found, _Sum):
            return found.of_messages
        return cast(Tensor, super(Direct, self).propagate(edge_index, size=size, **given))


_OF = {pyg.TransformerConv: _Transformer, pyg.GATv2Conv: _GATv2}


@cache
def direct(kind: type) -> type:
    """The class of PyG with what is known of its messages before it."""
    return type(kind.__name__, (_OF.get(kind, Direct), kind), {})
