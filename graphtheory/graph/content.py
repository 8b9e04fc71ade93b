"""What tensors hold now: whether it is what they held before, and whether ids lie in bounds.

Everything that the package remembers of a tensor is remembered with `state_of` it. A version is
not enough: writes through numpy, `.data` and tensors of inference mode do not count any. What is
remembered is computed out of the mode of a call, for later calls of any mode.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import ref

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad

from graphtheory.graph import compiling  # noqa: F401  # which speaks up


@contextmanager
def _left() -> Iterator[None]:
    with torch.inference_mode(False), temporarily_clear_interpreter_stack():
        yield


_STAY = nullcontext()
innermost_transform: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack
"""The call of torch.func that runs now; None outside."""


def leave_inference_mode() -> AbstractContextManager[object]:
    """Leave inference mode and torch.func: what is cached must serve every later call."""
    if torch.compiler.is_compiling():
        return _STAY
    transformed = innermost_transform() is not None
    return _left() if transformed or torch.is_inference_mode_enabled() else _STAY


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


_WORD = 8  # bytes
_IDS = (torch.int64, torch.int32, torch.uint8)
_FLAT = (torch.int64, torch.uint8)
_PADDING = np.zeros(_WORD, np.uint8)
PLAIN = (Tensor, torch.nn.Parameter)
Fact = TypeVar("Fact")


@njit(cache=True, nogil=True, no_cfunc_wrapper=True)
def _mixed(words):
    """The sum of all words, each mixed with its place so that the order counts."""
    total = np.uint64(0)
    for i in range(len(words)):
        word = words[i] + np.uint64(i) * np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        total += word ^ (word >> np.uint64(32))
    return total


@njit(cache=True, nogil=True, no_cfunc_wrapper=True)
def _within(ids, limit):
    """Whether all ids lie in 0..limit-1."""
    low, high = 0, -1
    for i in range(len(ids)):
        low, high = min(low, ids[i]), max(high, ids[i])
    return low >= 0 and high < limit


@njit(cache=True, nogil=True, no_cfunc_wrapper=True)
def _fit(pointers, ids, limit):
    """Whether pointers run from 0 to the number of ids without falling, and ids from 0 to limit."""
    falls = 0
    for i in range(1, len(pointers)):
        falls += pointers[i] < pointers[i - 1]
    ends = len(pointers) > 0 and pointers[0] == 0 and pointers[-1] == len(ids)
    return ends and falls == 0 and _within(ids, limit)


@njit(cache=True, nogil=True, no_cfunc_wrapper=True)
def _fit_both_ways(indptr, indices, t_indptr, targets, perm, limit):
    """Whether rows, and the same edges by source with their places, all hold together."""
    columns = len(t_indptr) == limit + 1 and len(targets) == len(indices)
    return (
        columns
        and _fit(indptr, indices, limit)
        and _fit(t_indptr, targets, len(indptr) - 1)
        and _fit(t_indptr, perm, len(indices))
    )


@njit(cache=True, nogil=True, no_cfunc_wrapper=True)
def _same(dense, indptr, columns, values):
    """Whether the values are all that is not 0 in a matrix, whose rows are read once."""
    for i in range(len(dense)):
        row, count = dense[i], 0
        for k in range(len(row)):
            count += row[k] != 0
        if count != indptr[i + 1] - indptr[i]:
            return False
        for t in range(indptr[i], indptr[i + 1]):
            if row[columns[t]] != values[t]:
                return False
    return True


def state_of(*tensors: Tensor, undisturbed: bool = False) -> Hashable | None:
    """What stays the same while the tensors hold the same; None where a change goes unnoticed.

    In main memory a fingerprint of 64 bits of the whole content, which reads each tensor once. On
    other devices, where reading waits, torch's count of changes: it misses writes through `.data`.
    `undisturbed` says that neither torch.func nor a compiler sees the call.
    """
    states: list[Hashable] = []
    if not undisturbed:
        undisturbed = innermost_transform() is None and not torch.compiler.is_compiling()
    for tensor in tensors:
        strided = undisturbed and tensor.layout is torch.strided and type(tensor) in PLAIN
        if not (strided and (tensor.is_cpu or not tensor.is_meta)) and not is_plain(tensor):
            return None
        if tensor.is_cpu:
            ids = strided and tensor.dtype in _FLAT and type(tensor) is Tensor
            if ids and tensor.is_contiguous():  # edge lists, pointers, distances: in one step
                content = tensor.numpy().reshape(-1)
            else:
                content = _array(tensor)
        elif tensor.is_inference():
            return None
        else:
            place = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
            states.append((tensor._version, place))
            continue
        flat = content.view(np.uint8)
        if len(flat) % _WORD:
            flat = np.concatenate([flat, _PADDING[: -len(flat) % _WORD]])
        states.append((tensor.shape, tensor.dtype, int(_mixed(flat.view(np.uint64)))))
    return tuple(states)


def is_plain(tensor: Tensor) -> bool:
    """Whether it holds its values itself: no subclass, not on meta, not traced or transformed."""
    if type(tensor) not in PLAIN or torch.compiler.is_compiling():
        return False
    wrapped = innermost_transform() is not None and (
        torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )
    return not wrapped and tensor.layout is torch.strided and not tensor.is_meta


def _array(tensor: Tensor) -> np.ndarray:
    """The content as one axis, in bytes where numpy does not know the type."""
    if innermost_transform() is not None:  # which would wrap what is made of a plain tensor
        with leave_inference_mode():
            return _array(tensor)
    if tensor.dtype in _IDS and tensor.dim() == 1 and tensor.is_contiguous():
        return tensor.numpy()
    if tensor.dtype is torch.bfloat16 or tensor.is_complex() or tensor.is_neg():
        tensor = tensor.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)
    found: np.ndarray = (tensor.detach() if tensor.requires_grad else tensor).numpy()
    return found if found.ndim == 1 and found.flags.c_contiguous else np.ravel(found)


def fit(pointers: Tensor, ids: Tensor, limit: int) -> bool:
    """Whether pointers run from 0 to the number of ids, never fall, and ids lie in 0..limit-1."""
    return bool(_fit(_array(pointers), _array(ids), limit))


def fit_both_ways(parts: Sequence[Tensor], limit: int) -> bool:
    """The same of [indptr, indices, t_indptr, targets, perm], the edges by target and by source."""
    return bool(_fit_both_ways(*map(_array, parts), limit))


def within(ids: Tensor, limit: int) -> bool:
    """Whether all ids, integers in main memory, lie in 0..limit-1; reads them once."""
    return bool(_within(_array(ids), limit))


def ascends(pointers: Tensor, end: int) -> bool:
    """Whether pointers in main memory run from 0 to `end` and never fall."""
    given = _array(pointers)
    falls = len(given) > 1 and bool((given[1:] < given[:-1]).any())
    return len(given) > 0 and given[0] == 0 and given[-1] == end and not falls


def holds(dense: Tensor, indptr: Tensor, columns: Tensor, values: Tensor) -> bool:
    """Whether a matrix in main memory has these non-zeros, given by row, and no others."""
    with leave_inference_mode():
        if dense.dtype not in (torch.float32, torch.float64):
            rows = torch.repeat_interleave(indptr.diff())
            same = torch.equal(dense[rows, columns], values)
            return same and int(dense.count_nonzero()) == len(values)
        given = dense.detach().contiguous().numpy()
    return bool(_same(given, *map(_array, (indptr, columns, values))))


def is_tracing() -> bool:
    """Whether something compiles, transforms or traces a call, to which what is known is fixed."""
    return (
        torch.compiler.is_compiling()
        or innermost_transform() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._is_tracing()
        or forward_ad._current_level >= 0
    )


def refuse_traces(of: str = "graph's number of nodes") -> None:
    """Raise under `torch.jit.trace`, whose program would take the nodes of now for any."""
    if not torch.compiler.is_compiling() and torch._C._is_tracing():
        raise NotImplementedError(
            f"torch.jit.trace: the program would keep this {of} for all others; "
            "torch.export and torch.compile take any number"
        )


class PerTensorCache(Generic[Fact]):
    """A function of a tensor, computed again after any change of its content, and while traced.

    Its result must not refer to the tensor.
    """

    def __init__(self, compute: Callable[..., Fact]) -> None:
        self._compute = compute
        # by id, behind a reference: found several times as fast as in torch's dictionaries
        self._known: dict[int, tuple[Any, ...]] = {}

    def __call__(self, tensor: Tensor, *more: Tensor) -> Fact:
        """The function's result for `tensor`."""
        state = None if is_tracing() else state_of(tensor, *more, undisturbed=True)
        if state is None:
            return self._compute(tensor, *more)
        known = self._known.get(id(tensor))
        if known is not None and known[0]() is tensor and known[1] == state:
            fact: Fact = known[3]  # which others may have changed
            if not isinstance(fact, Tensor) or state_of(fact) == known[2]:
                return fact
        with leave_inference_mode():  # inference mode: what is known must serve training
            fact = self._compute(tensor, *more)
        self._keep(tensor, state, fact)
        return fact

    def known(self, tensor: Tensor) -> Fact | None:
        """What is known of a tensor that a call outside traces has in hand; None if nothing is."""
        known = self._known.get(id(tensor))
        if (
            known is None
            or known[0]() is not tensor
            or known[1] != state_of(tensor, undisturbed=True)
        ):
            return None
        fact: Fact = known[3]
        return fact

    def tell(self, tensor: Tensor, fact: Fact) -> None:
        """Keep the answer for a tensor that the caller knows already."""
        if not is_tracing() and (state := state_of(tensor, undisturbed=True)) is not None:
            self._keep(tensor, state, fact)

    def _keep(self, tensor: Tensor, state: Hashable, fact: Fact) -> None:
        held = state_of(fact) if isinstance(fact, Tensor) else None
        known, place = self._known, id(tensor)  # which is another's only when this one is gone
        known[place] = ref(tensor, partial(known.pop, place)), state, held, fact


id_range: PerTensorCache[list[int]] = PerTensorCache(
    lambda ids: torch.stack(torch.aminmax(ids)).tolist()  # which waits for a device once
)
"""The least and the greatest id; `tell` it bounds of ids that cannot lie outside."""


def check_lookup(name: str, ids: Tensor | None, table: Tensor | int | None) -> None:
    """Raise unless every id is a row of the table or below the number of rows; reads all ids.

    To look at a GPU's memory waits for the device: once a tensor, and after a change in place.
    """
    rows = int(table.size(0) if isinstance(table, Tensor) else table or 0)
    if ids is None:
        if rows:
            raise ValueError(f"{name}: got None with a table of {rows} rows, expected one per edge")
        return
    if torch.compiler.is_compiling() or ids.numel() == 0 or ids.is_meta:
        return
    if type(ids) is Tensor and innermost_transform() is None:
        if ids.is_cpu and within(ids, rows):  # in one pass, which every call takes
            return
        found = None if ids.is_cpu else id_range.known(ids)
        if found is not None and found[0] >= 0 and found[1] < rows:
            return
    if ids.is_cuda and torch.cuda.is_current_stream_capturing():  # which cannot be asked
        torch._assert_async(((ids >= 0) & (ids < rows)).all(), f"{name}: out of 0..{rows - 1}")
        return
    with leave_inference_mode():
        ids = unwrapped(ids)
        if ids.is_cpu and is_plain(ids) and within(ids, rows):
            return
        low, high = id_range(ids)
    if low < 0 or high >= rows:
        raise IndexError(
            f"{name}: entries {low} to {high}, expected 0..{rows - 1} (rows of a table)"
        )
