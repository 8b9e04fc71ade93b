"""Functions as torch ops where something traces them, and called directly where nothing does."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._pytree import tree_map

from graphtheory.graph.content import PLAIN
from graphtheory.graph.inference import innermost_transform
from graphtheory.ops.bounds import Layout

_TRANSFORMS = torch._C._functorch.TransformType
_BATCHED_GRADS: Any = torch._C._parse_dispatch_key("VmapMode")


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
            self.layout.check_lookups(args)
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
        self.op.register_vmap(_entry_by_entry(self))
        self.register_fake = self.op.register_fake
        self._checked, self.planned = checked, planned
        self._direct = self._transformed = self.planned_direct = self.op  # without a gradient

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
        transformed.vmap = staticmethod(_entry_by_entry(self))
        transformed.jvp = staticmethod(lambda ctx, *tangents: _refuse_tangents(name))
        self._transformed = transformed.apply

    def __call__(self, *args: Any, plan: Any = None) -> Any:
        """The value of the function, differentiable; with a `Plan` of the call nothing is asked.

        Raises:
            NotImplementedError: For forward-mode derivatives, whose tangents would be lost, and for
                batches of gradients outside `torch.func`.
        """
        if plan is not None:
            return (self.planned_direct if plan.grad else self.planned)(*args)
        if torch.compiler.is_compiling():
            return self.op(*args)
        found = innermost_transform()
        transform = None if found is None else found.key()
        _check_derivatives(self.op._qualname, transform, args)
        if transform is not None:  # a gradient takes no op of torch's
            return (self._transformed if transform == _TRANSFORMS.Grad else self.op)(*args)
        if _is_traced(args):
            return self.op(*args)
        if torch.is_grad_enabled() and _needs_grad(args):
            return self._direct(*args)
        return self._checked(*args)


def operator(name: str, layout: str) -> Callable[[Callable[..., Any]], Operator]:
    """Decorate the function of an `Operator`; the layout has a word for each argument."""

    def make(function: Callable[..., Any]) -> Operator:
        names = zip(inspect.signature(function).parameters, layout.split(), strict=True)
        return Operator(name, " ".join(map(":".join, names)), function)

    return make


def _check_derivatives(name: str, transform: Any, args: tuple[Any, ...]) -> None:
    """Refuse forward-mode derivatives, and batches of gradients outside `torch.func`."""
    if torch._C._dispatch_tls_is_dispatch_key_included(_BATCHED_GRADS):
        raise NotImplementedError(
            f"{name}: no batches of gradients (is_grads_batched=True, or vectorize=True of "
            "torch.autograd.functional); torch.func.jacrev works"
        )
    tangents = transform == _TRANSFORMS.Jvp
    if transform is None and forward_ad._current_level >= 0:
        tensors = (a for a in args if isinstance(a, Tensor))
        tangents = any(forward_ad.unpack_dual(a).tangent is not None for a in tensors)
    if tangents:
        _refuse_tangents(name)


def _refuse_tangents(name: str) -> NoReturn:
    raise NotImplementedError(
        f"{name}: no forward-mode derivatives (torch.func.jvp, jacfwd, hessian, "
        "torch.autograd.forward_ad); reverse mode works (torch.func.grad, vjp, jacrev, backward)"
    )


def _is_traced(args: tuple[Any, ...]) -> bool:
    if torch._C._len_torch_dispatch_stack() > 0 or torch._C._is_tracing():
        return True
    for a in args:  # noqa: SIM110  (a generator costs as much as the rest)
        if isinstance(a, Tensor) and type(a) not in PLAIN:
            return True
    return False


def _entry_by_entry(call: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """The rule of `torch.func.vmap` that calls once for each entry of the batch."""

    def entry(arg: Any, dim: Any, i: int) -> Any:
        if isinstance(arg, list):
            return [entry(a, d, i) for a, d in zip(arg, dim, strict=True)]
        return arg if dim is None else arg.select(dim, i)

    def batched(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        outputs = [
            call(*(entry(a, d, i) for a, d in zip(args, in_dims, strict=True)))
            for i in range(info.batch_size)
        ]
        return tree_map(lambda *parts: torch.stack(parts), *outputs), tree_map(
            lambda _: 0, outputs[0]
        )

    return batched


def _needs_grad(args: tuple[Any, ...]) -> bool:
    for a in args:  # noqa: SIM110  (as above)
        if isinstance(a, Tensor) and a.requires_grad:
            return True
    return False


def _detached(args: tuple[Any, ...]) -> list[Any]:
    out = list(args)
    for k, a in enumerate(out):
        if isinstance(a, Tensor) and a.requires_grad:
            out[k] = a.detach()
    return out


def _differentiable(
    name: str,
    function: Callable[..., Any],
    backward: Callable[..., Any],
    setup: Callable[..., None],
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
            _check_derivatives(name, None, ())
            before, _thread.backward = _thread.backward, True
            try:
                found = backward(ctx, *grads)
            finally:
                _thread.backward = before
            out = list(found) if isinstance(found, tuple) else [found]
            for k, grad in enumerate(out):
                if isinstance(grad, list):
                    out[k] = None
            return tuple(out)

    return Direct
