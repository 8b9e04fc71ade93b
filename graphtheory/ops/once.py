"""Facts about a tensor that cost a wait for its device: read once, kept as long as the tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

Fact = TypeVar("Fact")


class Once(Generic[Fact]):
    """A function of a tensor, computed once for each, and anew after a change in place.

    Args:
        compute: What is asked of the tensor; its answer must not refer to the tensor.
    """

    def __init__(self, compute: Callable[[Tensor], Fact]) -> None:
        self._compute = compute
        self._known = WeakTensorKeyDictionary()

    def __call__(self, tensor: Tensor) -> Fact:
        """The answer for `tensor`."""
        # Tensors made under inference_mode count no versions, and cannot be changed outside it.
        version = -1 if tensor.is_inference() else tensor._version
        known = self._known.get(tensor)
        if known is None or known[0] != version:
            known = self._known[tensor] = (version, self._compute(tensor))
        return known[1]
