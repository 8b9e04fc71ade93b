"""The mode of a call, and out of it, to compute what later calls of any mode read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack


@contextmanager
def _left() -> Iterator[None]:
    with torch.inference_mode(False), temporarily_clear_interpreter_stack():
        yield


innermost_transform: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack
"""The call of torch.func that runs now; None outside."""


def leave_inference_mode() -> AbstractContextManager[object]:
    """Leave inference mode and torch.func: what is cached must serve every later call."""
    if torch.compiler.is_compiling():
        return nullcontext()
    transformed = innermost_transform() is not None
    return _left() if transformed or torch.is_inference_mode_enabled() else nullcontext()


def unwrapped(tensor: Tensor) -> Tensor:
    """The values of a tensor that calls of torch.func have wrapped, of all entries of a batch."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def savable(tensor: Tensor | None) -> Tensor | None:
    """The tensor; of one made in inference mode, which no backward pass can save, a copy."""
    if torch.compiler.is_compiling() or not isinstance(tensor, Tensor):
        return tensor
    if not tensor.is_inference():
        return tensor
    with leave_inference_mode():
        return tensor.clone()
