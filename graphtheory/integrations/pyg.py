"""PyG models on the core: their layers change class, everything else stays."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn import MessagePassing
from torch_geometric.nn import conv as pyg

from graphtheory.integrations.layer_costs import LayerCost, costs_of, table
from graphtheory.nn import conv
from graphtheory.nn.conv import (
    GPSConv,
    gated_conv,
    hetero_conv,
    on_core,
    pna_conv,
    weighted_sums,
)
from graphtheory.nn.conv.on_core import OnCore, OwnPropagate
from graphtheory.nn.conv.sparse_features import read_few

_DROP_INS: dict[type[nn.Module], Any] = {
    getattr(pyg, name): getattr(module, name)
    for module, names in (
        (conv, "TransformerConv GATConv GATv2Conv GCNConv GPSConv"),
        (weighted_sums, "SAGEConv GINConv GINEConv GraphConv ChebConv SGConv APPNP"),
        (pna_conv, "PNAConv"),
        (gated_conv, "ResGatedGraphConv"),
        (hetero_conv, "RGCNConv FastRGCNConv HGTConv HANConv"),
    )
    for name in names.split()
}
_NAMES = {kind.__name__ for kind in _DROP_INS}
_PREPARE = "__prepare_scriptable__"  # what torch.jit.script asks a module for


class Swapped(NamedTuple):
    """A swapped layer: its qualified name, its class before and after."""

    name: str
    before: type[nn.Module]
    after: type[nn.Module]


class Kept(NamedTuple):
    """A message-passing layer that was not swapped: its qualified name, its class, and why."""

    name: str
    kind: type[nn.Module]
    reason: str


@dataclass(frozen=True)
class Acceleration:
    """What `accelerate` did to a model; `print` shows it as a table.

    Attributes:
        swapped: The layers that now run on the core.
        kept: The other message-passing layers, each with the reason.
        costs: Time and memory of each layer and of the model before and after, with `report`.
    """

    swapped: tuple[Swapped, ...]
    kept: tuple[Kept, ...]
    _layers: list[tuple[Any, Swapped]] = field(repr=False, compare=False)
    _model: nn.Module = field(repr=False, compare=False)
    costs: tuple[LayerCost, ...] = field(default=(), compare=False)

    def undo(self) -> None:
        """Restore the class of every swapped layer; the weights stay as they are.

        A `GCNConv` with `cached=True` caches the edges of its next call. If a layer has changed
        class since, as by parametrization, or its forward was replaced, maybe by a function that
        calls the one of now, that is a RuntimeError and none is changed.
        """
        for layer, (name, before, after) in self._layers:
            own = vars(layer)
            if type(layer) is not after:
                raise RuntimeError(
                    f"{name or 'model'}: is a {type(layer).__name__} by now, expected the "
                    f"{after.__name__} that it was swapped for"
                )
            for method in ("forward", "propagate"):
                if method in own and not on_core.is_pygs(own[method], before, after):
                    raise RuntimeError(
                        f"{name or 'model'}: its {method} was replaced after accelerate, expected "
                        f"its own: delete the attribute {method} before undo, and set it after"
                    )
        if self._layers:
            _read_densely(self._model)
        while self._layers:
            layer, (_, before, after) = self._layers.pop()
            if issubclass(before, pyg.GCNConv):
                layer._cached_edge_index = layer._cached_adj_t = None
            for name in ("_kept", "_pyg", "_again"):
                vars(layer).pop(name, None)
            layer.__class__ = before
            generated = getattr(after, "_jinja_propagate", None)  # put there by an explanation
            if getattr(vars(layer).get("propagate"), "__func__", layer) is generated:
                del vars(layer)["propagate"]

    def __str__(self) -> str:
        rows = [
            ("swapped", name or "(model)", kind.__name__, _on_new_edges(after))
            for name, kind, after in self.swapped
        ]
        rows += [("kept", name or "(model)", kind.__name__, why) for name, kind, why in self.kept]
        if not rows:
            return "no layer to swap"
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([f"layers: {len(self.swapped)} swapped, {len(self.kept)} kept", *lines])


def _on_new_edges(kind: Any) -> str:
    few = getattr(kind, "pays_from", (0,))[0]  # GPSConv is no layer of messages
    return f"(below {few:,} edges, the first call on a graph uses PyG's code)" if few else ""


def accelerate(
    model: nn.Module, *, sparse_features: bool = True, report: Any = None
) -> Acceleration:
    """Swap the layers of a PyG model for those of `graphtheory.nn`, in place.

    Every `TransformerConv`, `GATConv`, `GATv2Conv`, `GCNConv`, `GPSConv`, `RGCNConv`,
    `FastRGCNConv` and `HGTConv` of PyG in the model, itself included, becomes ours, with the same
    results; `SAGEConv`, `GINConv`, `GINEConv`, `GraphConv`, `ChebConv`, `SGConv`, `APPNP`,
    `PNAConv`, `ResGatedGraphConv` and `HANConv` keep PyG's forward and reduce by `ops`. Only the
    class of a layer changes: parameters, hooks, optimizers, shared layers and state dicts remain.
    Attention dropout draws other random numbers, and the docstrings of the new layers say what else
    differs. `torch.jit.script(model)` compiles, and leaves in `model`, PyG's layers with these
    parameters.

    Features with few non-zeros, such as Cora's, reach the model as `nn.SparseFeatures` from the
    second call with the same tensor on: linear maps and dropout then skip the zeros. Results are
    the same to rounding; dropout of such features keeps its probability, but draws other random
    numbers than PyG, whose zeros take most of the time of an epoch.

    To sort the edges of a graph pays off in later calls, or where they are many. At the first call
    on a new list of few edges, without features of edges, a swapped layer runs as PyG's does; the
    report has the number. Calls with the same tensor after that run on the core.

    A layer is kept if results could differ, with the reason in the report: it is of another class
    or a subclass, also by parametrization; it has options that the drop-in does not support, or
    submodules or methods that are not PyG's own; an explainer or a hook needs its messages; its
    weights are uninitialized, or its edges already cached. A model without layers of PyG, or one
    that was swapped before, is not changed.

    Args:
        model: Any module.
        sparse_features: Whether to read features with few non-zeros by them.
        report: Inputs of the model, as a tuple such as (x, edge_index) or a dict of named ones.
            Copies of the model run on them, before and after, and a table of time and memory of
            each layer is printed. If the model raises an error, it is left unchanged.

    Returns:
        What was swapped, what was kept and why; its `undo` restores the model.

    Raises:
        TypeError: If `model` is not a module, or `sparse_features` not a bool.
        ValueError: If the model does not run on the inputs of `report`.

    Example:
        >>> from torch_geometric.nn.models import GAT
        >>> model = GAT(16, 32, num_layers=2, out_channels=4, heads=4)
        >>> x, edge_index = torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> before = model(x, edge_index)
        >>> report = accelerate(model)
        >>> print(report)
        layers: 2 swapped, 0 kept
        swapped  convs.0  GATConv  (below 4,000 edges, the first call on a graph uses PyG's code)
        swapped  convs.1  GATConv  (below 4,000 edges, the first call on a graph uses PyG's code)
        >>> torch.testing.assert_close(model(x, edge_index), before)
        >>> report.undo()
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: got {type(model).__name__}, expected a torch.nn.Module")
    if not isinstance(sparse_features, bool):
        raise TypeError(f"sparse_features: got {sparse_features!r}, expected True or False")
    costs = () if report is None else _measured(model, report, sparse_features)
    layers: list[tuple[Any, Swapped]] = []
    kept = []
    for name, layer in model.named_modules():
        if not _passes_messages(layer):
            continue
        reason = next(_objections(layer), None)
        if reason is None:
            layers.append((layer, Swapped(name, type(layer), _DROP_INS[type(layer)])))
        else:
            kept.append(Kept(name, type(layer), reason))
    for layer, swap in layers:
        layer.__class__ = swap.after
        if issubclass(swap.after, OnCore) and "_jinja_propagate" not in vars(swap.after):
            layer._set_jittable_templates()  # as PyG does when the first layer of a class is made
        if issubclass(swap.after, OnCore):
            vars(layer)["_pyg"] = swap.before
        if issubclass(swap.after, OwnPropagate):  # PyG's own, after an explanation
            vars(layer).pop("propagate", None)
    if layers and sparse_features:
        _read_sparsely(model)
    if costs:
        print(table(costs))
    return Acceleration(tuple(swap for _, swap in layers), tuple(kept), layers, model, costs)


def _measured(model: nn.Module, inputs: Any, sparse_features: bool) -> tuple[LayerCost, ...]:
    """Costs of copies of the model, as it is and accelerated."""
    kinds = {name: type(m).__name__ for name, m in model.named_modules() if _passes_messages(m)}
    before = costs_of(copy.deepcopy(model), list(kinds), inputs)
    twin = copy.deepcopy(model)
    found = accelerate(twin, sparse_features=sparse_features)
    after = costs_of(twin, [swap.name for swap in found.swapped], inputs)
    why = {kept.name: kept.reason for kept in found.kept}
    after = {name: cost for name, cost in after.items() if name not in why}
    rows = []
    for name, kind in ({"": type(model).__name__} | kinds).items():
        costs = [cost[name] for cost in (before, after) if name in cost]
        seconds, peak_bytes = zip(*costs, strict=True) if costs else ((), ())
        reason = why.get(name, "" if costs else "not reached by these inputs")
        rows.append(LayerCost(name, kind, seconds, peak_bytes, reason))
    return tuple(rows)


def _passes_messages(layer: nn.Module) -> bool:
    if isinstance(layer, torch.jit.ScriptModule):
        return layer.original_name in _NAMES
    if isinstance(layer, pyg.GPSConv):
        return not isinstance(layer, GPSConv)
    return isinstance(layer, MessagePassing) and not isinstance(layer, OnCore)


def _objections(layer: nn.Module) -> Iterator[str]:
    """Reasons why a drop-in might compute something else than the layer."""
    base = next((kind for kind in type(layer).__mro__ if kind in _DROP_INS), None)
    if isinstance(layer, torch.jit.ScriptModule):
        yield "compiled by TorchScript: accelerate before that"
    elif base is None:
        yield "no drop-in for this class"
    elif type(layer) is not base:
        yield f"a subclass of {base.__name__}, which may compute something else"
    else:
        yield from _objections_to_state(layer, _DROP_INS[base])


def _objections_to_state(layer: Any, drop_in: Any) -> Iterator[str]:
    unused = "lin_skip." if not getattr(layer, "root_weight", True) else None
    lazy = (name for name, parameter in layer.named_parameters() if is_lazy(parameter))
    if any(unused is None or not name.startswith(unused) for name in lazy):
        yield "has no weights yet: run the model once before"
    for cache in ("_cached_edge_index", "_cached_adj_t"):
        if getattr(layer, cache, None) is not None:
            yield "holds the edges of an earlier call (cached=True): accelerate before the first"
    try:
        drop_in.check_options(layer)
    except ValueError as error:
        yield str(error)
    reason = (
        "its forward was replaced" if "forward" in vars(layer) else on_core.changed(layer, drop_in)
    )
    if reason:
        yield reason


def _read_sparsely(model: nn.Module) -> None:
    """Let a model get `SparseFeatures` in the place of dense features with few non-zeros."""
    compiled = hasattr(model, "_orig_mod")  # torch.compile takes no such tensor
    if not compiled and _place(model) is None:
        model.register_forward_pre_hook(read_few, with_kwargs=True)
        vars(model)[_PREPARE] = partial(_unhooked, model)


def _read_densely(model: nn.Module) -> None:
    place = _place(model)
    if place is not None:
        del model._forward_pre_hooks[place]
        model._forward_pre_hooks_with_kwargs.pop(place, None)
        vars(model).pop(_PREPARE, None)


def _place(model: nn.Module) -> int | None:
    return next((i for i, hook in model._forward_pre_hooks.items() if hook is read_few), None)


def _unhooked(model: nn.Module) -> nn.Module:
    """The model that TorchScript compiles, which takes no hooks with `kwargs`."""
    prepare = getattr(type(model), _PREPARE, copy.copy)
    twin: nn.Module = prepare(model)
    for name in ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"):
        setattr(twin, name, copy.copy(getattr(twin, name)))
    _read_densely(twin)
    return twin
