"""Token reduction in ViT and DeiT of other libraries, by hooks on their layers."""

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

INSTALLED = "_fewer_tokens"  # attribute of a model: its hooks


class Layers(Protocol):
    """Access to the layers of a library: `hf_layers.HFLayers`, `timm_layers.TimmLayers`."""

    layers: list[Any]  # all layers, first to last
    prefix: int  # number of tokens before the patches
    base: Any  # the module to which new parameters are added
    embedding: nn.Module  # the module that embeds the images
    dim: int  # features per token
    patch: tuple[int, int]  # rows and columns of a patch, in pixels

    def norm(self, layer: Any, x: Tensor) -> Tensor:
        """What the attention of a layer sees of x [B, T, C]."""
        ...

    def attention(self, layer: Any) -> nn.Module:
        """The attention module of a layer; its first argument is the normalized tokens."""
        ...

    def heads(self, layer: Any, x: Tensor, part: int) -> Tensor:
        """Query, key or value (part 0, 1, 2) of normalized tokens x, [B, heads, T, D]."""
        ...

    def scale(self, layer: Any) -> float:
        """Factor of the dot products."""
        ...

    def attend(self, layer: Any, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Any:
        """Output of the attention of a layer; `options` are its other arguments."""
        ...

    def release(self, layer: Any) -> None:
        """Restore the `forward` of the attention of a layer."""
        ...

    def check(self, layer: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Raise if a layer is called in a way that token reduction does not support."""
        ...

    def masked(
        self, layer: Any, args: tuple[Any, ...], options: dict[str, Any], mask: Tensor
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a layer that add the mask [B, 1, T, T] to its logits."""
        ...


@dataclass(frozen=True)
class Reduce:
    """Token reduction after given layers.

    Args:
        after: Maps the number of a layer, from 1, to the rule applied after it; a single rule is
            applied after every layer.
        proportional: Whether attention is proportional: the log of the number of tokens that a
            token represents is added to its logits. None means if a rule is a `Merge`.

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
            TypeError: If a value is not a rule.
            ValueError: If a layer of that number does not exist.
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
    """Which remaining token represents each token of the last forward pass.

    Attributes:
        size: Number of tokens that each remaining token represents, [B, M].
        slot: Index of the remaining token that represents each of the T tokens, int64 [B, T]; -1
            for dropped tokens.
    """

    size: Tensor
    slot: Tensor


def trace(model: nn.Module) -> Trace:
    """The `Trace` of the last forward pass of a model with token reduction.

    ``unmerge(outputs.last_hidden_state, trace(model).slot)`` restores every token.

    Raises:
        ValueError: If no `Reduce` was applied to the model, or it was not called since.
    """
    made = getattr(model, INSTALLED, None)
    if not isinstance(made, ReductionHooks) or made.now is None:
        raise ValueError(f"model: no reduction has run in this {type(model).__name__}")
    return made.now


def install(model: nn.Module, made: Any) -> None:
    """Install hooks in a model, replacing earlier ones."""
    uninstall(model)
    made.install()
    setattr(model, INSTALLED, made)


def uninstall(model: nn.Module) -> bool:
    """Remove the hooks of token reduction; return whether there were any."""
    made = getattr(model, INSTALLED, None)
    if made is not None:
        made.remove()
        delattr(model, INSTALLED)
    return made is not None


class ReductionHooks:
    """The hooks of one model, and their state during a forward pass.

    Args:
        read: The layers of the model.
        what: The rules.

    Raises:
        ValueError: As in `Reduce.rules`; the model is not changed.
    """

    def __init__(self, read: Layers, what: Reduce) -> None:
        self.read = read
        self.rules, self.proportional = what.rules(len(read.layers)), what.counts_sizes
        self.handles: list[RemovableHandle] = []
        self.now: Trace | None = None
        self.reduced = False

    def install(self) -> None:
        """Register the hooks."""
        self.handles.append(self.read.layers[0].register_forward_pre_hook(self.start))
        for i, layer in enumerate(self.read.layers, 1):
            self.handles.append(layer.register_forward_pre_hook(self.weigh, with_kwargs=True))
            if i in self.rules:
                hook = partial(self.reduce, i)
                self.handles.append(layer.register_forward_hook(hook))

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self.handles:
            handle.remove()

    def start(self, layer: nn.Module, args: tuple[Any, ...]) -> None:
        """Before the first layer: every token represents itself."""
        size = args[0].new_ones(args[0].shape[:2])
        self.now = Trace(size, torch.arange(size.size(1), device=size.device).expand_as(size))
        self.reduced = False

    def weigh(
        self, layer: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Before each layer: add the log sizes to the attention logits."""
        self.read.check(layer, args, options)
        if not self.proportional or not self.reduced:
            return None
        assert self.now is not None
        mask = self.now.size.log()[:, None, None].expand(-1, -1, args[0].size(1), -1)
        return self.read.masked(layer, args, options, mask)

    def reduce(self, number: int, layer: Any, args: tuple[Any, ...], tokens: Tensor) -> Tensor:
        """After the layer of that number: apply its rule to its output `tokens`."""
        rule, before = self.rules[number], self.now
        assert before is not None
        normed = self.read.norm(layer, args[0]) if rule.needs else args[0]
        found = rule(
            tokens, size=before.size, prefix=self.read.prefix,
            received=self._received(layer, normed) if rule.needs == "received" else None,
            keys=self.read.heads(layer, normed, 1).mean(1) if rule.needs == "keys" else None,
        )  # fmt: skip
        self.now = Trace(found.size, follow(before.slot, found.slot))
        self.reduced = self.reduced or found.tokens.size(1) < tokens.size(1)
        return found.tokens

    def _received(self, layer: Any, normed: Tensor) -> Tensor:
        """Attention received by each token, from the class token or else from all, [B, T]."""
        queries = normed[:, :1] if self.read.prefix else normed
        query, key = self.read.heads(layer, queries, 0), self.read.heads(layer, normed, 1)
        logits = self.read.scale(layer) * query @ key.transpose(2, 3)  # [B, H, 1 or T, T]
        if self.proportional and self.now is not None:
            logits = logits + self.now.size.log()[:, None, None]
        return logits.softmax(3).mean((1, 2))
