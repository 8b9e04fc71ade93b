"""Fused operations: one declaration, from which the torch ops and derivatives follow."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph.content import check_lookup
from graphtheory.ops import derivatives
from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.call import recorded
from graphtheory.ops.operator import Operator

_TYPES = {
    "parts": "Tensor[]", "blocks": "SymInt[]", "int": "SymInt", "float": "float", "bool": "bool",
    "str": "str",
}  # fmt: skip
_DIGITS = "01".__getitem__


class FusedOp(Operator):
    """An operation whose backend kernels compute the values and, in a second op, the gradients.

    A call gives the outputs, differentiable any number of times; its last argument names a backend.
    `gradients` is the op of the gradients. From the declaration follow both torch ops with their
    schemas, shapes for tracing, checks of ids and shapes, what is saved, the gradients, and the
    gradients of the gradients, for which autograd follows the definition.

    Args:
        name: Of the op, "graphtheory::name"; that of the gradients is "graphtheory::name_backward".
        arguments: ``name:word`` for each argument, with "?" where it may be None. A word is one of
            `Layout`; "any" is a tensor that is not checked; or "int", "float", "bool". The
            arguments whose word is a shape have gradients. An argument "backend" is added.
        outputs: The shape of each output; "!" marks one without a gradient.
        run: From the kernels of the backend and the arguments to the outputs.
        gradients: From the kernels, the arguments, the gradients of the outputs, what was kept, and
            which gradients are needed, to the gradient of each argument that has one, in any type;
            what is not needed may be anything.
        definition: From the arguments to the outputs that have gradients, by functions that
            autograd differentiates.
        kept: Words of what the backward pass reads beside the arguments.
        keep: What that is, from the arguments and the tuple of outputs.
        fake: Outputs without values, for tracing; without it their shapes say all.
        strided: Arguments whose gradients lie in memory as they do.
    """

    def __init__(
        self,
        name: str,
        arguments: str,
        outputs: str,
        *,
        run: Callable[[Any, Any], Any],
        gradients: Callable[[Any, Any, Sequence[Tensor], Sequence[Any], Sequence[bool]], Any],
        definition: Callable[[Any], Any],
        kept: str = "",
        keep: Callable[[Any, tuple[Any, ...]], tuple[Any, ...]] = lambda a, outputs: (),
        fake: Callable[[Any], Any] | None = None,
        strided: tuple[str, ...] = (),
    ) -> None:
        given = [text.split(":") for text in (*arguments.split(), "backend:str")]
        self._names = [one for one, _ in given]
        self._as_named: Any = namedtuple("Arguments", self._names)  # type: ignore[misc]
        self._run, self._gradients, self._definition = run, gradients, definition
        self._keep, self._strided = keep, strided
        self._outputs = [out.rstrip("!") for out in outputs.split()]
        self._open = [k for k, out in enumerate(outputs.split()) if not out.endswith("!")]
        self._closed = [k for k in range(len(self._outputs)) if k not in self._open]
        words = [word.rstrip("?") for _, word in given]
        self._parts = words.index("parts") if "parts" in words else None  # the one list of tensors
        self._tensors = [k for k, word in enumerate(words) if word not in _TYPES]
        self._options = [k for k, word in enumerate(words) if word in _TYPES and k != self._parts]
        self._asked = [k for k, word in enumerate(words) if word.isupper()]
        self._take_tensors, self._take_asked = _taker(self._tensors), _taker(self._asked)
        self._take_options, self._take_closed = _taker(self._options), _taker(self._closed)

        grads = [f"grad{k}:{self._outputs[at]}" for k, at in enumerate(self._open)]
        kept_ones = [f"kept{k}:{word}" for k, word in enumerate(kept.split())]
        self._first, self._second = len(grads), len(grads) + len(kept_ones)
        backward = " ".join((*grads, *kept_ones, "needs:str", arguments, "backend:str"))
        super().__init__(
            *_declared(name, f"{arguments} backend:str", len(self._outputs), self._forward)
        )
        self.register_fake(
            self._fake if fake is None else lambda *args: fake(self._as_named(*args))
        )
        self.register_autograd(self._differentiate, setup_context=self._save)
        self.gradients = Operator(
            *_declared(f"{name}_backward", backward, len(self._asked), self._backward)
        )
        self.gradients.register_fake(self._fake_gradients)
        self.gradients.register_autograd(self._differentiate_again, setup_context=self._save_again)

    def recorded(self, args: tuple[Any, ...], plan: Any) -> Any:
        for name, ids, table in self.layout.lookups:
            check_lookup(name, args[ids], args[table])
        kernels = BACKENDS[args[-1]].kernels
        one = recorded(plan, self, lambda: _Work(self, args), kernels)
        found = one(self._take_tensors(args), plan.grad)
        if len(self._outputs) == 1:
            return found[0]
        out: list[Tensor | None] = [None] * len(self._outputs)  # for those without a gradient
        for k, tensor in zip(self._open, found, strict=True):
            out[k] = tensor
        return tuple(out)

    def _forward(self, *args: Any) -> Any:
        return self._run(BACKENDS[args[-1]].kernels, self._as_named(*args))

    def _fake(self, *args: Any) -> Any:
        sizes = self.layout.sizes(args)
        like = args[self._tensors[0]]
        return _one_or_all(
            [like.new_empty([sizes[letter] for letter in word]) for word in self._outputs]
        )

    def _backward(self, *args: Any) -> Any:
        grads, kept, needs, rest = self._apart(args)
        kernels, named = BACKENDS[args[-1]].kernels, self._as_named(*rest)
        found = self._gradients(kernels, named, grads, kept, needs)
        out = []
        for k, need, one in zip(self._asked, needs, found, strict=True):
            absent = not need or rest[k] is None
            out.append(grads[0].new_empty(0) if absent else one.to(rest[k].dtype))
        return _one_or_all(out)

    def _fake_gradients(self, *args: Any) -> Any:
        grads, _, needs, rest = self._apart(args)

        out = []
        for k, need in zip(self._asked, needs, strict=True):
            given = rest[k] if need else None
            if given is None:
                out.append(grads[0].new_empty(0))
            elif self._names[k] in self._strided:
                out.append(torch.empty_like(given))
            else:
                out.append(given.new_empty(given.shape))
        return _one_or_all(out)

    def _apart(self, args: Sequence[Any]) -> tuple[Any, Any, Sequence[bool], Sequence[Any]]:
        """Gradients of the outputs, what was kept, which gradients are needed, the arguments."""
        first, second = self._first, self._second
        return args[:first], args[first:second], _flags(args[second]), args[second + 1 :]

    def _hold(self, ctx: Any, more: Sequence[Any], args: Sequence[Any]) -> None:
        ctx.set_materialize_grads(False)
        parts = () if self._parts is None else args[self._parts]
        ctx.options, ctx.num_parts = self._take_options(args), len(parts)
        ctx.save_for_backward(*more, *self._take_tensors(args), *parts)

    def _held(self, ctx: Any, count: int) -> tuple[Sequence[Any], list[Any]]:
        """What was held, `count` tensors and the arguments."""
        saved = ctx.saved_tensors  # once: to read them twice is an error under checkpointing
        end = count + len(self._tensors)
        return saved[:count], self._together(saved[count:end], ctx.options, saved[end:])

    def _together(self, tensors: Any, options: Any, parts: Any) -> list[Any]:
        """The arguments, of what `_take_tensors` and `_take_options` have taken from them."""
        args: list[Any] = [None] * len(self._names)
        for k, tensor in zip(self._tensors, tensors, strict=True):
            args[k] = tensor
        for k, option in zip(self._options, options, strict=True):
            args[k] = option
        if self._parts is not None:
            args[self._parts] = list(parts)
        return args

    def _save(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        if self._closed:
            ctx.mark_non_differentiable(*self._take_closed(outputs))
        if len(self._open) > 1:
            ctx.shapes = [(outputs[k].shape, outputs[k].dtype) for k in self._open]
        self._hold(ctx, self._keep(self._as_named(*inputs), outputs), inputs)

    def _differentiate(self, ctx: Any, *above: Tensor | None) -> tuple[Any, ...]:
        grads = derivatives.materialized(ctx, [above[k] for k in self._open])
        if grads is None:
            return self._of_arguments(ctx)
        kept, args = self._held(ctx, self._second - self._first)
        needs = self._take_asked(ctx.needs_input_grad)
        return self._of_arguments(ctx, self.gradients_of(grads, kept, args, needs))

    def gradients_of(self, grads: Any, kept: Any, args: Any, needs: Sequence[bool]) -> list[Any]:
        """Gradients of the arguments that have one by the op, which differentiates them again."""
        found = self.gradients(*grads, *kept, "".join(map(_DIGITS, needs)), *args)
        found = list(found) if isinstance(found, tuple) else [found]
        for k, need in enumerate(needs):
            if not need:
                found[k] = None
        return found

    def _of_arguments(self, ctx: Any, found: Any = ()) -> tuple[Any, ...]:
        out: list[Any] = [None] * len(self._names)
        for k, grad in zip(self._asked, found, strict=False):
            out[k] = grad
        if self._parts is not None:
            out[self._parts] = [None] * ctx.num_parts
        return tuple(out)

    def _save_again(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        grads, _, ctx.needs, args = self._apart(inputs)
        self._hold(ctx, grads, args)

    def _differentiate_again(self, ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
        grads, args = self._held(ctx, self._first)

        def definition(*tensors: Any) -> Any:
            now = list(args)
            for k, tensor in zip(self._asked, tensors, strict=True):
                now[k] = tensor
            return self._definition(self._as_named(*now))

        ups = [up if need else None for up, need in zip(upstream, ctx.needs, strict=True)]
        by = [*range(self._first), *(self._second + 1 + k for k in self._asked)]
        of_grads, found = derivatives.second_gradients(
            definition, [args[k] for k in self._asked], grads, ups,
            [ctx.needs_input_grad[k] for k in by],
        )  # fmt: skip
        kept = (None,) * (self._second - self._first)
        return (*of_grads, *kept, None, *self._of_arguments(ctx, found))


class _Work:
    """A fused operation with the options and the rows of a call."""

    def __init__(self, op: FusedOp, args: Sequence[Any]) -> None:
        self._op, self.name, self.outputs = op, op.layout.name, len(op._open)
        self._kernels, self._options = BACKENDS[args[-1]].kernels, op._take_options(args)
        self.parts: list[Tensor] = [] if op._parts is None else args[op._parts]

    def _args(self, tensors: Sequence[Any]) -> Any:
        return self._op._together(tensors, self._options, self.parts)

    def forward(self, tensors: Sequence[Any]) -> Sequence[Any]:
        op, args = self._op, self._op._as_named(*self._args(tensors))
        found = op._run(self._kernels, args)
        outputs = found if isinstance(found, tuple) else (found,)
        return *(outputs[k] for k in op._open), *op._keep(args, outputs)

    def reads(self, tensors: Sequence[Any], needs: Sequence[bool]) -> Sequence[Any]:
        return tensors

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


@cache
def _flags(digits: str) -> tuple[bool, ...]:
    """Which gradients are needed; as digits they are a constant to whatever compiles a call."""
    return tuple(digit == "1" for digit in digits)


def _taker(places: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    """What takes the entries at some places, as a tuple, without a loop in Python."""
    if len(places) == 1:
        return itemgetter(slice(places[0], places[0] + 1))
    return itemgetter(*places) if places else lambda entries: ()


def _one_or_all(found: list[Any]) -> Any:
    """As torch wants what an op returns: a tensor, or several as a tuple."""
    return found[0] if len(found) == 1 else tuple(found)


def _declared(
    name: str, arguments: str, outputs: int, function: Callable[..., Any]
) -> tuple[str, str, Callable[..., Any], str]:
    """What an `Operator` takes: its name, layout, function and schema."""
    results = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
    given = []
    for text in arguments.split():
        one, word = text.split(":")
        kind = _TYPES.get(word.rstrip("?"), "Tensor") + "?" * word.endswith("?")
        given.append(f"{kind} {one}")
    schema = f"({', '.join(given)}) -> {results}"
    return f"graphtheory::{name}", arguments.replace("?", ""), function, schema
