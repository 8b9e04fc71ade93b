"""Launches of a call, noted when it runs first and given to the driver at once in later calls.

What a function of this folder does with tensors of one kind is a fixed sequence of tensors made and
kernels launched. `record` runs it and notes the sequence; a `Replay` goes through it with other
tensors of the kind, which takes a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from graphtheory.ops.recorded import Tensors, kinds, thread

Function = Callable[[Tensors], Tensors]


class Launcher(NamedTuple):
    """What Triton runs for a kind of launch, and what it is given beside grid and arguments."""

    kernel: Any
    compiled: Any  # which unloads its machine code when nobody holds it
    run: Callable[..., None]
    stream: Callable[[int], int]
    code: tuple[Any, ...]
    constants: tuple[Any, ...]


def watched(*kernels: Any) -> bool:
    """Whether something has to see every launch, or asks for other machine code from now on."""
    knobs = triton.knobs.runtime
    if knobs.launch_enter_hook.calls or knobs.launch_exit_hook.calls or knobs.debug:
        return True
    hooks = [kernel.pre_run_hooks for kernel in kernels]
    return any(hooks) or knobs.add_stages_inspection_hook is not None


class Recorder:
    """Notes what is made and launched. A tensor that it does not know makes the record void.

    Args:
        given: Tensors that differ from call to call, each an object of its own.
        fixed: Tensors that are the same in every call.
    """

    def __init__(self, given: Tensors, fixed: Sequence[Tensor]) -> None:
        self._held: list[Any] = [*given]  # so that no other tensor gets their ids
        self._places = {id(t): k for k, t in enumerate(given) if t is not None}
        self.fixed = {id(t): t for t in fixed}
        self.constants: list[Any] = []
        self.steps: list[tuple[Any, list[int], Any]] = []  # what runs, places of its arguments
        self.void = False

    def keep(self, *fixed: Tensor | None) -> None:
        """Note more tensors that are the same in every call."""
        self.fixed |= {id(t): t for t in fixed if t is not None}

    def place(self, arg: Any) -> int:
        """The place of a tensor; of what is the same in every call one below 0."""
        if isinstance(arg, Tensor) and id(arg) not in self.fixed:
            found = self._places.get(id(arg))
            self.void |= found is None
            return found or 0
        self.constants.append(arg.data_ptr() if isinstance(arg, Tensor) else arg)
        return -len(self.constants)

    def made(self, found: Any, function: Callable[..., Any], args: Tensors) -> None:
        """Note a tensor that a function has made of others, or a tuple of them."""
        places, offset = [self.place(t) for t in args], None
        self.void |= min(places, default=0) < 0
        of = args[0] if len(args) == 1 else None
        if of is not None and isinstance(found, Tensor) and found is not of:
            offset = _offset(found, of)
        self.steps.append((function, places, (len(self._held), offset)))
        for tensor in found if isinstance(found, tuple) else (found,):
            self._places[id(tensor)] = len(self._held)
            self._held.append(tensor)

    def launched(self, launcher: Launcher | None, sizes: Sequence[int], args: Tensors) -> None:
        """Note a launch; without a launcher it has to be left to Triton."""
        self.void |= launcher is None or len(args) < 2
        self.steps.append(((launcher, sizes), [self.place(a) for a in args], None))


def recorder() -> Recorder | None:
    """What notes the calls of this thread, if anything does."""
    found: Recorder | None = thread.recorder
    return found


def record(work: Function, tensors: Tensors, fixed: Sequence[Tensor]) -> tuple[Tensors, Replay]:
    """The results of `work` on tensors, and what gives them for others of the same kind.

    Args:
        work: Calls functions of this folder, and decides by shapes and types alone what.
        tensors: Of which one may stand at several places.
        fixed: Tensors that `work` reads in every call, unchanged.
    """
    apart = [None if t is None else t.detach() for t in tensors]
    note = Recorder(apart, fixed)
    before, thread.recorder = thread.recorder, note
    try:
        found = work(apart)
    finally:
        thread.recorder = before
    return found, Replay(note, apart, found)


class Replay:
    """The steps of a record, for tensors of the same kind."""

    def __init__(self, note: Recorder, given: Tensors, found: Tensors) -> None:
        self._results = [None if t is None else note.place(t) for t in found]
        self.kinds, self._strides = kinds(*given), [t if t is None else t.stride() for t in given]
        launches = [what[0] for what, *_ in note.steps if isinstance(what, tuple)]
        self._void = (
            note.void or not launches or min((k or 0 for k in self._results), default=0) < 0
        )
        if self._void:
            return
        self._fixed, self._constants = note.fixed, note.constants[::-1]
        self._like, like = next((k, t) for k, t in enumerate(given) if t is not None)
        self._device = like.get_device()
        self._kernels, self._stream = {one.kernel for one in launches}, launches[0].stream
        self._steps: list[tuple[Any, ...]] = []
        asked = {k for k in self._results if k is not None}  # of others, addresses are enough
        used, count = asked.copy(), len(note.constants)
        for what, places, made in reversed(note.steps):
            at = places[0] if len(places) == 1 else places
            if made is None:
                one, sizes = what
                pick = itemgetter(*(count + k for k in places))
                self._steps.append((one.run, sizes, one.code, pick, one.constants, one.compiled))
            elif not places and made[0] not in used:  # nothing reads its address
                self._steps.append((None, None, count + self._like, 0, None, None))
            elif made[1] is not None and made[0] not in asked:
                self._steps.append((None, None, count + places[0], made[1], None, None))
            else:
                asked |= set(places)
                self._steps.append((None, what, at, None, None, None))
            used |= set(places)
        self._steps.reverse()

    def __call__(self, tensors: Tensors) -> Tensors | None:
        """What `work` would return; None where it has to run itself."""
        if self._void or watched(*self._kernels):
            return None
        held, places, odd = [*tensors], self._constants.copy(), 0
        for t, kind, strides in zip(tensors, self.kinds, self._strides, strict=True):
            if t is None or kind is None:
                if t is not kind:
                    return None
                places.append(None)
                continue
            shape, dtype, device = kind
            if t.shape != shape or t.dtype is not dtype or t.get_device() != device:
                return None
            if t.stride() != strides:
                return None
            places.append(at := t.data_ptr())
            odd |= at
        if odd & 15:
            return None
        current: Any = torch._C
        if current._cuda_getDevice() == self._device:
            return self._run(held, places)
        with torch.cuda.device_of(tensors[self._like]):
            return self._run(held, places)

    def _run(self, held: list[Any], places: list[Any]) -> Tensors:
        """The results, given the tensors and their addresses, on their device."""
        stream = self._stream(self._device)
        for run, what, at, pick, constants, _ in self._steps:
            if run is not None:
                run(*what, stream, *at, (*pick(places), *constants))
            elif what is None:
                held.append(None)
                places.append(places[at] + pick)
            else:
                one = what(held[at]) if type(at) is int else what(*[held[k] for k in at])
                for tensor in one if type(one) is tuple else (one,):
                    held.append(tensor)
                    places.append(tensor.data_ptr())
        return [None if k is None else held[k] for k in self._results]


def _offset(view: Tensor, of: Tensor) -> int | None:
    """How many bytes after another tensor one begins in the same memory; None if it does not."""
    if view.numel() == 0 or view.untyped_storage().data_ptr() != of.untyped_storage().data_ptr():
        return None
    return view.data_ptr() - of.data_ptr()
