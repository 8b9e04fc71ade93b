"""Which calls of a drop-in are the first on few edges, where PyG's layer is the faster one."""

from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.nn.modules.module import _has_any_global_hook as has_global_hooks
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation

from graphtheory.graph.content import is_tracing
from graphtheory.ops.derivatives import may_run_twice

_MET: dict[tuple[int, int], Any] = {}  # ids of an edge list and a layer -> a reference to the list
_MOST_MET = 10_000


def has_met(edge_index: object, layer: object) -> bool:
    """Whether a layer has met these edges, of the last some thousand meetings."""
    met = _MET.get((id(edge_index), id(layer)))
    return met is not None and met() is edge_index


def meet(edge_index: Tensor, layer: object) -> None:
    """Note that a layer meets an edge list."""
    if len(_MET) >= _MOST_MET:
        _MET.clear()
    _MET[id(edge_index), id(layer)] = ref(edge_index)


def is_first(layer: Any, x: Any = None, edge_index: Any = None, *more: Any, **named: Any) -> bool:
    """Whether these are few edges, maybe with weights, that the layer has not met before.

    To sort them would then take longer than PyG's layer does, of the kinds and sizes for which its
    results and gradients are ours.
    """
    if has_met(edge_index, layer) or type(edge_index) is not Tensor or type(x) is not Tensor:
        return False
    if edge_index.layout is not torch.strided or edge_index.is_meta:  # matrices may hold int64
        return False
    saved = edge_index.is_inference() and not torch.is_inference_mode_enabled()  # torch refuses
    if saved or x.dim() != 2 or is_tracing() or has_global_hooks():
        return False
    own, modules = layer.__dict__, layer.__dict__["_modules"]
    if "parametrizations" in modules:  # whose parameters are attributes of their class
        return False
    on_gpu, count = not x.is_cpu, edge_index.numel() // 2
    if on_gpu and torch.are_deterministic_algorithms_enabled():  # as PyG's sums are not
        return False
    edges, size = (0, layer.pays_on_gpu) if on_gpu else layer.pays_from
    if count >= edges and count * x.size(1) >= size:
        return False
    if type(modules.get("aggr_module")) not in (SumAggregation, MeanAggregation):
        return False  # PyG's gradient of a largest value of 0 counts one entry too many
    for weight in (*more, *named.values()):  # anything else is for our checks
        if weight is not None:
            shapes = (count,), (count, getattr(layer, "edge_dim", None) if on_gpu else None)
            of_edges = type(weight) is Tensor and weight.shape in shapes
            if not of_edges or not weight.dtype.is_floating_point:
                return False
    if edge_index.dtype is not torch.int64 or own.get("cached") or may_run_twice(layer.training):
        return False
    if own["_forward_hooks"] or own["_backward_hooks"]:  # which get this very layer
        return False
    meet(edge_index, layer)
    return True
