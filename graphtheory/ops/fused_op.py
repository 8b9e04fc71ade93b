"""One declaration of a fused operation, from which its torch ops and derivatives follow."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.bounds import Layout
from graphtheory.ops.operator import Operator
from graphtheory.ops.second import second_gradients

_TYPES = {
    "parts": "Tensor[]", "relu_parts": "Tensor[]", "blocks": "SymInt[]", "int": "SymInt",
    "float": "float", "bool": "bool", "str": "str",
}  # fmt: skip
_DIGITS = "01".__getitem__
_UNCHECKED = frozenset(("int", "float", "bool", "str", "any"))


class _Argument(NamedTuple):
    """An argument as a declaration writes it, such as "bias:EH?"."""

    name: str
    layout: str
    optional: bool

    @classmethod
    def read(cls, text: str) -> _Argument:
        name, _, layout = text.partition(":")
        return cls(name, layout.rstrip("?"), layout.endswith("?"))

    @property
    def kind(self) -> str:
        """Its type in a schema of torch."""
        return _TYPES.get(self.layout, "Tensor") + "?" * self.optional

    @property
    def word(self) -> str:
        """Its word in a `Layout`."""
        return "." if self.layout in _UNCHECKED else self.layout


class FusedOp:
    """An operation whose backend kernels compute the values and, in a second op, the gradients.

    From the declaration follow both torch ops with their schemas, shapes for tracing, checks of ids
    and shapes, what is saved, the gradients, and the gradients of the gradients, for which autograd
    follows the definition.

    Args:
        name: Of the op, "graphtheory::name"; that of the gradients is "graphtheory::name_backward".
        arguments: ``name:layout`` for each argument, with "?" where it may be None. A layout is a
            word of `Layout`; "any" is a tensor that is not checked; or "int", "float", "bool". The
            arguments whose layout is a shape have gradients. An argument "backend" is added.
        outputs: The layout of each output; "!" marks one without a gradient.
        run: From the kernels of the backend and the arguments to the outputs.
        gradients: From the kernels, the arguments, the gradients of the outputs, what was kept, and
            which gradients are needed, to the gradient of each argument that has one, in any type;
            what is not needed may be anything.
        definition: From the arguments to the outputs that have gradients, by functions that
            autograd differentiates.
        kept: Layouts of what the backward pass reads beside the arguments.
        keep: What that is, from the arguments and the outputs.
        fake: Outputs without values, for tracing; without it their layouts say all.
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
        keep: Callable[[Any, Any], tuple[Any, ...]] = lambda a, outputs: (),
        fake: Callable[[Any], Any] | None = None,
        strided: tuple[str, ...] = (),
    ) -> None:
        given = [_Argument.read(text) for text in (*arguments.split(), "backend:str")]
        self._given = given
        self._as_named: Any = namedtuple("Arguments", [a.name for a in given])  # type: ignore[misc]
        self._run, self._gradients, self._definition = run, gradients, definition
        self._keep, self._strided = keep, strided
        self._outputs = [out.rstrip("!") for out in outputs.split()]
        self._open = [i for i, out in enumerate(outputs.split()) if not out.endswith("!")]
        self._closed = [i for i in range(len(self._outputs)) if i not in self._open]
        self._take_open, self._take_closed = _taker(self._open), _taker(self._closed)
        self._tensors = [i for i, a in enumerate(given) if a.kind.startswith("Tensor")]
        self._lists = [i for i in self._tensors if a_list(given[i])]
        self._tensors = [i for i in self._tensors if i not in self._lists]
        self._asked = [i for i, a in enumerate(given) if a.layout.isupper()]
        self._take_asked = _taker(self._asked)
        self._options = [i for i in range(len(given)) if i not in (*self._tensors, *self._lists)]
        self._take_tensors, self._take_options = _taker(self._tensors), _taker(self._options)

        grads = [_Argument(f"grad{k}", self._outputs[i], False) for k, i in enumerate(self._open)]
        kept_ones = [
            _Argument(f"kept{k}", word.rstrip("?"), word.endswith("?"))
            for k, word in enumerate(kept.split())
        ]
        self._first = len(grads), len(grads) + len(kept_ones)
        backward = [*grads, *kept_ones, _Argument("needs", "str", False), *given]
        self._value = _operator(name, given, len(self._outputs), self._forward)
        self._grad = _operator(f"{name}_backward", backward, len(self._asked), self._backward)
        self._value.register_fake(self._fake if fake is None else self._named(fake))
        self._grad.register_fake(self._fake_gradients)
        self._value.register_autograd(self._differentiate, setup_context=self._save)
        self._grad.register_autograd(self._differentiate_again, setup_context=self._save_again)

    def __call__(self, *args: Any) -> Any:
        """The outputs, differentiable any number of times; the last argument names a backend."""
        return self._value(*args)

    @property
    def op(self) -> Any:
        """The op of the values."""
        return self._value.op

    @property
    def gradients(self) -> Operator:
        """The op of the gradients."""
        return self._grad

    def _named(self, function: Callable[[Any], Any]) -> Callable[..., Any]:
        return lambda *args: function(self._as_named(*args))

    def _forward(self, *args: Any) -> Any:
        return self._run(BACKENDS[args[-1]].kernels, self._as_named(*args))

    def _fake(self, *args: Any) -> Any:
        sizes = self._value.held.sizes(args)
        like = args[self._tensors[0]]
        found = [like.new_empty([sizes[letter] for letter in word]) for word in self._outputs]
        return found[0] if len(found) == 1 else tuple(found)

    def _backward(self, *args: Any) -> Any:
        grads, kept, needs, rest = self._apart(args)
        found = self._gradients(
            BACKENDS[args[-1]].kernels, self._as_named(*rest), grads, kept, needs
        )
        out = []
        for place, need, one in zip(self._asked, needs, found, strict=True):
            given = rest[place]
            out.append(grads[0].new_empty(0) if not need or given is None else one.to(given.dtype))
        return out[0] if len(out) == 1 else tuple(out)

    def _fake_gradients(self, *args: Any) -> Any:
        grads, _, needs, rest = self._apart(args)
        out = []
        for place, need in zip(self._asked, needs, strict=True):
            given = rest[place]
            if not need or given is None:
                out.append(grads[0].new_empty(0))
            elif self._given[place].name in self._strided:
                out.append(torch.empty_like(given))
            else:
                out.append(given.new_empty(given.shape))
        return out[0] if len(out) == 1 else tuple(out)

    def _apart(self, args: Sequence[Any]) -> tuple[Any, Any, Sequence[bool], Sequence[Any]]:
        """Gradients of the outputs, what was kept, which gradients are needed, the arguments."""
        first, second = self._first
        return args[:first], args[first:second], _flags(args[second]), args[second + 1 :]

    def _hold(self, ctx: Any, more: Sequence[Any], args: Sequence[Any]) -> None:
        ctx.set_materialize_grads(False)
        ctx.options, ctx.lengths, lists = self._take_options(args), [], []
        for i in self._lists:
            ctx.lengths.append(len(args[i]))
            lists += args[i]
        ctx.save_for_backward(*more, *self._take_tensors(args), *lists)

    def _held(self, ctx: Any, count: int) -> tuple[Sequence[Any], list[Any]]:
        """What was held, `count` tensors and the arguments."""
        saved = ctx.saved_tensors  # once: to read them twice is an error under checkpointing
        args: list[Any] = [None] * len(self._given)
        end = count + len(self._tensors)
        for i, tensor in zip(self._tensors, saved[count:end], strict=True):
            args[i] = tensor
        for i, length in zip(self._lists, ctx.lengths, strict=True):
            args[i] = list(saved[end : end + length])
            end += length
        for i, option in zip(self._options, ctx.options, strict=True):
            args[i] = option
        return saved[:count], args

    def _save(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        if self._closed:
            ctx.mark_non_differentiable(*self._take_closed(outputs))
        if len(self._open) > 1:
            ctx.shapes = [(outputs[i].shape, outputs[i].dtype) for i in self._open]
        self._hold(ctx, self._keep(self._as_named(*inputs), output), inputs)

    def _differentiate(self, ctx: Any, *above: Tensor | None) -> tuple[Any, ...]:
        grads = list(self._take_open(above))
        if grads.count(None) == len(grads):
            return self._of_arguments(ctx)
        if None in grads:
            like = next(grad for grad in grads if grad is not None)
            for k, (shape, dtype) in enumerate(ctx.shapes):
                if grads[k] is None:
                    grads[k] = like.new_zeros(shape, dtype=dtype)
        kept, args = self._held(ctx, self._first[1] - self._first[0])
        needs = self._take_asked(ctx.needs_input_grad)
        found = self._grad(*grads, *kept, "".join(map(_DIGITS, needs)), *args)
        found = list(found) if isinstance(found, tuple) else [found]
        for k, need in enumerate(needs):
            if not need:
                found[k] = None
        return self._of_arguments(ctx, found)

    def _of_arguments(self, ctx: Any, found: Any = ()) -> tuple[Any, ...]:
        out: list[Any] = [None] * len(self._given)
        for i, grad in zip(self._asked, found, strict=False):
            out[i] = grad
        for i, length in zip(self._lists, ctx.lengths, strict=True):
            out[i] = [None] * length
        return tuple(out)

    def _save_again(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        grads, _, ctx.needs, args = self._apart(inputs)
        self._hold(ctx, grads, args)

    def _differentiate_again(self, ctx: Any, *upstream: Tensor | None) -> tuple[Any, ...]:
        (first, second), asked = self._first, self._asked
        grads, args = self._held(ctx, first)

        def definition(*tensors: Any) -> Any:
            now = list(args)
            for i, tensor in zip(asked, tensors, strict=True):
                now[i] = tensor
            return self._definition(self._as_named(*now))

        ups = [up if need else None for up, need in zip(upstream, ctx.needs, strict=True)]
        by = [*range(first), *(second + 1 + i for i in asked)]
        of_grads, found = second_gradients(
            definition, [args[i] for i in asked], grads, ups,
            [ctx.needs_input_grad[i] for i in by],
        )  # fmt: skip
        kept = (None,) * (second - first)
        return (*of_grads, *kept, None, *self._of_arguments(ctx, found))


@cache
def _flags(digits: str) -> tuple[bool, ...]:
    """Which gradients are needed; as digits they are a constant to whatever compiles a call."""
    return tuple(digit == "1" for digit in digits)


def _taker(places: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    """What takes the entries at some places, as a tuple, without a loop in Python."""
    if len(places) == 1:
        (place,) = places
        return lambda entries: (entries[place],)
    return itemgetter(*places) if places else lambda entries: ()


def a_list(argument: _Argument) -> bool:
    """Whether an argument is several tensors."""
    return argument.kind.startswith("Tensor[]")


def _operator(
    name: str, given: Sequence[_Argument], outputs: int, function: Callable[..., Any]
) -> Operator:
    full = f"graphtheory::{name}"
    results = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
    schema = f"({', '.join(f'{a.kind} {a.name}' for a in given)}) -> {results}"
    return Operator(full, Layout(full, " ".join(a.word for a in given)), function, schema)
