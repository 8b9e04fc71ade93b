"""Another `forward` for a module, under what other libraries put around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any

from torch import nn

OWN = "_graphtheory_forward"  # attribute of a module: its `Forward`
_GUARD = "_graphtheory_guard"  # attribute of a model: the `Guard` of its pattern


class Forward:
    """Computes a module as ``compute(module, ...)``; once taken off, as its class does."""

    compute: Callable[..., Any] | None = None

    def __init__(self, module: nn.Module) -> None:
        self.module, self.bound = module, _slot(module) in vars(module)

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self.compute is None:
            return type(self.module).forward(self.module, *args, **options)
        return self.compute(self.module, *args, **options)


def _slot(module: nn.Module) -> str:
    """Where the `forward` lies that runs, inside the hooks of accelerate if there are any."""
    return "_old_forward" if {"_hf_hook", "_old_forward"} <= vars(module).keys() else "forward"


def require_free(base: nn.Module, modules: Iterable[nn.Module]) -> None:
    """Raise ValueError where a module has a `forward` that another one would put out of use."""
    for module in modules:
        own = vars(module).get(_slot(module))
        free = (None, MethodType(type(module).forward, module))  # accelerate leaves the second one
        if own not in free and OWN not in vars(module):
            raise ValueError(
                f"model: {name_of(module, base)}.forward was replaced, by {own!r}, which would not "
                "run any more; expected its class's: replace it after `apply`, or use a hook"
            )


def name_of(module: nn.Module, base: nn.Module) -> str:
    """The name of a module in a model, or its class."""
    return next((n for n, m in base.named_modules() if m is module), type(module).__name__)


class Guard:
    """Before each call of a model: the modules that `apply` has patched are those that will run."""

    def __init__(self, base: nn.Module, modules: Iterable[nn.Module]) -> None:
        patched = set(modules)
        self.modules = {name: m for name, m in base.named_modules() if m in patched}
        self.remove = base.register_forward_pre_hook(self).remove

    def __call__(self, base: nn.Module, args: Any) -> None:
        for name, module in self.modules.items():
            found: Any = base
            for part in name.split("."):
                found = getattr(found, part, None)
            if found is not module:
                raise ValueError(
                    f"model: {name} was replaced after `apply`, by a {type(found).__name__} on "
                    "which the rule does not run; expected what was there: apply the rule again"
                )


def guard(model: nn.Module, modules: Iterable[nn.Module]) -> None:
    """Let a model have a `Guard` of these modules, in place of the one before; none if empty."""
    if (before := vars(model).pop(_GUARD, None)) is not None:
        before.remove()
    if modules := list(modules):
        setattr(model, _GUARD, Guard(model, modules))


def put_on(module: Any, compute: Callable[..., Any]) -> None:
    """Let a module be computed by another function, of the module and its arguments."""
    made = vars(module).setdefault(OWN, Forward(module))
    made.compute, slot = compute, _slot(module)
    if vars(module).get(slot) in (None, MethodType(type(module).forward, module)):
        setattr(module, slot, made)


def take_off(module: Any) -> bool:
    """Undo `put_on`; return whether there was anything."""
    made = vars(module).get(OWN)
    if made is None or made.compute is None:
        return False
    made.compute = None
    for slot in ("forward", "_old_forward"):
        if vars(module).get(slot) is made:
            delattr(module, slot)
            if made.bound or slot == "_old_forward":
                setattr(module, slot, MethodType(type(module).forward, module))
            delattr(module, OWN)  # else it is still called by what was put around it
    return True
