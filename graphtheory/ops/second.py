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
    asked = [k for k, t in enumerate(tensors) if t is not None and t.requires_grad]
    with torch.enable_grad():
        found = _gradients(definition, tensors, grads, asked)
    return _replaced([None] * len(tensors), asked, found)


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
    given, count = [None if t is None else t.view_as(t) for t in (*grads, *tensors)], len(grads)
    by = [k for k, need in enumerate(needed) if need and given[k] is not None]
    asked = [k for k, u in enumerate(upstream) if u is not None and tensors[k] is not None]
    out: list[Tensor | None] = [None] * len(given)
    if by and asked and any(up is not None for up in grads):

        def firsts(*now: Tensor | None) -> Maybe:
            return _gradients(definition, now[count:], now[:count], asked)

        found = _gradients(firsts, given, [upstream[k] for k in asked], by)
        out = _replaced(out, by, found)
    return out[:count], out[count:]


def _gradients(
    definition: Callable[..., Any], tensors: Maybe, grads: Maybe, asked: list[int]
) -> Maybe:
    """Gradients of sum(grads * definition(*tensors)) by some of the tensors."""
    if not asked:
        return []

    def outputs(*some: Tensor) -> tuple[Tensor, ...]:
        found = definition(*_replaced(tensors, asked, some))
        pairs = zip(found if isinstance(found, (tuple, list)) else (found,), grads, strict=True)
        return tuple(out for out, up in pairs if out is not None and up is not None)

    outs, back, *_ = torch.func.vjp(outputs, *(tensors[k] for k in asked))
    ups = (up for up in grads if up is not None)
    found: Maybe = back(tuple(up.to(out.dtype) for out, up in zip(outs, ups, strict=True)))
    return found


def _replaced(tensors: Maybe, places: list[int], some: Maybe) -> list[Tensor | None]:
    """The tensors, those at some places replaced."""
    out = list(tensors)
    for k, t in zip(places, some, strict=True):
        out[k] = t
    return out
