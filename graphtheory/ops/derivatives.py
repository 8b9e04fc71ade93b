"""Derivatives of gradients, gradients of batches, and which derivatives an op does not have."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._pytree import tree_map

from graphtheory.graph.content import PLAIN, is_tracing

TRANSFORMS = torch._C._functorch.TransformType
BATCHED_GRADS: Any = torch._C._parse_dispatch_key("VmapMode")
Maybe = Sequence[Tensor | None]


class _Thread(threading.local):
    """Whether a backward pass runs in this thread: `.data` of what it saved may have been set."""

    backward = False


thread = _Thread()


def check_derivatives(name: str, transform: Any, args: tuple[Any, ...]) -> None:
    """Raise for derivatives in forward mode."""
    tangents = transform == TRANSFORMS.Jvp
    if transform is None and forward_ad._current_level >= 0:
        tensors = (a for a in args if isinstance(a, Tensor))
        tangents = any(forward_ad.unpack_dual(a).tangent is not None for a in tensors)
    if tangents:
        refuse_tangents(name)


def refuse_tangents(name: str) -> NoReturn:
    """Raise, since forward-mode derivatives would be lost."""
    raise NotImplementedError(
        f"{name}: no forward-mode derivatives (torch.func.jvp, jacfwd, hessian, "
        "torch.autograd.forward_ad); reverse mode works (torch.func.grad, vjp, jacrev, backward)"
    )


def is_traced(args: Sequence[Any]) -> bool:
    """Whether a mode, a tracer or a tensor of another type has to see the op."""
    if torch._C._len_torch_dispatch_stack() > 0 or torch._C._is_tracing():
        return True
    for a in args:  # noqa: SIM110  (a generator costs as much as the rest)
        if isinstance(a, Tensor) and type(a) not in PLAIN:
            return True
    return False


def is_followed(tensors: Maybe) -> bool:
    """Whether a backward pass is to have a gradient of its own, or something has to see it."""
    if torch.is_grad_enabled() or is_tracing() or is_batched():
        return True
    for t in tensors:  # noqa: SIM110  (a generator costs as much as the rest)
        if t is not None and type(t) not in PLAIN:
            return True
    return False


def needs_grad(args: Sequence[Any]) -> bool:
    """Whether a backward pass to one of the tensors among them may follow."""
    if torch.is_grad_enabled():
        for a in args:
            if isinstance(a, Tensor) and a.requires_grad:
                return True
    return False


def may_run_twice(training: bool) -> bool:
    """Whether this may be a call of a checkpoint, which has to save and draw the same again."""
    blind = training and not torch.is_grad_enabled()
    return blind or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def entry_by_entry(call: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """The rule of `torch.func.vmap` that calls once for each entry of the batch."""

    def entry(arg: Any, dim: Any, i: int) -> Any:
        if isinstance(arg, (list, tuple)):  # a gradient passes on what a call got, lists or not
            return type(arg)(entry(a, d, i) for a, d in zip(arg, dim, strict=True))
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


def is_batched() -> bool:
    """Whether gradients come in batches, as with `is_grads_batched`."""
    return bool(torch._C._dispatch_tls_is_dispatch_key_included(BATCHED_GRADS))


def of_batches(call: Callable[..., Any], args: Sequence[Any]) -> Any:
    """What a call gives of batches of gradients (`is_grads_batched`), once for each entry."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    # with the axis of the batch first, of size 0 where there is none
    given = [torch._remove_batch_dim(a, level, 0, 0) if isinstance(a, Tensor) else () for a in args]
    outputs = [
        call(*(g[i] if len(g) else a for a, g in zip(args, given, strict=True)))
        for i in range(max(map(len, given)))
    ]
    if not outputs:
        return call(*args)
    return tree_map(lambda *parts: torch._add_batch_dim(torch.stack(parts), 0, level), *outputs)


def first_gradients(
    definition: Callable[..., Any], tensors: Maybe, grads: Maybe
) -> list[Tensor | None]:
    """Gradients of `definition` by those of its tensors that require one, differentiable again.

    Args:
        definition: Takes `tensors`, returns a tensor or a tuple; autograd differentiates it as
            often as asked.
        tensors: Its inputs.
        grads: Gradient of each output.
    """
    with torch.enable_grad():
        inputs = [None if t is None else t.view_as(t) for t in tensors]
        return _grad(_outputs(definition, inputs), grads, inputs, again=True)


def second_gradients(
    definition: Callable[..., Any], tensors: Maybe, grads: Maybe, upstream: Maybe,
    needed: Sequence[bool],
) -> tuple[list[Tensor | None], list[Tensor | None]]:  # fmt: skip
    """Gradients of sum(upstream * first_gradients(definition, tensors, grads)).

    Args:
        definition: As above.
        tensors: As above.
        grads: As above; the first gradients depend on them as well.
        upstream: Gradient of each entry of the first gradients, None where nothing depends on it.
        needed: Whether a gradient by each of `grads`, then of `tensors`, is asked for.

    Returns:
        The gradients by `grads` and by `tensors`.
    """
    apart = (need and _has_no_graph(t) for t, need in zip((*grads, *tensors), needed, strict=True))
    pairs = zip(tensors, upstream, strict=True)  # of an inner call's gradient an outer one asks
    if any(apart) or any(u is not None and t is not None and not t.requires_grad for t, u in pairs):
        return _by_transforms(definition, tensors, grads, upstream, needed)
    again = torch.is_grad_enabled()  # a third derivative may follow
    with torch.enable_grad():
        inputs, above = ([_own(t, again) for t in some] for some in (tensors, grads))
        asked = [None if u is None else t for t, u in zip(inputs, upstream, strict=True)]
        firsts = _grad(_outputs(definition, inputs), above, asked, again=True)
        found = _grad(firsts, upstream, [*above, *inputs], again)
    return found[: len(above)], found[len(above) :]


def _has_no_graph(tensor: Tensor | None) -> bool:
    """Whether nothing computed from a tensor has a gradient, as where `torch.func.vjp` has ended.

    Such a tensor still says that it requires one.
    """
    with torch.enable_grad():
        return tensor is not None and not tensor.view_as(tensor).requires_grad


def _by_transforms(
    definition: Callable[..., Any], tensors: Maybe, grads: Maybe, upstream: Maybe,
    needed: Sequence[bool],
) -> tuple[list[Tensor | None], list[Tensor | None]]:  # fmt: skip
    """The same by `torch.func.vjp`, of tensors that autograd does not follow."""
    given = [None if t is None else t.view_as(t) for t in (*grads, *tensors)]  # no ended wrapper
    count = len(grads)
    by = [k for k, need in enumerate(needed) if need and given[k] is not None]
    asked = [k for k, u in enumerate(upstream) if u is not None and tensors[k] is not None]

    def firsts(*some: Tensor) -> tuple[Tensor, ...]:
        now = _with(given, by, some)
        above, inputs = now[:count], now[count:]

        def outputs(*some: Tensor) -> tuple[Tensor, ...]:
            found = _outputs(definition, _with(inputs, asked, some))
            pairs = zip(found, above, strict=True)
            return tuple(out for out, up in pairs if out is not None and up is not None)

        outs, back, *_ = torch.func.vjp(outputs, *(inputs[k] for k in asked))
        ups = (up for up in above if up is not None)
        grads: tuple[Tensor, ...] = back(
            tuple(up.to(out.dtype) for out, up in zip(outs, ups, strict=True))
        )
        return grads

    found, back, *_ = torch.func.vjp(firsts, *(given[k] for k in by))
    ups = zip(found, (upstream[k] for k in asked), strict=True)
    of = back(tuple(up.to(first.dtype) for first, up in ups if up is not None))
    out = _with([None] * len(given), by, of)
    return out[:count], out[count:]


def _with(tensors: Sequence[Tensor | None], places: list[int], some: Any) -> list[Tensor | None]:
    """The tensors, those at some places replaced."""
    out = list(tensors)
    for k, t in zip(places, some, strict=True):
        out[k] = t
    return out


def _outputs(definition: Callable[..., Any], inputs: Maybe) -> Maybe:
    outputs = definition(*inputs)
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _own(tensor: Tensor | None, again: bool) -> Tensor | None:
    """A tensor by which alone the derivative is taken; part of the graph if one more may follow."""
    if tensor is None or not tensor.requires_grad:
        return tensor
    return tensor.view_as(tensor) if again else tensor.detach().requires_grad_()


def _grad(outputs: Maybe, above: Maybe, inputs: Maybe, again: bool) -> list[Tensor | None]:
    """The gradient of each input that has one."""
    pairs = [
        (out, up)
        for out, up in zip(outputs, above, strict=True)
        if out is not None and up is not None and out.requires_grad
    ]
    asked = [t for t in inputs if t is not None and t.requires_grad]
    if not pairs or not asked:
        return [None] * len(inputs)
    outs, ups = zip(*((out, up.to(out.dtype)) for out, up in pairs), strict=True)
    found = iter(torch.autograd.grad(outs, asked, ups, create_graph=again, allow_unused=True))
    return [next(found) if t is not None and t.requires_grad else None for t in inputs]


def materialized(ctx: Any, grads: list[Any]) -> list[Tensor] | None:
    """Gradients of outputs, zeros of `ctx.shapes` for some absent ones; None if all are absent."""
    some = [grad for grad in grads if grad is not None]
    if not some:
        return None
    if len(some) < len(grads):
        for k, (shape, dtype) in enumerate(ctx.shapes):
            if grads[k] is None:
                grads[k] = some[0].new_zeros(shape, dtype=dtype)
    return grads


def in_backward(function: Callable[..., Any], *args: Any) -> Any:
    """The result of a function whose calls of operators check all shapes."""
    before, thread.backward = thread.backward, True
    try:
        return function(*args)
    finally:
        thread.backward = before
