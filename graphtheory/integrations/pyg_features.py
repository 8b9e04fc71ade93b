"""Features with few non-zeros on their way into a model that `accelerate` took."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch import nn

from graphtheory.nn.conv.sparse_features import maybe_sparse

_PREPARE = "__prepare_scriptable__"  # what torch.jit.script asks a module for


def install(model: nn.Module) -> None:
    """Let a model get `SparseFeatures` in the place of dense features with few non-zeros."""
    compiled = hasattr(model, "_orig_mod")  # torch.compile takes no such tensor
    if not compiled and _place(model) is None:
        model.register_forward_pre_hook(_read_few, with_kwargs=True)
        vars(model)[_PREPARE] = partial(_unhooked, model)


def uninstall(model: nn.Module) -> None:
    """Take that back."""
    place = _place(model)
    if place is not None:
        del model._forward_pre_hooks[place]
        model._forward_pre_hooks_with_kwargs.pop(place, None)
        vars(model).pop(_PREPARE, None)


def _place(model: nn.Module) -> int | None:
    return next((i for i, hook in model._forward_pre_hooks.items() if hook is _read_few), None)


def _read_few(model: nn.Module, args: Any, kwargs: Any) -> Any:
    if torch.compiler.is_compiling():
        return None
    return tuple(map(_few, args)), {name: _few(x) for name, x in kwargs.items()}


def _few(x: Any) -> Any:
    """Features by their non-zeros, also those of each kind of nodes in a dict."""
    return {kind: maybe_sparse(v) for kind, v in x.items()} if type(x) is dict else maybe_sparse(x)


def _unhooked(model: nn.Module) -> nn.Module:
    """The model that TorchScript compiles, which takes no hooks with `kwargs`."""
    prepare = getattr(type(model), _PREPARE, copy.copy)
    twin: nn.Module = prepare(model)
    for name in ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"):
        setattr(twin, name, copy.copy(getattr(twin, name)))
    uninstall(twin)
    return twin
