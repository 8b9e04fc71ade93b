"""Torch ops that something may trace, and that run by themselves where nothing does."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph.content import check_lookup
from graphtheory.graph.inference import innermost_transform
from graphtheory.ops import derivatives
from graphtheory.ops.bounds import Layout


class _Thread(threading.local):
    """Whether a backward pass runs in this thread: `.data` of what it saved may have been set."""

    backward = False


_thread = _Thread()


class Operator:
    """A function on tensors that is a custom op of torch, without the price of one in a plain call.

    `torch.compile`, `torch.export`, modes such as torch's counter of operations, and tensors of
    other types see the op, and so does `torch.func.vmap`, which calls it once for each entry of
    the batch. Gradients of `torch.func` see a function with a gradient of their kind. Between
    plain tensors the function runs by itself under an `autograd.Function` with the same gradient:
    passing torch's dispatcher takes as long as the attention of a thousand edges.

    Every call checks the ids that loops read. Calls of the op itself, as compiled and exported
    programs make, check all shapes as well, which the functions of `ops` have done, and so do calls
    in a backward pass, since `.data` of a saved tensor may have another shape by then. `planned`
    and `planned_direct`, the latter with a gradient, run a call whose kind was run before on ids
    that were found unchanged, of plain tensors that nothing traces or transforms: they check only
    what tables are looked up by.

    Args:
        name: Of the op, "graphtheory::...".
        layout: What holds of its arguments, as `Layout` describes it.
        function: Changes none of its arguments and returns none of them.
        schema: In torch's language; without it that of the function's annotations.
    """

    def __init__(
        self, name: str, layout: str, function: Callable[..., Any], schema: str | None = None
    ) -> None:
        self.layout = Layout(name, layout)

        @wraps(function)
        def planned(*args: Any) -> Any:
            for name, ids, table in self.layout.lookups:
                check_lookup(name, args[ids], args[table])
            return function(*_detached(args))

        def checked(*args: Any) -> Any:
            if _thread.backward:
                self.layout.check_shapes(args)
            self.layout.check_ids(args)
            return planned(*args)

        def from_outside(*args: Any) -> Any:
            self.layout.check_shapes(args)
            return checked(*args)

        schema = schema or torch.library.infer_schema(function, mutates_args=())
        self.op = torch.library.custom_op(name, from_outside, mutates_args=(), schema=schema)
        self.op.register_vmap(derivatives.entry_by_entry(self))
        self.register_fake = self.op.register_fake
        self._checked, self.planned = checked, planned
        self._direct = self._transformed = self.planned_direct = self.op  # without a gradient

    def recorded(self, args: tuple[Any, ...], plan: Any) -> Any:
        """The value of a call with a plan whose launches a backend can record."""
        return (self.planned_direct if plan.grad else self.planned)(*args)

    def register_autograd(
        self,
        backward: Callable[..., Any],
        *,
        setup_context: Callable[..., None] = lambda ctx, inputs, output: None,
    ) -> None:
        """As of torch's custom ops; the gradient of a list is a list or None."""
        self.op.register_autograd(backward, setup_context=setup_context)
        name = self.op._qualname
        self._direct = _differentiable(name, self._checked, backward, setup_context).apply
        self.planned_direct = _differentiable(name, self.planned, backward, setup_context).apply

        transformed = _differentiable(name, self._checked, backward, setup_context)
        transformed.forward = staticmethod(self._checked)
        transformed.setup_context = staticmethod(setup_context)
        transformed.vmap = staticmethod(derivatives.entry_by_entry(self))
        transformed.jvp = staticmethod(lambda ctx, *tangents: derivatives.refuse_tangents(name))
        self._transformed = transformed.apply

    def __call__(self, *args: Any, plan: Any = None) -> Any:
        """The value of the function, differentiable; with a `Plan` of the call nothing is asked.

        Raises:
            NotImplementedError: For forward-mode derivatives, whose tangents would be lost, and for
                batches of gradients outside `torch.func`.
        """
        if plan is not None:
            if plan.recorded is not None:
                return self.recorded(args, plan)
            return (self.planned_direct if plan.grad else self.planned)(*args)
        if torch.compiler.is_compiling():
            return self.op(*args)
        found = innermost_transform()
        transform = None if found is None else found.key()
        derivatives.check_derivatives(self.op._qualname, transform, args)
        if transform is not None:  # gradients and batches of them take no op of torch's
            own = transform in (derivatives.TRANSFORMS.Grad, derivatives.TRANSFORMS.Vmap)
            return (self._transformed if own else self.op)(*args)
        if derivatives.is_traced(args):
            return self.op(*args)
        if derivatives.needs_grad(args):
            return self._direct(*args)
        return self._checked(*args)


def operator(name: str, layout: str) -> Callable[[Callable[..., Any]], Operator]:
    """Decorate the function of an `Operator`; the layout has a word for each argument."""

    def make(function: Callable[..., Any]) -> Operator:
        names = zip(inspect.signature(function).parameters, layout.split(), strict=True)
        return Operator(name, " ".join(map(":".join, names)), function)

    return make


def _detached(args: tuple[Any, ...]) -> list[Any]:
    out = list(args)
    for k, a in enumerate(out):
        if isinstance(a, Tensor) and a.requires_grad:
            out[k] = a.detach()
    return out


def _differentiable(
    name: str, function: Callable[..., Any], backward: Callable[..., Any], setup: Callable[..., Any]
) -> type[Any]:
    """A function with that gradient, for plain calls."""

    class Direct(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = function(*inputs)
            setup(ctx, inputs, output)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            derivatives.check_derivatives(name, None, ())
            found = in_backward(backward, ctx, *grads)
            out = list(found) if isinstance(found, tuple) else [found]
            for k, grad in enumerate(out):
                if isinstance(grad, list):
                    out[k] = None
            return tuple(out)

    return Direct


def in_backward(function: Callable[..., Any], *args: Any) -> Any:
    """The result of a function whose calls of operators check all shapes."""
    before, _thread.backward = _thread.backward, True
    try:
        return function(*args)
    finally:
        _thread.backward = before
