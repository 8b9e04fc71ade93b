"""What tensors hold now: whether it is what they held before, and whether ids lie in bounds.

Everything that the package remembers of a tensor is remembered with `state_of` it. A version is
not enough: writes through numpy, `.data` and tensors of inference mode do not count any.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import torch
from numba import njit
from torch import Tensor

from graphtheory.graph.outside import outside

_UNSIGNED = {torch.int64: np.uint64, torch.int32: np.uint32, torch.uint8: np.uint8}
_WORD = 8  # bytes


@njit(cache=True, nogil=True)
def _mixed(words):
    """The sum of all words, each mixed with its place so that the order counts."""
    total = np.uint64(0)
    for i in range(len(words)):
        word = words[i] + np.uint64(i) * np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        total += word ^ (word >> np.uint64(32))
    return total


@njit(cache=True, nogil=True)
def _largest(ids):
    """The largest of unsigned numbers: a negative id, read as one, is larger than any limit."""
    top = ids[0]
    for i in range(1, len(ids)):
        top = max(top, ids[i])
    return top


@njit(cache=True, nogil=True)
def _ascends(pointers):
    """Whether no pointer is smaller than the one before."""
    falls = 0
    for i in range(1, len(pointers)):
        falls += pointers[i] < pointers[i - 1]
    return falls == 0


@njit(cache=True, nogil=True)
def _count(numbers):
    """How many numbers are not 0."""
    total = 0
    for i in range(len(numbers)):
        total += numbers[i] != 0
    return total


def state_of(*tensors: Tensor) -> Hashable | None:
    """What stays the same while the tensors hold the same; None where a change goes unnoticed.

    In main memory a fingerprint of 64 bits of the whole content, which reads each tensor once. On
    other devices, where reading waits, torch's count of changes: it misses writes through `.data`.
    """
    states = [_state(tensor) for tensor in tensors]
    return None if None in states else tuple(states)


def _state(tensor: Tensor) -> Hashable | None:
    if not is_plain(tensor):
        return None
    if not tensor.is_cpu:
        return None if tensor.is_inference() else (tensor._version, *place_of(tensor))
    return tensor.shape, tensor.dtype, fingerprint(tensor)


def is_plain(tensor: Tensor) -> bool:
    """Whether it holds its values itself: no subclass, not on meta, not traced or transformed."""
    if torch.compiler.is_compiling():
        return False
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def place_of(tensor: Tensor) -> tuple[Hashable, ...]:
    """Where a tensor lies, and in which form."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def fingerprint(tensor: Tensor) -> int:
    """64 bits that depend on every byte of a tensor in main memory, and on their order."""
    found = _array(tensor)
    if not found.nbytes % _WORD and not found.ctypes.data % _WORD:
        return int(_mixed(found.view(np.uint64)))
    words = np.zeros(-(-found.nbytes // _WORD), np.uint64)
    words.view(np.uint8)[: found.nbytes] = found.view(np.uint8)
    return int(_mixed(words))


def count_nonzero(tensor: Tensor) -> int:
    """How many numbers of a tensor in main memory are not 0; NaN is not."""
    if tensor.dtype not in (torch.float32, torch.float64):
        return int(tensor.count_nonzero())
    return int(_count(_array(tensor)))


def _array(tensor: Tensor) -> np.ndarray:
    """The content as one axis, in bytes where numpy does not know the type."""
    with outside():  # a call of torch.func would wrap what is made of a plain tensor
        tensor = tensor.detach() if tensor.requires_grad else tensor
        tensor = tensor.contiguous()
        if tensor.dtype is torch.bfloat16 or tensor.is_complex() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)
        return tensor.numpy().reshape(-1)


def within(ids: Tensor, limit: int) -> bool:
    """Whether all ids, integers in main memory, lie in 0..limit-1; reads them once."""
    if ids.numel() == 0:
        return True
    unsigned = _UNSIGNED.get(ids.dtype)
    if unsigned is None:
        return bool(ids.min() >= 0) and bool(ids.max() < limit)
    return bool(_largest(_array(ids).view(unsigned)) < limit)


def ascends(pointers: Tensor, end: int) -> bool:
    """Whether int64 pointers in main memory run from 0 to `end` and never fall."""
    found = _array(pointers)
    return len(found) > 0 and found[0] == 0 and found[-1] == end and bool(_ascends(found))
