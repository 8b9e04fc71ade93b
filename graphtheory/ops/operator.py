"""Torch ops that something may trace, called directly where nothing does, and fused operations.

A fused operation is one declaration, from which its torch ops and derivatives follow.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import cache, wraps
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from graphtheory.graph.content import check_lookup, innermost_transform
from graphtheory.ops import derivatives
from graphtheory.ops.backend import BACKENDS, Backend
from graphtheory.ops.bounds import TYPES, Layout, Own
from graphtheory.ops.call import Call, structure
from graphtheory.ops.recorded import OpWork

_DIGITS = "01".__getitem__


@cache
def _flags(digits: str) -> tuple[bool, ...]:
    """Which gradients are needed; as digits they are a constant to whatever compiles a call."""
    return tuple(digit == "1" for digit in digits)


def _taker(places: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    """What takes the entries at some places, as a tuple, without a loop in Python."""
    if len(places) == 1:
        return itemgetter(slice(places[0], places[0] + 1))
    return itemgetter(*places) if places else lambda entries: ()


def _one_or_all(found: list[Tensor]) -> Any:
    """As torch wants what an op returns: a tensor, or several as a tuple."""
    return found[0] if len(found) == 1 else tuple(found)


class Operator:
    """A function on tensors that is a custom op of torch, without the price of one in a plain call.

    `torch.compile`, `torch.export`, modes such as torch's counter of operations, and tensors of
    other types see the op, and so does `torch.func.vmap`, which calls it once for each entry of
    the batch. Gradients of `torch.func` see a function with a gradient of their kind. Between
    plain tensors the function runs by itself under an `autograd.Function` with the same gradient:
    passing torch's dispatcher takes as long as the attention of a thousand edges.

    Every call checks the ids that loops read. Calls of the op itself, as compiled and exported
    programs make, check all shapes as well, which the functions of `ops` have done, and so do calls
    in a backward pass, since `.data` of a saved tensor may have another shape by then. `planned`
    and `planned_direct`, the latter with a gradient, run a call whose kind was run before on ids
    that were found unchanged, of plain tensors that nothing traces or transforms: they check only
    what tables are looked up by.

    Args:
        name: Of the op, "graphtheory::...".
        arguments: Their declaration, as `Layout` describes it.
        outputs: A word for each output; in capitals its shape.
        function: Changes none of its arguments and returns none of them.
        fake: Outputs without values, for tracing; without it they are like the first tensor, and
            the words say their shapes.
    """

    def __init__(
        self, name: str, arguments: str, outputs: Sequence[str], function: Callable[..., Any],
        fake: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        self.layout, self._outputs = Layout(name, arguments), outputs

        @wraps(function)
        def planned(*args: Any) -> Any:
            for name, ids, table in self.layout.lookups:
                check_lookup(name, args[ids], args[table])
            return function(*_detached(args))

        def checked(*args: Any) -> Any:
            if derivatives.thread.backward:
                self.layout.check_shapes(args)
            self.layout.check_ids(args)
            return planned(*args)

        def from_outside(*args: Any) -> Any:
            self.layout.check_shapes(args)
            return checked(*args)

        given = ", ".join(map("{} {}".format, self.layout.types, self.layout.names))
        results = "Tensor" if len(outputs) == 1 else f"({', '.join(['Tensor'] * len(outputs))})"
        self.op = torch.library.custom_op(
            name, from_outside, mutates_args=(), schema=f"({given}) -> {results}"
        )
        self.op.register_vmap(derivatives.entry_by_entry(self))
        self.op.register_fake(fake or self._fake)
        self._checked, self.planned = checked, planned
        self._direct = self._transformed = self.planned_direct = self.op  # without a gradient

    def _fake(self, *args: Any) -> Any:
        sizes, words = self.layout.sizes(args), self.layout.words
        like = next(a for a, word in zip(args, words, strict=True) if word not in TYPES)
        return _one_or_all(
            [like.new_empty([sizes[letter] for letter in word]) for word in self._outputs]
        )

    def recorded(self, args: tuple[Any, ...], plan: Any) -> Any:
        """The value of a call with a plan whose launches a backend can record."""
        return (self.planned_direct if plan.grad else self.planned)(*args)

    def of_call(self, call: Call, backend: Backend) -> Any:
        """The value for the tensors, options and rows of a checked call, in this order."""
        parts = structure(call, backend)
        return self(*call.tensors, *call.options, parts, backend.name, plan=call.plan)

    def register_autograd(
        self,
        backward: Callable[..., Any],
        *,
        setup_context: Callable[..., None] = lambda ctx, inputs, output: None,
    ) -> None:
        """As of torch's custom ops; the gradient of a list is a list or None."""
        self.op.register_autograd(backward, setup_context=setup_context)
        name = self.op._qualname
        self._direct = _differentiable(name, self._checked, backward, setup_context).apply
        self.planned_direct = _differentiable(name, self.planned, backward, setup_context).apply

        transformed = _differentiable(name, self._checked, backward, setup_context)
        transformed.forward = staticmethod(self._checked)
        transformed.setup_context = staticmethod(setup_context)
        transformed.vmap = staticmethod(derivatives.entry_by_entry(self))
        transformed.jvp = staticmethod(lambda ctx, *tangents: derivatives.refuse_tangents(name))
        self._transformed = transformed.apply

    def __call__(self, *args: Any, plan: Any = None) -> Any:
        """The value of the function, differentiable; with a `Plan` of the call nothing is asked.

        Raises:
            NotImplementedError: For forward-mode derivatives, whose tangents would be lost.
        """
        if plan is not None:
            if plan.recorded is not None:
                return self.recorded(args, plan)
            return (self.planned_direct if plan.grad else self.planned)(*args)
        if torch.compiler.is_compiling():
            return self.op(*args)
        found = innermost_transform()
        transform = None if found is None else found.key()
        derivatives.check_derivatives(self.op._qualname, transform, args)
        if torch._C._dispatch_tls_is_dispatch_key_included(derivatives.BATCHED_GRADS):
            return derivatives.of_batches(self.op, args)
        if transform is not None:  # gradients and batches of them take no op of torch's
            own = transform in (derivatives.TRANSFORMS.Grad, derivatives.TRANSFORMS.Vmap)
            return (self._transformed if own else self.op)(*args)
        if derivatives.is_traced(args):
            return self.op(*args)
        if derivatives.needs_grad(args):
            return self._direct(*args)
        return self._checked(*args)


def _detached(args: tuple[Any, ...]) -> list[Any]:
    out = list(args)
    for k, a in enumerate(out):
        if isinstance(a, Tensor) and a.requires_grad:
            out[k] = a.detach()
    return out


def _differentiable(
    name: str, function: Callable[..., Any], backward: Callable[..., Any], setup: Callable[..., Any]
) -> type[Any]:
    """A function with that gradient, for plain calls."""

    class Direct(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = function(*inputs)
            setup(ctx, inputs, output)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            found = derivatives.in_backward(backward, ctx, *grads)
            out = list(found) if isinstance(found, tuple) else [found]
            for k, grad in enumerate(out):
                if isinstance(grad, list):
                    out[k] = None
            return tuple(out)

    return Direct


def hold(ctx: Any, parts: Sequence[Tensor], *tensors: Tensor | None) -> None:
    """Save tensors and parts for the backward pass, which takes `Own` parts as they are."""
    ctx.own = parts if type(parts) is Own else None
    ctx.save_for_backward(*tensors, *(parts if ctx.own is None else ()))


def held(ctx: Any, count: int) -> tuple[Sequence[Any], list[Tensor]]:
    """This number of tensors, and the parts that `hold` saved."""
    saved = ctx.saved_tensors  # once: to read them twice is an error under checkpointing
    return saved[:count], list(saved[count:]) if ctx.own is None else ctx.own


class FusedOp(Operator):
    """An operation whose backend kernels compute the values and, in a second op, the gradients.

    A call gives the outputs, differentiable any number of times; its last argument names a backend.
    `gradients` is the op of the gradients. From the declaration follow both torch ops with their
    schemas, shapes for tracing, checks of ids and shapes, what is saved, the gradients, and the
    gradients of the gradients, for which autograd follows the definition.

    Args:
        name: Of the op, "graphtheory::name"; that of the gradients is "graphtheory::name_backward".
        arguments: As of an `Operator`; "any" is a tensor that is not checked. Those whose word is a
            shape have gradients. An argument "backend" is added.
        outputs: The shape of each output; "!" marks one without a gradient.
        run: From the kernels of the backend and the arguments to the outputs.
        gradients: From the kernels, the arguments, the gradients of the outputs, what was kept, and
            which gradients are needed, to the gradient of each argument that has one, in any type;
            what is not needed may be anything.
        definition: From the arguments to the outputs that have gradients, by functions that
            autograd differentiates.
        kept: Words of what the backward pass reads beside the arguments, unless these are the
            outputs without a gradient.
        keep: What that is, from the arguments and the tuple of outputs.
        fake: Outputs without values, for tracing; without it their shapes say all.
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
        kept: str | None = None,
        keep: Callable[[Any, tuple[Any, ...]], tuple[Any, ...]] | None = None,
        fake: Callable[[Any], Any] | None = None,
    ) -> None:
        self._run, self._gradients, self._definition = run, gradients, definition
        given, results = f"{arguments} backend:str", [out.rstrip("!") for out in outputs.split()]
        self._open = [k for k, out in enumerate(outputs.split()) if not out.endswith("!")]
        self._closed = [k for k in range(len(results)) if k not in self._open]
        named_fake = None if fake is None else lambda *args: fake(self._as_named(*args))
        name = f"graphtheory::{name}"
        super().__init__(name, given, results, self._forward, named_fake)
        self._names, words = self.layout.names, self.layout.words
        self._as_named: Any = namedtuple("Arguments", self._names)  # type: ignore[misc]
        self._parts = words.index("parts") if "parts" in words else None  # the one list of tensors
        self._tensors = [k for k, word in enumerate(words) if word not in TYPES]
        self._options = [k for k, word in enumerate(words) if word in TYPES and k != self._parts]
        self._asked = [k for k, word in enumerate(words) if word.isupper()]
        self._take_tensors, self._take_asked = _taker(self._tensors), _taker(self._asked)
        self._take_options, self._take_closed = _taker(self._options), _taker(self._closed)
        self._keep = keep or (lambda a, outputs: self._take_closed(outputs))
        self.register_autograd(self._differentiate, setup_context=self._save)

        grads = [f"grad{k}:{results[at]}" for k, at in enumerate(self._open)]
        kept_words = [results[k] for k in self._closed] if kept is None else kept.split()
        kept_ones = [f"kept{k}:{word}" for k, word in enumerate(kept_words)]
        self._first, self._second = len(grads), len(grads) + len(kept_ones)
        backward = " ".join((*grads, *kept_ones, "needs:str", given))
        found = [words[k] for k in self._asked]
        self.gradients = Operator(
            f"{name}_backward", backward, found, self._backward, self._fake_gradients
        )
        self.gradients.register_autograd(self._differentiate_again, setup_context=self._save_again)

    def recorded(self, args: tuple[Any, ...], plan: Any) -> Any:
        for name, ids, table in self.layout.lookups:
            check_lookup(name, args[ids], args[table])
        kernels = BACKENDS[args[-1]].kernels
        one = plan.work(self, lambda: OpWork(self, args, kernels), kernels)
        found = one(self._take_tensors(args), plan.grad)
        if len(self._outputs) == 1:
            return found[0]
        out: list[Tensor | None] = [None] * len(self._outputs)  # for those without a gradient
        for k, tensor in zip(self._open, found, strict=True):
            out[k] = tensor
        return tuple(out)

    def _forward(self, *args: Any) -> Any:
        return self._run(BACKENDS[args[-1]].kernels, self._as_named(*args))

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
        given = [rest[k] if need else None for k, need in zip(self._asked, needs, strict=True)]
        return _one_or_all(
            [grads[0].new_empty(0) if t is None else t.new_empty(t.shape) for t in given]
        )

    def _apart(self, args: Sequence[Any]) -> tuple[Any, Any, Sequence[bool], Sequence[Any]]:
        """Gradients of the outputs, what was kept, which gradients are needed, the arguments."""
        first, second = self._first, self._second
        return args[:first], args[first:second], _flags(args[second]), args[second + 1 :]

    def _hold(self, ctx: Any, more: Sequence[Any], args: Sequence[Any]) -> None:
        ctx.set_materialize_grads(False)
        parts = () if self._parts is None else args[self._parts]
        ctx.options, ctx.num_parts = self._take_options(args), len(parts)
        hold(ctx, parts, *more, *self._take_tensors(args))

    def _held(self, ctx: Any, count: int) -> tuple[Sequence[Any], list[Any]]:
        """What was held, `count` tensors and the arguments."""
        saved, parts = held(ctx, count + len(self._tensors))
        return saved[:count], self._together(saved[count:], ctx.options, parts)

    def _together(self, tensors: Any, options: Any, parts: Any) -> list[Any]:
        """The arguments, of what `_take_tensors` and `_take_options` have taken from them."""
        args: list[Any] = [None] * len(self._names)
        for k, tensor in zip(self._tensors, tensors, strict=True):
            args[k] = tensor
        for k, option in zip(self._options, options, strict=True):
            args[k] = option
        if self._parts is not None:
            args[self._parts] = parts
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
