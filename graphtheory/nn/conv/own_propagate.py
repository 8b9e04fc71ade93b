"""Layers whose `forward` is PyG's own and whose `propagate` runs on the core."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

from torch import Tensor
from torch_geometric.nn.aggr import MaxAggregation, MeanAggregation, MinAggregation, SumAggregation
from torch_geometric.nn.conv import MessagePassing

from graphtheory.nn.conv import on_core
from graphtheory.ops.edge import Reduction

REDUCTIONS: dict[type, Reduction] = {
    SumAggregation: "sum", MeanAggregation: "mean", MaxAggregation: "max", MinAggregation: "min",
}  # fmt: skip


class OwnPropagate(on_core.OnCore):
    """Mixin of a layer that keeps PyG's `forward`; list it before PyG's layer.

    A subclass has `_run`, which returns what PyG's `propagate` does, or None where only PyG's can;
    then that one runs, as while an explainer or a hook asks for messages.
    """

    parts: ClassVar[tuple[type, ...] | None] = None  # PyG's own forward runs them
    inlined: ClassVar[tuple[str, ...]] = ("aggr_module",)

    def _run(self, edge_index: Any, size: Any, given: dict[str, Any]) -> Tensor | None:
        raise NotImplementedError

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """Keep this `propagate`, which PyG would replace by one that it generates."""

    def __prepare_scriptable__(self) -> MessagePassing:
        """PyG's layer with the same parameters, which `torch.jit.script` compiles instead."""
        twin: Any = copy.copy(self)
        twin.__class__ = next(k for k in type(self).__mro__ if not issubclass(k, on_core.OnCore))
        twin._set_jittable_templates()  # as PyG does when its first layer is made
        return twin

    def propagate(self, edge_index: Any, size: Any = None, **kwargs: Any) -> Tensor:
        """The reduced messages of the neighbors."""
        out = None if self.needs_messages() else self._run(edge_index, size, kwargs)
        if out is not None:
            return out
        edge_index = self.for_messages(edge_index)
        return MessagePassing.propagate(self, edge_index, size=size, **kwargs)

    # what PyG puts on a layer while it is explained, and afterwards
    _orig_propagate, _jinja_propagate = MessagePassing.propagate, propagate


def check_reduction(layer: MessagePassing) -> None:
    """Raise unless `layer` reduces by a sum, mean, largest or smallest."""
    if type(layer.aggr_module) not in REDUCTIONS:
        raise ValueError(f"aggr: got {layer.aggr!r}, expected 'sum', 'mean', 'max' or 'min'")


def check_layout(layer: MessagePassing, node_dim: int) -> None:
    """Raise unless nodes are on the layer's usual axis and features are not decomposed."""
    if layer.decomposed_layers != 1:
        raise ValueError(f"decomposed_layers: got {layer.decomposed_layers}, expected 1")
    if layer.node_dim != node_dim:
        raise ValueError(f"node_dim: got {layer.node_dim}, expected {node_dim}")
