"""What follows from a tensor and would make the host wait for its device: computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from graphtheory.graph.outside import innermost_transform, outside
from graphtheory.ops.operator import watched

Fact = TypeVar("Fact")


def followed() -> bool:
    """Whether something compiles, transforms or traces a call, to which what is known is fixed."""
    return torch.compiler.is_compiling() or innermost_transform() is not None or watched()


class Once(Generic[Fact]):
    """A function of a tensor, computed once for each, and again after a change in place.

    Where something traces or transforms the call, to which an answer from before would be a
    constant, it is computed as if nothing were known.

    Args:
        compute: The function, of the tensor and what else a call has, which is the same for the
            same tensor; its result must not refer to the tensor.
    """

    def __init__(self, compute: Callable[..., Fact]) -> None:
        self._compute = compute
        self._known = WeakTensorKeyDictionary()

    def __call__(self, tensor: Tensor, *more: Any) -> Fact:
        """The answer for `tensor`."""
        if followed():
            return self._compute(tensor, *more)
        # Tensors made under inference_mode count no versions, and cannot be changed outside it.
        version = -1 if tensor.is_inference() else tensor._version
        known = self._known.get(tensor)
        if known is None or known[0] != version:
            with outside():  # inference mode: what is known must serve training
                known = self._known[tensor] = (version, self._compute(tensor, *more))
        return known[1]
