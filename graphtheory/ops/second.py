"""Derivatives of gradients, by a definition of the operation that autograd can follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Maybe = Sequence[Tensor | None]


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
    definition: Callable[..., Any], tensors: Maybe, grads: Maybe, upstream: Maybe
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Gradients of sum(upstream * first_gradients(definition, tensors, grads)).

    Args:
        definition: As above.
        tensors: As above.
        grads: As above; the first gradients depend on them as well.
        upstream: Gradient of each entry of the first gradients, None where nothing depends on it.

    Returns:
        The gradients by `grads` and by `tensors`.
    """
    again = torch.is_grad_enabled()  # a third derivative may follow
    with torch.enable_grad():
        inputs, above = ([_own(t, again) for t in some] for some in (tensors, grads))
        asked = [None if u is None else t for t, u in zip(inputs, upstream, strict=True)]
        firsts = _grad(_outputs(definition, inputs), above, asked, again=True)
        found = _grad(firsts, upstream, [*above, *inputs], again)
    return found[: len(above)], found[len(above) :]


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
