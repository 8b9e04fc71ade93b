"""Calls of a kind by recorded launches, under one autograd function without lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph.content import PLAIN, is_tracing
from graphtheory.ops import derivatives
from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.operator import in_backward

Tensors = Sequence[Tensor | None]


class Recorded:
    """A fused operation on one neighborhood, for calls of one kind.

    The first call and the first backward pass run the kernels' functions and record what these
    launch, later ones replay it. A backward pass that something traces, or that is to have a
    gradient of its own, is the op's.

    Args:
        op: The `FusedOp`.
        args: Of its first call; options and rows are those of all calls.
    """

    def __init__(self, op: Any, args: Sequence[Any]) -> None:
        self.op, self._options = op, op._take_options(args)
        self._parts = [] if op._parts is None else args[op._parts]
        self._kernels = BACKENDS[args[-1]].kernels
        self._replays: dict[Any, Any] = {}  # of the forward pass, and by what the other one needs

    def __call__(self, args: Sequence[Any]) -> Any:
        """The outputs; None in place of those without a gradient."""
        return self._outputs(self.forward(self.op._take_tensors(args)))

    def differentiable(self, args: Sequence[Any]) -> Any:
        """The same with a gradient."""
        found = _Function.apply(self, args, *self.op._take_asked(args))
        return self._outputs(found if isinstance(found, tuple) else (found,), opened=True)

    def _outputs(self, found: Sequence[Tensor | None], opened: bool = False) -> Any:
        op = self.op
        if len(op._outputs) == 1:
            return found[0]
        out: list[Any] = [None] * len(op._outputs)
        for k, at in enumerate(op._open):
            out[at] = found[k if opened else at]
        return tuple(out)

    def _run(self, which: Any, work: Any, tensors: Tensors) -> Any:
        """The results of `work` by its replay, which is recorded first; None where that cannot."""
        replay = self._replays.get(which)
        if replay is not None:
            return replay(tensors)
        found, self._replays[which] = self._kernels.record(work, tensors, self._parts)
        return found

    def forward(self, tensors: Tensors) -> Any:
        """All outputs, and what the backward pass reads beside the tensors."""
        return self._run("forward", self._forward, tensors) or self._forward(tensors)

    def _forward(self, tensors: Tensors) -> Tensors:
        op = self.op
        args = op._as_named(*op._together(tensors, self._options, self._parts))
        found = op._run(self._kernels, args)
        outputs = found if isinstance(found, tuple) else (found,)
        return *outputs, *op._keep(args, outputs)

    def backward(self, grads: Sequence[Tensor], saved: Tensors, needs: Sequence[bool]) -> Any:
        """Gradients of the arguments that have one, of what was saved, rows of nodes left out."""
        op, first, second = self.op, self.op._first, self.op._second

        def work(tensors: Tensors) -> Tensors:
            args = op._together(tensors[second:], self._options, self._parts)
            given = tensors[:first], tensors[first:second]
            found = op._gradients(self._kernels, op._as_named(*args), *given, needs)
            pairs = zip(found, needs, op._asked, strict=True)
            return [one if need and args[k] is not None else None for one, need, k in pairs]

        return self._run(needs, work, [*grads, *saved])


def _are_plain(*some: Tensors) -> bool:
    for tensors in some:
        for t in tensors:
            if t is not None and type(t) not in PLAIN:
                return False
    return True


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, recorded: Recorded, args: Any, *asked: Tensor | None) -> Any:
        op = recorded.op
        found = recorded.forward(op._take_tensors(args))
        outputs = [found[k] for k in op._open]
        if len(outputs) > 1:
            ctx.shapes = [(out.shape, out.dtype) for out in outputs]
        ctx.recorded = recorded
        op._hold(ctx, found[len(op._outputs) :], args)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *above: Tensor | None) -> Any:
        recorded, needs = ctx.recorded, ctx.needs_input_grad[2:]
        op = recorded.op
        derivatives.check_derivatives(op.layout.name, None, ())
        grads = op.materialized(ctx, list(above))
        if grads is None:
            return (None,) * (2 + len(needs))
        saved, found = ctx.saved_tensors, None
        of_rows = len(saved) - ctx.num_parts
        if not (torch.is_grad_enabled() or is_tracing()) and _are_plain(grads, saved):
            found = recorded.backward(grads, saved[:of_rows], needs)
        if found is None:
            count = op._second - op._first
            args = op._together(saved[count:of_rows], ctx.options, saved[of_rows:])
            found = in_backward(op.gradients_of, grads, saved[:count], args, needs)
        return None, None, *found
