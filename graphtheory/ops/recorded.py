"""Work of one kind by recorded launches, under one autograd function without lists."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import unwrap_if_dead

from graphtheory.ops import derivatives
from graphtheory.ops.bounds import Own

Tensors = Sequence[Tensor | None]
Needs = Sequence[bool]


class Work(ABC):
    """What kernels compute of some tensors, all other arguments being the same in every call.

    Attributes:
        name: For messages.
        outputs: How many of the results are outputs.
        parts: The tensors that it reads in every call, rows of nodes.
    """

    name: str
    outputs: int
    parts: Sequence[Tensor]

    @abstractmethod
    def forward(self, tensors: Tensors) -> Tensors:
        """The outputs, and what the backward pass reads beside the tensors."""

    def reads(self, tensors: Tensors, needs: Needs) -> Tensors:
        """The tensors, None in place of those that the backward pass does not read."""
        return tensors

    @abstractmethod
    def backward(self, grads: Sequence[Tensor], kept: Tensors, read: Tensors, needs: Needs) -> Any:
        """The gradient of each tensor, of another type maybe; None where none is needed."""

    @abstractmethod
    def differentiable(
        self, grads: Sequence[Tensor], kept: Tensors, read: Tensors, needs: Needs
    ) -> Any:
        """The same by functions that autograd differentiates, which check what they read."""


class _Thread(threading.local):
    recorder: Any = None


thread = _Thread()


def made(function: Callable[..., Any], *args: Tensor | None) -> Any:
    """The tensor or tensors that a function of torch makes; a record of the work notes them."""
    found = function(*args)
    if thread.recorder is not None:
        thread.recorder.made(found, function, args)
    return found


class Recorded:
    """Work that is recorded when it is done first, and replayed from then on.

    A backward pass that something traces, or that is to have a gradient of its own, is done by
    `differentiable`.

    Args:
        work: What is done.
        record: Of the kernels, from a function of tensors, these and the parts to its results
            and a replay, which gives the results for other tensors or None where it cannot; its
            `kinds` are those of the tensors. Without it nothing is recorded.
    """

    def __init__(self, work: Work, record: Callable[..., Any] | None) -> None:
        self.work, self._record = work, record
        self._replays: dict[Any, Any] = {}  # of the forward pass, and by what the other one needs
        self.saved: list[Any] = []  # kinds of the tensors that the backward pass reads

    def __call__(self, tensors: Tensors, grad: bool) -> Any:
        """The outputs, with a gradient or without; None of tensors of other kinds."""
        if not grad:
            found = self.forward(tensors)
            return found and found[: self.work.outputs]
        found = _apply(self, *[unwrap_if_dead(t) if type(t) is Tensor else t for t in tensors])
        return found if found is None or isinstance(found, tuple) else (found,)

    def forward(self, tensors: Tensors) -> Any:
        """The outputs, and what the backward pass reads; None of tensors of other kinds."""
        replay = self._replays.get("forward")
        found = None if replay is None else replay.call(tensors)
        return self._run("forward", self.work.forward, tensors) if found is None else found

    def backward(self, grads: Sequence[Tensor], kept: Tensors, read: Tensors, needs: Needs) -> Any:
        """As of the work; None of tensors that have changed, which `differentiable` checks."""
        tensors, replay = [*grads, *kept, *read], self._replays.get(needs)
        found = None if replay is None else replay.call(tensors)
        if found is not None:
            return found
        if replay is None and kinds(*kept, *read) != self.saved:
            return None

        def work(tensors: Tensors) -> Tensors:
            rest = tensors[len(grads) :]
            above: Any = tensors[: len(grads)]
            found: Tensors = self.work.backward(above, rest[: len(kept)], rest[len(kept) :], needs)
            return found

        return self._run(needs, work, tensors)

    def _run(self, which: Any, work: Callable[[Tensors], Tensors], tensors: Tensors) -> Any:
        """The results of `work`, recorded now; None of other tensors than it was recorded for."""
        if self._record is None:
            return work(tensors)
        replay = self._replays.get(which)
        if replay is None:
            found, self._replays[which] = self._record(work, tensors, self.work.parts)
            return found
        return work(tensors) if replay.kinds == kinds(*tensors) else None


def kinds(*tensors: Tensor | None) -> list[Any]:
    """Shape, type and device of tensors."""
    return [None if t is None else (t.shape, t.dtype, t.get_device()) for t in tensors]


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recorded: Recorded, *tensors: Tensor | None) -> Any:
        work = recorded.work
        found = recorded.forward(tensors)
        if found is None:
            return None
        outputs, kept = found[: work.outputs], found[work.outputs :]
        if len(outputs) > 1:
            ctx.shapes = [(out.shape, out.dtype) for out in outputs]
            ctx.set_materialize_grads(False)
        ctx.recorded, ctx.kept = recorded, len(kept)
        read = work.reads(tensors, ctx.needs_input_grad[1:])
        if not recorded.saved:
            recorded.saved = kinds(*kept, *read)
        seen = () if type(work.parts) is Own else work.parts  # whose changes torch notices
        ctx.save_for_backward(*kept, *read, *seen)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *above: Tensor | None) -> Any:
        recorded, needs = ctx.recorded, ctx.needs_input_grad[1:]
        grads: Any = above if len(above) == 1 else derivatives.materialized(ctx, list(above))
        if grads is None:
            return (None,) * (1 + len(needs))
        saved, found = ctx.saved_tensors, None  # once: again is an error under checkpointing
        kept, read = saved[: ctx.kept], saved[ctx.kept : ctx.kept + len(needs)]
        if not derivatives.is_followed((*grads, *saved)):
            found = recorded.backward(grads, kept, read, needs)
        if found is None:
            found = derivatives.in_backward(recorded.work.differentiable, grads, kept, read, needs)
        return None, *found


# Function.apply but for what it does under torch.func, where nothing is recorded.
_apply: Any = super(torch.autograd.Function, _Function).apply


class OpWork(Work):
    """A fused operation with the options and the rows of a call."""

    def __init__(self, op: Any, args: Sequence[Any], kernels: Any) -> None:
        self._op, self.name, self.outputs = op, op.layout.name, len(op._open)
        self._kernels, self._options = kernels, op._take_options(args)
        self.parts: list[Tensor] = [] if op._parts is None else args[op._parts]

    def _args(self, tensors: Sequence[Any]) -> Any:
        return self._op._together(tensors, self._options, self.parts)

    def forward(self, tensors: Sequence[Any]) -> Sequence[Any]:
        op, args = self._op, self._op._as_named(*self._args(tensors))
        found = op._run(self._kernels, args)
        outputs = found if isinstance(found, tuple) else (found,)
        return *(outputs[k] for k in op._open), *op._keep(args, outputs)

    def backward(
        self, grads: Sequence[Tensor], kept: Any, read: Any, needs: Sequence[bool]
    ) -> list[Any]:
        op, args = self._op, self._args(read)
        asked = [needs[op._tensors.index(k)] for k in op._asked]
        found = op._gradients(self._kernels, op._as_named(*args), grads, kept, asked)
        pairs = zip(found, asked, op._asked, strict=True)
        return self._of_tensors(one if n and args[k] is not None else None for one, n, k in pairs)

    def differentiable(self, grads: Any, kept: Any, read: Any, needs: Sequence[bool]) -> list[Any]:
        op = self._op
        asked = [needs[op._tensors.index(k)] for k in op._asked]
        return self._of_tensors(op.gradients_of(grads, kept, self._args(read), asked))

    def _of_tensors(self, found: Iterable[Any]) -> list[Any]:
        by_argument = dict(zip(self._op._asked, found, strict=True))
        return [by_argument.get(k) for k in self._op._tensors]
