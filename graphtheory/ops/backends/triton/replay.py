"""Launches of a call, noted when it runs first and given to the driver at once in later calls.

What a function of this folder does with tensors of one kind is a fixed sequence of tensors made and
kernels launched. `record` runs it and notes the sequence; a `Replay` goes through it with other
tensors of the kind, which takes a tenth of the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from graphtheory.ops.recorded import Tensors, kinds, thread

Function = Callable[[Tensors], Any]
Step = tuple[Any, list[int], Any]  # what runs, places of its arguments, what is known of its result


class Launcher(NamedTuple):
    """What Triton runs for a kind of launch, and what it is given beside grid and arguments."""

    kernel: Any
    compiled: Any  # which unloads its machine code when nobody holds it
    run: Callable[..., None]
    stream: Callable[[int], int]
    code: tuple[Any, ...]
    constants: tuple[Any, ...]


def watched(kernel: Any) -> bool:
    """Whether something has to see every launch, or asks for other machine code from now on."""
    knobs = triton.knobs.runtime
    if knobs.launch_enter_hook.calls or knobs.launch_exit_hook.calls or knobs.debug:
        return True
    return bool(kernel.pre_run_hooks) or knobs.add_stages_inspection_hook is not None


WATCHED = (  # the same for all kernels of a replay, without a call
    "knobs.launch_enter_hook.calls or knobs.launch_exit_hook.calls or knobs.debug "
    "or knobs.add_stages_inspection_hook is not None"
)


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
        self.steps: list[Step] = []
        self.void = False

    def forget(self) -> None:
        """Let go of the tensors of the call."""
        self._held, self._places = [], {}

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
        places, several = [self.place(t) for t in args], isinstance(found, tuple)
        self.void |= min(places, default=0) < 0
        every, of = found if several else (found,), args[0] if len(args) == 1 else None
        offsets = [None if t is of else _offset(t, of) for t in every]
        shape = None  # of another view
        if of is not None and offsets == [0] and found.nbytes == of.nbytes:
            shape = found.shape if found.is_contiguous() else None
        known = None if None in offsets else offsets
        count = len(every) if several else None
        self.steps.append((function, places, (len(self._held), count, known, shape)))
        for tensor in every:
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


def _never(tensors: Tensors) -> None:
    """What a record gives that cannot be gone through with other tensors."""


class Replay:
    """The steps of a record, for tensors of the same kind, as one function of Python."""

    def __init__(self, note: Recorder, given: Tensors, found: Tensors) -> None:
        self._results = [None if t is None else note.place(t) for t in found]
        self.kinds = kinds(*given)
        self._gaps = [None if t is None or t.is_contiguous() else t.stride() for t in given]
        self._launchers = [what[0] for what, *_ in note.steps if isinstance(what, tuple)]
        least = min((k or 0 for k in self._results), default=0)
        void = note.void or not self._launchers or least < 0
        note.forget()
        self._note: Any = None if void else note  # which holds what is the same in every call
        self.call: Function = _never if void else self._first
        """What `work` would return of tensors; None where it has to run itself."""

    def _first(self, tensors: Tensors) -> Tensors | None:
        self.call = self._written(self._note)  # now: many records are never used
        found: Tensors | None = self.call(tensors)
        return found

    def _written(self, note: Recorder) -> Function:
        """The function, which returns None where `work` has to run itself."""
        names: dict[str, Any] = {
            "current": torch._C._cuda_getDevice, "on": torch.cuda.device_of,
            "knobs": triton.knobs.runtime, "stream_of": self._launchers[0].stream,
        }  # fmt: skip
        kernels = {one.kernel for one in self._launchers}
        names |= {f"kernel{n}": kernel for n, kernel in enumerate(kernels)}
        hooks = (f"kernel{n}.pre_run_hooks" for n in range(len(kernels)))
        watched = " or ".join([WATCHED, *hooks])
        lines, read, addresses = _lines(note, self._results, names)
        some = [k for k, kind in enumerate(self.kinds) if kind is not None and k in read]
        pointers, device = [k for k in some if k in addresses], self.kinds[some[0]][2]
        differs = [f"t{k} is not None" for k, kind in enumerate(self.kinds) if kind is None]
        for k in some:
            shape, names[f"type{k}"], at = self.kinds[k]
            gaps = self._gaps[k]
            apart = f"t{k}.stride() != {gaps}" if gaps else f"not t{k}.is_contiguous()"
            differs.append(
                f"t{k} is None or t{k}.shape != {(*shape,)} or t{k}.dtype is not type{k} or "
                f"t{k}.get_device() != {at} or {apart}"
            )
        every = ", ".join(f"t{k}" for k in range(len(self.kinds)))
        lines = [
            "def call(tensors):",
            f" {every}, = tensors",
            f" if {' or '.join(differs)} or {watched}: return None",
            *(f" p{k} = t{k}.data_ptr()" for k in pointers),
            f" if ({' | '.join(f'p{k}' for k in pointers) or 0}) & 15: return None",
            f" if current() != {device}:",
            f"  with on(t{some[0]}): return call(tensors)",
            f" stream = stream_of({device})",
            *lines,
            f" return [{', '.join('None' if k is None else f't{k}' for k in self._results)}]",
        ]
        exec(compile("\n".join(lines), "<replay>", "exec"), names)
        found: Function = names["call"]
        return found


def _lines(
    note: Recorder, results: Sequence[int | None], names: dict[str, Any]
) -> tuple[list[str], set[int], set[int]]:
    """The steps as lines of Python: t3 is the tensor at place 3, and p3 its address.

    Also the places of the tensors that they read, and of those whose addresses they read.
    """
    asked, used, lines = {k for k in results if k is not None}, set[int](), list[str]()

    def shown(place: int) -> str:
        if place >= 0:
            used.add(place)
            return f"p{place}"
        constant = note.constants[-place - 1]
        if type(constant) in (int, bool):
            return repr(constant)
        names[f"c{-place}"] = constant
        return f"c{-place}"

    for n, (what, places, made) in reversed([*enumerate(_reshaped(note.steps, results))]):
        if made is None:
            launcher, sizes = what
            args = ", ".join(map(shown, places))
            names[f"launch{n}"], names[f"code{n}"] = launcher.run, launcher.code
            names[f"constants{n}"] = launcher.constants
            grid = ", ".join(map(str, sizes))
            lines.append(f" launch{n}({grid}, stream, *code{n}, ({args}, *constants{n}))")
            continue
        first, count, offsets, _ = made
        found = range(first, first + (count or 1))
        if not places and not (asked | used) & {*found}:
            continue  # memory that nothing reads
        if offsets and not asked & {*found}:  # addresses are enough
            for k, offset in zip(found, offsets, strict=True):
                lines += [f" p{k} = {shown(places[0])} + {offset}"] if k in used else []
            continue
        lines += [f" p{k} = t{k}.data_ptr()" for k in found if k in used]
        left = ", ".join(f"t{k}" for k in found) + ("," if count is not None else "")
        lines.append(f" {left} = make{n}({', '.join(f't{k}' for k in places)})")
        names[f"make{n}"] = what
        asked |= {*places}
    return lines[::-1], asked | used, used


def _reshaped(steps: Sequence[Step], results: Sequence[int | None]) -> list[Step]:
    """The steps; memory of which only another shape is used has that shape from the beginning."""
    uses = Counter(k for k in results if k is not None)
    uses.update(k for _, places, made in steps if made is not None for k in places)
    found, rooms = [[step] for step in steps], {}
    for n, (what, places, made) in enumerate(steps):
        if made is None:
            continue
        if getattr(what, "func", None) is torch.empty_like:
            rooms[made[0]] = n
        elif made[3] is not None and places[0] in rooms and uses[places[0]] == 1:
            at = rooms[places[0]]
            one = steps[at][0].args[0].as_strided((1,), (1,))
            whole = partial(torch.empty_like, one.expand(made[3]))
            found[at] = [
                (whole, [], (made[0], None, None, None)),
                (None, [made[0]], (places[0], None, [0], None)),  # whose address is enough
            ]
            found[n] = []
    return [step for some in found for step in some]


def _offset(view: Tensor, of: Tensor | None) -> int | None:
    """How many bytes after another tensor one begins in the same memory; None if it does not."""
    if of is None or view.numel() == 0:
        return None
    if view.untyped_storage().data_ptr() != of.untyped_storage().data_ptr():
        return None
    return view.data_ptr() - of.data_ptr()
