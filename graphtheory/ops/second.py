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
        outputs = definition(*inputs)
        pairs = [
            (out, up.to(out.dtype))
            for out, up in zip(_as_tuple(outputs), grads, strict=True)
            if out is not None and up is not None and out.requires_grad
        ]
        asked = [k for k, t in enumerate(inputs) if t is not None and t.requires_grad]
        found: list[Tensor | None] = [None] * len(inputs)
        if pairs and asked:
            outs, ups = zip(*pairs, strict=True)
            by = [inputs[k] for k in asked]
            some = torch.autograd.grad(outs, by, ups, create_graph=True, allow_unused=True)  # type: ignore[arg-type]
            found = _replaced(found, asked, some)
        return found


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
    given = [None if t is None else t.view_as(t) for t in (*grads, *tensors)]
    count = len(grads)
    by = [k for k, need in enumerate(needed) if need and given[k] is not None]
    asked = [k for k, u in enumerate(upstream) if u is not None and tensors[k] is not None]
    if not by or not asked or all(up is None for up in grads):
        return [None] * count, [None] * len(tensors)

    def firsts(*some: Tensor) -> tuple[Tensor, ...]:
        now = _replaced(given, by, some)
        above, inputs = now[:count], now[count:]

        def outputs(*some: Tensor) -> tuple[Tensor, ...]:
            found = _as_tuple(definition(*_replaced(inputs, asked, some)))
            pairs = zip(found, above, strict=True)
            return tuple(out for out, up in pairs if out is not None and up is not None)

        outs, back, *_ = torch.func.vjp(outputs, *(inputs[k] for k in asked))
        ups = (up for up in above if up is not None)
        found: tuple[Tensor, ...] = back(
            tuple(up.to(out.dtype) for out, up in zip(outs, ups, strict=True))
        )
        return found

    found, back, *_ = torch.func.vjp(firsts, *(given[k] for k in by))
    ups = zip(found, (upstream[k] for k in asked), strict=True)
    of = back(tuple(up.to(first.dtype) for first, up in ups if up is not None))
    out = _replaced([None] * len(given), by, of)
    return out[:count], out[count:]


def _replaced(
    tensors: Sequence[Tensor | None], places: list[int], some: Any
) -> list[Tensor | None]:
    """The tensors, those at some places replaced."""
    out = list(tensors)
    for k, t in zip(places, some, strict=True):
        out[k] = t
    return out


def _as_tuple(outputs: Any) -> Maybe:
    return outputs if isinstance(outputs, tuple) else (outputs,)
