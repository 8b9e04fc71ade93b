"""A layer's call on a GPU, done again without asking its options, hooks and edges one by one.

On a small graph a GPU waits for Python, and most of what Python does in a layer is to find out what
has to be computed. As long as every attribute of the layer and of its parts is the object that it
was, and so are the edges, the answer is that of the call before.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook as has_global_hooks
from torch_geometric.nn.dense import Linear

from graphtheory.graph.content import is_tracing, state_of
from graphtheory.nn.bias import BucketBias
from graphtheory.nn.conv.on_core import REDUCTIONS
from graphtheory.nn.conv.sparse_features import may_change
from graphtheory.ops import layers
from graphtheory.ops.derivatives import needs_grad
from graphtheory.ops.recorded import Tensors

_NAME = "_again"  # of the attribute of a layer
_CONTENTS = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_forward_hooks", "_backward_hooks", "_backward_pre_hooks")
_DECIDING = "_parameters", "_forward_pre_hooks", *_HOOKS
_Read = Callable[[dict[str, Any]], Iterable[Any]]
# parts of which no other attribute decides anything
_READ: dict[type, _Read] = dict.fromkeys((Linear, *REDUCTIONS), itemgetter(*_DECIDING))
_READ[BucketBias] = itemgetter("num_buckets", "own_token", *_DECIDING)


def compute(
    layer: nn.Module, args: Sequence[Any], kind: type[layers.Layer], nb: Any, tensors: Tensors,
    *options: Any, dropout: float = 0.0, free: Sequence[int] = (0,),
) -> Tensor | None:  # fmt: skip
    """The output of a layer as one function; None where something has to see its parts.

    Args:
        layer: Whose attribute `_again` is told of the call.
        args: Of its call, of which all but features decide what is computed.
        kind: What computes it.
        nb: Its rows.
        tensors: As `kind` names them, but for the seed.
        *options: As `kind` names them, but for the dropout.
        dropout: Probability of dropping a weight.
        free: Places of the features among `args`, of the nodes first.
    """
    prepared = layers.prepare(kind, nb, tensors, *options, dropout=dropout)
    found = None if prepared is None else prepared(tensors)
    if prepared is not None and prepared.again:  # recorded now, for tensors of these kinds
        vars(layer)[_NAME] = Again(layer, args, prepared, tensors, free)
    return found


def _arguments(kind: type) -> tuple[str, ...]:
    """Those that `OnCore` says of the `forward` of a class; none of one that a user has written."""
    of = next(one for one in kind.__mro__ if "forward" in vars(one))
    return vars(of).get("arguments", ())


def _state(t: Any) -> tuple[Any, ...]:
    """What stays the same while a GPU's tensor holds the same, if `state_of` knows it."""
    return t._version, t.data_ptr(), t.shape, t.stride(), t.dtype


class Again:
    """What computes a call of a layer, and all that decided this.

    It knows the layer's parts, not the layer. Copies of a layer have none of their own.
    """

    def __init__(
        self, layer: nn.Module, args: Sequence[Any], prepared: layers.Prepared, tensors: Tensors,
        free: Sequence[int],
    ) -> None:  # fmt: skip
        inlined = (part for name, part in layer.named_children() if name != "nn")  # called as it is
        parts = [one for part in inlined for one in part.modules()]
        of_part = (_READ.get(type(one), dict.values) for one in parts)
        self._parts: list[tuple[nn.Module, _Read]] = [*zip(parts, of_part, strict=True)]
        own = [vars(layer), *map(vars, parts)]
        contents = [values[name] for values in own for name in _CONTENTS]
        self._contents = [one for one in contents if one]
        read = [*own[0].values(), *(v for part, of in self._parts for v in of(vars(part)))]
        hooks = vars(layer)["_forward_pre_hooks"]
        self._contents += [hooks] if hooks else []
        containers = [v for v in read if hasattr(v, "__len__") and not isinstance(v, str)]
        self._empty = [one for one in containers if not len(one)]  # hooks, as a rule
        told = {*map(id, self._contents)}
        self._containers = [one for one in containers if len(one) and id(one) not in told]
        hooked = any(vars(layer)[name] for name in _HOOKS) or may_change(hooks, args)
        whole = "forward" not in vars(layer) and not hooked
        self._names = _arguments(type(layer)) if whole else ()
        # number of arguments in order and names of the others -> the names of all others, in order
        self._orders: dict[tuple[Any, ...], tuple[str, ...]] = {}
        vars(layer)[_NAME] = self  # a fact too, of which nothing is held: no circle
        self._held = self._facts(layer)
        self._at = next(k for k, fact in enumerate(self._held) if fact is self)
        self._held[self._at] = None
        rest = [(k, a) for k, a in enumerate(args) if k not in free]
        self._options = [(k, a) for k, a in rest if not isinstance(a, Tensor)]
        others = [(k, t) for k, t in rest if isinstance(t, Tensor)]
        self._others = [(k, ref(t), _state(t)) for k, t in others if not t.is_inference()]
        unknown = any(t.is_cpu or state_of(t) is None for _, t in others)
        places = {id(t): (content, name) for content in contents for name, t in content.items()}
        sources = [None if t is None else places.get(id(t)) for t in tensors]
        self._sources = [(k, *place) for k, place in enumerate(sources) if place is not None]
        self._free = [(k, [n for n, t in enumerate(tensors) if t is args[k]]) for k in free]
        given = {n for _, places in self._free for n in places}
        self._tensors = [None if k in given else t for k, t in enumerate(tensors)]
        self._prepared, self._device = prepared, args[free[0]].device.type
        pairs = zip(self._tensors, sources, strict=True)  # what stays has no graph behind it
        learned = (t is not None and t.requires_grad and not place for t, place in pairs)
        self._void = unknown or any(learned)

    def __reduce__(self) -> Any:
        return type(None), ()

    def _facts(self, layer: nn.Module) -> list[Any]:
        found = [type(layer), type(layer).forward, *vars(layer).values()]
        for part, read in self._parts:
            own = vars(part)
            found += type(part), len(own)
            found += read(own)
        for content in self._contents:
            found += content.values()
        found += map(len, self._containers)
        return found

    def _holds(self, layer: nn.Module) -> bool:
        """Whether every attribute of the layer and of its parts is what it was."""
        if any(self._empty):
            return False
        facts = self._facts(layer)
        if len(facts) != len(self._held) or facts[self._at] is not self:
            return False
        facts[self._at] = None
        try:
            return facts == self._held
        except (RuntimeError, TypeError, ValueError):  # of other tensors or arrays
            return False

    def at_once(
        self, layer: nn.Module, args: tuple[Any, ...], named: dict[str, Any]
    ) -> Tensor | None:
        """The same of a call of the layer, on which nobody has a hook that would see it."""
        form = len(args), *named
        rest = self._orders.get(form)
        if rest is None:
            rest = self._names[len(args) :]
            if len(args) > len(self._names) or not {*rest} >= {*named}:  # which `forward` refuses
                return None
            self._orders[form] = rest
        return self(layer, *args, *map(named.get, rest))

    def __call__(self, layer: nn.Module, *args: Any) -> Tensor | None:
        """The output, if nothing that decides how it is computed has changed."""
        if self._void or is_tracing() or has_global_hooks() or not self._holds(layer):
            return None
        tensors = self._tensors.copy()
        for k, option in self._options:
            if args[k] is not option:
                return None
        for k, known, state in self._others:
            if args[k] is not known() or _state(args[k]) != state:
                return None
        for k, places in self._free:
            x = args[k]
            if type(x) is not Tensor or x.is_inference():
                return None
            for n in places:
                tensors[n] = x
        for n, content, name in self._sources:
            tensors[n] = content[name]
        prepared = self._prepared
        if needs_grad(tensors) != prepared.grad or torch.is_autocast_enabled(self._device):
            return None  # the replay looks at the kinds of tensors
        nb = prepared.neighborhood
        return prepared(tensors) if nb._sealed or nb.check_unchanged() is not None else None
