"""Which calls of a drop-in are the first on few edges, where PyG's layer is the faster one."""

from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.nn.modules.module import _has_any_global_hook as has_global_hooks
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation

from graphtheory.graph import csr
from graphtheory.graph.content import is_tracing
from graphtheory.ops.derivatives import may_run_twice

# ids of an edge list and a layer -> a reference to the list, of the last some thousand meetings
_MET: dict[tuple[int, int], Any] = {}
_MOST_MET = 10_000


def is_first(layer: Any, x: Any = None, edge_index: Any = None, *more: Any, **named: Any) -> bool:
    """Whether these are few edges, maybe with weights, that the layer has not met before.

    To sort them would then take longer than PyG's layer does, of the kinds and sizes for which its
    results and gradients are ours.
    """
    key = id(edge_index), id(layer)
    met = _MET.get(key)
    if met is not None and met() is edge_index:
        return False
    if type(edge_index) is not Tensor or type(x) is not Tensor:
        return False
    if edge_index.layout is not torch.strided or edge_index.is_meta:  # matrices may hold int64
        return False
    if edge_index.dtype is not torch.int64 or x.dim() != 2 or is_tracing() or has_global_hooks():
        return False
    if edge_index.is_inference() and not torch.is_inference_mode_enabled():  # torch refuses to save
        return False
    own = layer.__dict__
    modules = own["_modules"]
    if "parametrizations" in modules:  # whose parameters are attributes of their class
        return False
    on_gpu, count, channels = not x.is_cpu, edge_index.numel() // 2, x.size(1)
    if not on_gpu:
        edges, size = layer.pays_from
        if count >= edges and count * channels >= size:
            return False
    elif count * channels >= layer.pays_on_gpu or torch._C._get_deterministic_algorithms():
        return False  # as PyG's sums are not
    if type(modules.get("aggr_module")) not in (SumAggregation, MeanAggregation):
        return False  # PyG's gradient of a largest value of 0 counts one entry too many
    alone = True
    for weight in (*more, *named.values()):  # anything else is for our checks
        if weight is not None:
            alone = False
            if type(weight) is not Tensor or not weight.dtype.is_floating_point:
                return False
            if weight.shape != (count,) and not (
                on_gpu and weight.shape == (count, getattr(layer, "edge_dim", None))
            ):
                return False
    few = on_gpu and alone and layer.is_whole and max(count, x.size(0)) <= csr.RANKED
    if few and not torch.is_autocast_enabled(x.device.type):
        return False  # these are sorted in one launch
    if own.get("cached") or may_run_twice(layer.training):
        return False
    if own["_forward_hooks"] or own["_backward_hooks"]:  # which get this very layer
        return False
    if len(_MET) >= _MOST_MET:
        _MET.clear()
    _MET[key] = ref(edge_index)
    return True
