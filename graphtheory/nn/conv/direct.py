"""PyG's layers of weighted sums at a call on few new edges: its operations, with less around."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any, ClassVar

from torch import Tensor
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.utils import scatter

from graphtheory.nn.conv import on_core


class Direct(MessagePassing):
    """Mixin of PyG's layer whose messages are features of neighbors, maybe times weights [E].

    Its `propagate` gathers, multiplies and scatters as PyG's does, without PyG's inspection of
    arguments and of what the layer overrides. Where a hook or an explainer asks for messages, and
    for errors, PyG's own runs.
    """

    inlined: ClassVar[on_core.Inlined] = {"aggr_module": tuple(on_core.REDUCTIONS)}

    def propagate(self, edge_index: Any, size: Any = None, *, x: Any, **weights: Any) -> Tensor:
        x_src, x_dst = (x, x) if isinstance(x, Tensor) else x
        reduce = on_core.REDUCTIONS.get(type(self.aggr_module))
        (weight,) = (*weights.values(), None)[:1]
        whole = self._decomposed_layers == 1 and x_src is x_dst
        if whole and reduce is not None and not on_core.changed(self, Direct):
            src, dst = edge_index if self.flow == "source_to_target" else edge_index.flip(0)
            with suppress(IndexError, RuntimeError):  # which PyG raises in its own words
                messages = x_src.index_select(self.node_dim, src)
                if weight is not None:
                    messages = weight.view(-1, 1) * messages
                return scatter(messages, dst, self.node_dim, x_dst.size(self.node_dim), reduce)
        out: Tensor = super().propagate(edge_index, size=size, x=x, **weights)
        return out


@cache
def direct(kind: type) -> type:
    """The class of PyG with `Direct` before it."""
    return type(kind.__name__, (Direct, kind), {})
