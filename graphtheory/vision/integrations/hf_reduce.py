"""Token reduction in vision transformers of other libraries, inside their own layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphtheory.vision.integrations.token_layers import Ask, Layers, Positions, Removable
from graphtheory.vision.nn import Keep, Merge
from graphtheory.vision.nn.reduce import Reducer, follow, unmerge

INSTALLED = "_fewer_tokens"  # attribute of a model: its `ReductionHooks` or others


@dataclass(frozen=True)
class Reduce:
    """Token reduction in given layers, between attention and MLP as EViT and ToMe do.

    Args:
        after: Maps the number of a layer, from 1, to the rule applied after its attention; or a
            list of rules, the first for layer 1, such as ``decreasing(13, 12)``; a single rule is
            applied in every layer.
        proportional: Whether attention is proportional: the log of the number of tokens that a
            token represents is added to its logits. None means if a rule is a `Merge`.
        restore: Whether every token is there again after the last layer, with the values of the
            one that represents it, for heads that need all of them. None means if attention is
            proportional, all rules merge or fuse, and a head averages the patches: they count in
            the mean by the number of tokens that they represent, as in ToMe.
        inside: Whether tokens are reduced between attention and MLP, as published; False means
            after the layer.

    Example:
        >>> Reduce({4: Merge(8)}).counts_sizes
        True
    """

    after: Mapping[int, Reducer] | Sequence[Reducer] | Reducer
    proportional: bool | None = None
    restore: bool | None = None
    inside: bool = True

    @property
    def counts_sizes(self) -> bool:
        """Whether attention is proportional."""
        if self.proportional is not None:
            return self.proportional
        return any(isinstance(rule, Merge) for rule in self._given().values())

    def restores(self, averages: bool) -> bool:
        """Whether tokens are restored, in a model whose head averages the patches or not.

        Raises:
            ValueError: If they have to be, and a rule drops some.
        """
        dropping = [rule for rule in self._given().values() if isinstance(rule, Keep)]
        if self.restore and dropping:
            raise ValueError(f"restore: {dropping[0]} drops tokens, expected Merge or Fuse")
        if self.restore is not None:
            return self.restore
        return averages and self.counts_sizes and not dropping

    def rules(self, layers: int) -> dict[int, Reducer]:
        """The rule in each layer that has one.

        Raises:
            TypeError: If a value is not a rule.
            ValueError: If a layer of that number does not exist, or a rule reads the `score` of an
                oracle, which a model does not have.
        """
        if isinstance(self.after, Reducer):
            rules = dict.fromkeys(range(1, layers + 1), self.after)
        else:
            rules = self._given()
        wrong = [i for i in rules if i not in range(1, layers + 1)]
        if wrong:
            raise ValueError(f"after: got layers {wrong}, expected 1..{layers}")
        for rule in rules.values():
            if not isinstance(rule, Reducer):
                raise TypeError(f"after: got {type(rule).__name__}, expected Keep, Fuse or Merge")
            if rule.needs == "score":
                raise ValueError(f"after: {rule} reads a score, expected a rule by attention")
        return rules

    def _given(self) -> dict[int, Reducer]:
        if isinstance(self.after, Reducer):
            return {1: self.after}
        if isinstance(self.after, Mapping):
            return dict(self.after)
        if not isinstance(self.after, Sequence):
            kind = type(self.after).__name__
            raise TypeError(f"after: got {kind}, expected a rule, a list of them or layer -> rule")
        return dict(enumerate(self.after, 1))


class Trace(NamedTuple):
    """Which remaining token represents each token of the last forward pass.

    Attributes:
        size: Number of tokens that each remaining token represents, [B, M].
        slot: Index of the remaining token that represents each of the T tokens, int64 [B, T]; -1
            for dropped tokens.
        place: Index of the token at whose place each remaining one lies, int64 [B, M]; -1 for a
            fused token. It has the position of that token where attention depends on positions,
            a fused one that of the class token.
    """

    size: Tensor
    slot: Tensor
    place: Tensor


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
    """Patch a model, in place of what was installed before."""
    uninstall(model)
    made.install()
    setattr(model, INSTALLED, made)


def uninstall(model: nn.Module) -> bool:
    """Undo what was installed; return whether there was anything."""
    made = getattr(model, INSTALLED, None)
    if made is not None:
        made.remove()
        delattr(model, INSTALLED)
    return made is not None


class ReductionHooks:
    """The patched layers of one model, and their state during a forward pass.

    Args:
        read: The layers of the model.
        what: The rules.

    Raises:
        ValueError: As in `Reduce.rules` and `Reduce.restores`; the model is not changed.
    """

    def __init__(self, read: Layers, what: Reduce) -> None:
        self.read, self.what = read, what
        self.rules, self.proportional = what.rules(len(read.layers)), what.counts_sizes
        self.restore = what.restores(read.averages)
        self.handle: Removable | None = None
        self.now: Trace | None = None
        self.whole = 0  # tokens before the first layer

    def install(self) -> None:
        """Patch the layers."""
        self.handle = self.read.guard()
        for number, layer in enumerate(self.read.layers, 1):
            layer.forward = partial(self.run, number)
            self.read.patch_attention(layer)

    def remove(self) -> None:
        """Restore the layers."""
        if self.handle is not None:
            self.handle.remove()
        for layer in self.read.layers:
            del layer.forward
            self.read.release(layer)

    def run(self, number: int, x: Tensor, *args: Any, **options: Any) -> Tensor:
        """Forward of the layer of that number."""
        layer = self.read.layers[number - 1]
        positions = self.read.positions(layer, args, options)
        if number == 1:
            size = x.new_ones(x.shape[:2])
            place = torch.arange(size.size(1), device=size.device).expand_as(size)
            self.now, self.whole = Trace(size, place, place), x.size(1)
        assert self.now is not None
        step = partial(self._step, number, positions, self.now)
        x, *after = self.read.checkpointed(layer, step, x)
        self.now = Trace(after[0].detach(), *after[1:])
        if number == len(self.read.layers):
            x = unmerge(x, self.now.slot) if self.restore else x
            if torch.compiler.is_exporting():
                self.now = None  # keep no tensors of a trace
        return x

    def _step(
        self, number: int, positions: Positions, now: Trace, x: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tokens after a layer, their sizes, slots and places."""
        read, layer, rule = self.read, self.read.layers[number - 1], self.rules.get(number)
        place = now.place if any(i < number for i in self.rules) else None
        size = now.size if self.proportional and x.size(1) < self.whole else None
        ask = Ask(positions, None, place, place, size, [])
        tokens = read.first(layer, x, ask)
        if rule is not None and self.what.inside:
            tokens, now = self._reduced(rule, layer, tokens, now, ask)
        tokens = read.second(layer, tokens)
        if rule is not None and not self.what.inside:
            tokens, now = self._reduced(rule, layer, tokens, now, ask)
        return tokens, *now

    def _reduced(
        self, rule: Reducer, layer: Any, tokens: Tensor, before: Trace, ask: Ask
    ) -> tuple[Tensor, Trace]:
        """Tokens after a rule, which reads what the attention has computed."""
        assert ask.parts is not None
        query, key = ask.parts
        found = rule(
            tokens, size=before.size, prefix=self.read.prefix,
            received=self._received(layer, query, key, ask) if rule.needs == "received" else None,
            keys=key.mean(1) if rule.needs == "keys" else None,
        )  # fmt: skip
        slot, place = follow(before.slot, found.slot), follow(found.place, before.place)
        return found.tokens, Trace(found.size, slot, place)

    def _received(self, layer: Any, query: Tensor, key: Tensor, ask: Ask) -> Tensor:
        """Attention received by each token, from the class token or else from all, [B, T]."""
        query = query[:, :, :1] if self.read.prefix else query
        logits = self.read.scale(layer) * query @ key.transpose(2, 3)  # [B, H, 1 or T, T]
        mask = ask.mask(key)
        if mask is not None:
            logits = logits + mask[:, :, : query.size(2)]
        return logits.softmax(3).mean((1, 2))
