"""What follows from a tensor and would make the host wait for its device: computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.weak import WeakTensorKeyDictionary

from graphtheory.graph.content import state_of
from graphtheory.graph.inference import innermost_transform, leave_inference_mode

Fact = TypeVar("Fact")


def is_tracing() -> bool:
    """Whether something compiles, transforms or traces a call, to which what is known is fixed."""
    return (
        torch.compiler.is_compiling()
        or innermost_transform() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._is_tracing()
        or forward_ad._current_level >= 0
    )


class PerTensorCache(Generic[Fact]):
    """A function of a tensor, computed again after any change of its content, and while traced.

    Its result must not refer to the tensor.
    """

    def __init__(self, compute: Callable[..., Fact]) -> None:
        self._compute = compute
        self._known = WeakTensorKeyDictionary()

    def __call__(self, tensor: Tensor, *more: Tensor) -> Fact:
        """The answer for `tensor`."""
        state = None if is_tracing() else state_of(tensor, *more)
        if state is None:
            return self._compute(tensor, *more)
        known = self._known.get(tensor)
        if known is not None and known[0] == state:  # and others did not change what they got
            fact = known[2]
            if not isinstance(fact, Tensor) or state_of(fact) == known[1]:
                return fact
        with leave_inference_mode():  # inference mode: what is known must serve training
            fact = self._compute(tensor, *more)
        held = state_of(fact) if isinstance(fact, Tensor) else None
        self._known[tensor] = state, held, fact
        return fact
