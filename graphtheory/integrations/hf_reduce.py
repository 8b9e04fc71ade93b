"""Fewer tokens in the ViT and DeiT of other libraries, by hooks on their layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from graphtheory.nn import Merge
from graphtheory.nn.reduce import Reducer, follow

INSTALLED = "_fewer_tokens"  # attribute of a model: what was put into it


class Layers(Protocol):
    """How a library's model is read and called: `hf_layers.HFLayers`, `timm_layers.TimmLayers`.

    Attributes:
        layers: First to last.
        prefix: Tokens before the patches.
        base: The model to which parts that learn are added.
        embedding: What the images come to first.
        dim: Features of a token.
        patch: Rows and columns of a patch, in pixels.
    """

    layers: list[Any]
    prefix: int
    base: Any
    embedding: nn.Module
    dim: int
    patch: tuple[int, int]

    def norm(self, layer: Any, x: Tensor) -> Tensor:
        """What the attention of a layer sees of x [B, T, C]."""
        ...

    def attention(self, layer: Any) -> nn.Module:
        """The attention of a layer, whose first argument is what it sees."""
        ...

    def heads(self, layer: Any, x: Tensor, part: int) -> Tensor:
        """Query, key or value (part 0, 1, 2) of what it sees, [B, heads, T, D]."""
        ...

    def scale(self, layer: Any) -> float:
        """Factor of the dot products."""
        ...

    def attend(self, layer: Any, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Any:
        """What the attention of a layer gives; options are those that it is called with."""
        ...

    def release(self, layer: Any) -> None:
        """Take a `forward` out of the attention of a layer."""
        ...

    def check(self, layer: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Raise where a layer is called in a way that does not go with fewer tokens."""
        ...

    def masked(
        self, layer: Any, args: tuple[Any, ...], options: dict[str, Any], mask: Tensor
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What to call a layer with, so that the mask [B, 1, T, T] is added to its logits."""
        ...


@dataclass(frozen=True)
class Reduce:
    """Rules of token reduction, each after a layer.

    Args:
        after: The rule after the layer of that number, the first one being 1; a single rule stands
            for one after every layer.
        proportional: Whether a token counts in attention as many times as tokens it stands for;
            None: where a rule is a `Merge`.

    Example:
        >>> Reduce({4: Merge(8)}).counts_sizes
        True
    """

    after: Mapping[int, Reducer] | Reducer
    proportional: bool | None = None

    @property
    def counts_sizes(self) -> bool:
        """Whether attention is proportional."""
        if self.proportional is not None:
            return self.proportional
        rules = [self.after] if isinstance(self.after, Reducer) else self.after.values()
        return any(isinstance(rule, Merge) for rule in rules)

    def rules(self, layers: int) -> dict[int, Reducer]:
        """The rule after each layer that has one.

        Raises:
            TypeError: Something else than a rule.
            ValueError: A number of a layer that does not exist.
        """
        if isinstance(self.after, Reducer):
            return dict.fromkeys(range(1, layers + 1), self.after)
        wrong = [i for i in self.after if i not in range(1, layers + 1)]
        if wrong:
            raise ValueError(f"after: layers {wrong}, expected 1..{layers}")
        for rule in self.after.values():
            if not isinstance(rule, Reducer):
                raise TypeError(f"after: got {type(rule).__name__}, expected Keep, Fuse or Merge")
        return dict(self.after)


class Trace(NamedTuple):
    """Where the tokens of the last forward pass went.

    Attributes:
        size: Tokens that each of those that are left stands for, [B, M].
        slot: Which of the M each of the T tokens went to, int64 [B, T]; -1 for one that was left.
    """

    size: Tensor
    slot: Tensor


def trace(model: nn.Module) -> Trace:
    """Where the tokens of the last forward pass of a model with reduction went.

    ``unmerge(outputs.last_hidden_state, trace(model).slot)`` has every token again.

    Raises:
        ValueError: No `Reduce` was applied to the model, or it was not called since.
    """
    made = getattr(model, INSTALLED, None)
    if not isinstance(made, ReductionHooks) or made.now is None:
        raise ValueError(f"model: no reduction has run in this {type(model).__name__}")
    return made.now


def put(model: nn.Module, made: Any) -> None:
    """Put hooks into a model, in the place of those that are in it."""
    take_out(model)
    made.install()
    setattr(model, INSTALLED, made)


def take_out(model: nn.Module) -> bool:
    """Take out what makes tokens fewer; whether there was anything."""
    made = getattr(model, INSTALLED, None)
    if made is not None:
        made.remove()
        delattr(model, INSTALLED)
    return made is not None


class ReductionHooks:
    """The hooks of one model, and what they share during a forward pass.

    Args:
        read: Of that model.
        what: The rules.

    Raises:
        ValueError: See `Reduce.rules`; the model was not touched.
    """

    def __init__(self, read: Layers, what: Reduce) -> None:
        self.read = read
        self.rules, self.proportional = what.rules(len(read.layers)), what.counts_sizes
        self.handles: list[RemovableHandle] = []
        self.now: Trace | None = None
        self.reduced = False

    def install(self) -> None:
        """Put the hooks in."""
        self.handles.append(self.read.layers[0].register_forward_pre_hook(self.start))
        for i, layer in enumerate(self.read.layers, 1):
            self.handles.append(layer.register_forward_pre_hook(self.weigh, with_kwargs=True))
            if i in self.rules:
                hook = partial(self.reduce, i)
                self.handles.append(layer.register_forward_hook(hook))

    def remove(self) -> None:
        """Take them out."""
        for handle in self.handles:
            handle.remove()

    def start(self, layer: nn.Module, args: tuple[Any, ...]) -> None:
        """Of the first layer: every token stands for itself."""
        size = args[0].new_ones(args[0].shape[:2])
        self.now = Trace(size, torch.arange(size.size(1), device=size.device).expand_as(size))
        self.reduced = False

    def weigh(
        self, layer: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Of each layer: log sizes as a mask that is added to the logits."""
        self.read.check(layer, args, options)
        if not self.proportional or not self.reduced:
            return None
        assert self.now is not None
        mask = self.now.size.log()[:, None, None].expand(-1, -1, args[0].size(1), -1)
        return self.read.masked(layer, args, options, mask)

    def reduce(self, number: int, layer: Any, args: tuple[Any, ...], tokens: Tensor) -> Tensor:
        """After a layer that made `tokens`: the rule of that number."""
        rule, before = self.rules[number], self.now
        assert before is not None
        seen = self.read.norm(layer, args[0]) if rule.needs else args[0]
        found = rule(
            tokens, size=before.size, prefix=self.read.prefix,
            received=self._received(layer, seen) if rule.needs == "received" else None,
            keys=self.read.heads(layer, seen, 1).mean(1) if rule.needs == "keys" else None,
        )  # fmt: skip
        self.now = Trace(found.size, follow(before.slot, found.slot))
        self.reduced = self.reduced or found.tokens.size(1) < tokens.size(1)
        return found.tokens

    def _received(self, layer: Any, seen: Tensor) -> Tensor:
        """Attention that each token receives, heads averaged, [B, T].

        Of the first token where there is one before the patches, else the mean of all.
        """
        asking = seen[:, :1] if self.read.prefix else seen
        query, key = self.read.heads(layer, asking, 0), self.read.heads(layer, seen, 1)
        logits = self.read.scale(layer) * query @ key.transpose(2, 3)  # [B, H, 1 or T, T]
        if self.proportional and self.now is not None:
            logits = logits + self.now.size.log()[:, None, None]
        return logits.softmax(3).mean((1, 2))
