"""What follows from a tensor and would make the host wait for its device: computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from graphtheory.graph.content import state_of
from graphtheory.graph.outside import innermost_transform, outside
from graphtheory.ops.operator import watched

Fact = TypeVar("Fact")


def followed() -> bool:
    """Whether something compiles, transforms or traces a call, to which what is known is fixed."""
    return torch.compiler.is_compiling() or innermost_transform() is not None or watched()


class Once(Generic[Fact]):
    """A function of a tensor, computed once for each, and again after any change of its content.

    Where something traces or transforms the call, to which an answer from before would be a
    constant, it is computed as if nothing were known.

    Args:
        compute: The function, of the tensor and of what other tensors a call has; its result must
            not refer to the tensor.
    """

    def __init__(self, compute: Callable[..., Fact]) -> None:
        self._compute = compute
        self._known = WeakTensorKeyDictionary()

    def __call__(self, tensor: Tensor, *more: Tensor) -> Fact:
        """The answer for `tensor`."""
        state = None if followed() else state_of(tensor, *more)
        if state is None:
            return self._compute(tensor, *more)
        known = self._known.get(tensor)
        if known is None or known[0] != (state, _content(known[1])):
            with outside():  # inference mode: what is known must serve training
                found = self._compute(tensor, *more)
            known = self._known[tensor] = ((state, _content(found)), found)
        return known[1]


def _content(fact: object) -> object:
    """What a fact that others were given holds now, if it is a tensor."""
    return state_of(fact) if isinstance(fact, Tensor) else None
