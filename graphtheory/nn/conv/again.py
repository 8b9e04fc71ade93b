"""A layer's call on a GPU, done again without asking its options, hooks and edges one by one.

On a small graph a GPU waits for Python, and most of what Python does in a layer is to find out what
has to be computed. As long as every attribute of the layer and of its parts is the object that it
was, and so are the edges, the answer is that of the call before.
"""

from collections.abc import Sequence
from itertools import chain
from operator import eq, is_
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook as has_global_hooks

from graphtheory.graph.content import is_tracing, state_of
from graphtheory.ops import layers
from graphtheory.ops.derivatives import needs_grad
from graphtheory.ops.recorded import Tensors

_NAME = "_again"  # of the attribute of a layer
_CONTENTS = ("_parameters", "_buffers", "_modules")


def compute(
    layer: nn.Module, args: Sequence[Any], kind: type[layers.Layer], nb: Any, tensors: Tensors,
    *options: Any, dropout: float = 0.0, free: int = 1,
) -> Tensor | None:  # fmt: skip
    """The output of a layer as one function; None where something has to see its parts.

    Args:
        layer: Whose attribute `_again` is told of the call.
        args: Of its call, the features first; all others decide what is computed.
        kind: What computes it.
        nb: Its rows.
        tensors: As `kind` names them, but for the seed.
        *options: As `kind` names them, but for the dropout.
        dropout: Probability of dropping a weight.
        free: How many of `args` are features.
    """
    prepared = layers.prepare(kind, nb, tensors, *options, dropout=dropout)
    found = None if prepared is None else prepared(tensors)
    if prepared is not None and prepared.again:  # recorded now, for tensors of these kinds
        vars(layer)[_NAME] = Again(layer, args, prepared, tensors, free)
    return found


class _Same:
    """A tensor, and what it holds."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor, self._state = ref(tensor), state_of(tensor)

    def holds(self, given: Any) -> bool:
        same = self._state is not None and given is self._tensor()
        return same and state_of(given) == self._state


class Again:
    """What computes a call of a layer, and all that decided this.

    It knows the layer's parts, not the layer. Copies of a layer have none of their own.
    """

    def __init__(
        self, layer: nn.Module, args: Sequence[Any], prepared: layers.Prepared, tensors: Tensors,
        free: int,
    ) -> None:  # fmt: skip
        given, rest = args[:free], args[free:]
        inlined = (part for name, part in layer.named_children() if name != "nn")  # called as it is
        self._parts = [one for part in inlined for one in part.modules()]
        own = [vars(layer), *map(vars, self._parts)]
        self._contents = [values[name] for values in own for name in _CONTENTS]
        containers = [v for values in own for v in values.values() if hasattr(v, "__len__")]
        self._empty = [one for one in containers if not len(one)]  # hooks, as a rule
        self._containers = [one for one in containers if len(one)]
        self._lengths = [*map(len, self._containers)]
        self._held = self._facts(layer)
        self._rest = [_Same(a) if isinstance(a, Tensor) else a for a in rest]
        named = ((d, name, t) for d in self._contents for name, t in d.items() if t is not None)
        places = {id(t): (d, name) for d, name, t in named}
        self._sources = [places.get(id(t)) for t in tensors]
        self._free = [[k for k, t in enumerate(tensors) if t is x] for x in given]  # places
        apart = {k for places in self._free for k in places}
        self._tensors = [None if k in apart else t for k, t in enumerate(tensors)]
        self._prepared = prepared
        pairs = zip(self._tensors, self._sources, strict=True)  # what stays has no graph behind it
        self._void = any(t is not None and t.requires_grad and not place for t, place in pairs)

    def __reduce__(self) -> Any:
        return type(None), ()

    def _facts(self, layer: nn.Module) -> list[Any]:
        dicts = [{**vars(layer), _NAME: None}, *map(vars, self._parts), *self._contents]
        types = type(layer), *map(type, self._parts)
        return [*types, *chain.from_iterable(map(dict.values, dicts))]

    def __call__(self, layer: nn.Module, *args: Any) -> Tensor | None:
        """The output, if nothing that decides how it is computed has changed."""
        if self._void or is_tracing() or has_global_hooks():
            return None
        facts = self._facts(layer)
        if len(facts) != len(self._held) or not all(map(is_, facts, self._held)):
            return None
        if any(self._empty) or not all(map(eq, map(len, self._containers), self._lengths)):
            return None
        tensors, free = self._tensors.copy(), len(self._free)
        for given, known in zip(args[free:], self._rest, strict=True):
            if not (known.holds(given) if type(known) is _Same else given is known):
                return None
        for x, places in zip(args, self._free, strict=False):
            if type(x) is not Tensor or x.is_inference():
                return None
            for k in places:
                tensors[k] = x
        for k, source in enumerate(self._sources):
            if source is not None:
                tensors[k] = source[0][source[1]]
        prepared = self._prepared
        if needs_grad(tensors) != prepared.grad:  # the replay looks at their kinds
            return None
        if torch.is_autocast_enabled(x.device.type):
            return None
        return None if prepared.neighborhood.check_unchanged() is None else prepared(tensors)
