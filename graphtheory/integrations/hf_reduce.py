"""Fewer tokens in ViT and DeiT of Hugging Face's transformers, by hooks on their layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from graphtheory.nn import Merge, Reducer, follow

PREFIX = {"vit": 1, "deit": 2}  # class token; class and distillation token
# Who adds a mask of numbers to the logits, as `proportional` needs.
_ADDING = ("sdpa", "eager", "graphtheory_")

INSTALLED = "_fewer_tokens"  # attribute of a model: what was put into it


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


def layers_of(model: PreTrainedModel) -> tuple[nn.ModuleList, int]:
    """Layers of a ViT or DeiT, and how many tokens it has before the patches.

    Raises:
        ValueError: Another model, and why not that one; a version of transformers that builds them
            otherwise.
    """
    kind, name = model.config.model_type, type(model).__name__
    if kind in ("swin", "swinv2", "donut-swin", "maskformer-swin"):
        raise ValueError(
            f"model: {name} attends in windows of a whole grid, adds a bias for each relative "
            "position and merges 2 x 2 neighbours, so no token may be missing; expected a ViT or "
            "DeiT. TopK can be applied to it, and models.stvit_swin_tiny has semantic tokens"
        )
    if kind not in PREFIX or "MaskedImage" in name:
        raise ValueError(
            f"model: got {name} of model_type {kind!r}, expected a ViT or DeiT that does not need "
            "every token at the end"
        )
    layers = getattr(model.base_model, "layers", None)
    if not isinstance(layers, nn.ModuleList) or not hasattr(layers[0].attention, "q_proj"):
        raise ValueError(f"model: {name} is not built as in transformers 5.23")
    return layers, PREFIX[kind]


def check_call(layer: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Raise where a layer is called in a way that does not go with fewer tokens."""
    mask = args[1] if len(args) > 1 else options.get("attention_mask")
    if mask is not None:
        raise ValueError("attention_mask: given, expected none where tokens get fewer")
    if layer.training and getattr(layer, "gradient_checkpointing", False):
        raise ValueError("gradient_checkpointing: on, expected off where tokens get fewer")


class ReductionHooks:
    """The hooks of one model, and what they share during a forward pass.

    Args:
        model: A ViT or DeiT.
        what: The rules.

    Raises:
        ValueError: See `layers_of` and `Reduce.rules`; the model was not touched.
    """

    def __init__(self, model: PreTrainedModel, what: Reduce) -> None:
        self.layers, self.prefix = layers_of(model)
        self.rules, self.proportional = what.rules(len(self.layers)), what.counts_sizes
        self.handles: list[RemovableHandle] = []
        self.now: Trace | None = None
        self.reduced = False

    def install(self) -> None:
        """Put the hooks in."""
        self.handles.append(self.layers[0].register_forward_pre_hook(self.start))
        for i, layer in enumerate(self.layers, 1):
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
        check_call(layer, args, options)
        if not self.proportional or not self.reduced:
            return None
        kind = layer.attention.config._attn_implementation
        if not kind.startswith(_ADDING):
            raise ValueError(f"attention: {kind!r} adds no mask, expected sdpa or eager")
        assert self.now is not None
        mask = self.now.size.log()[:, None, None].expand(-1, -1, args[0].size(1), -1)
        options = {k: v for k, v in options.items() if k != "attention_mask"}
        return (args[0], mask, *args[2:]), options

    def reduce(self, number: int, layer: Any, args: tuple[Any, ...], tokens: Tensor) -> Tensor:
        """After a layer that made `tokens`: the rule of that number."""
        rule, before = self.rules[number], self.now
        assert before is not None
        seen = layer.layernorm_before(args[0]) if rule.needs else args[0]
        found = rule(
            tokens, size=before.size, prefix=self.prefix,
            received=self._received(layer, seen) if rule.needs == "received" else None,
            keys=_heads(layer.attention, layer.attention.k_proj(seen)).mean(1)
            if rule.needs == "keys" else None,
        )  # fmt: skip
        self.now = Trace(found.size, follow(before.slot, found.slot))
        self.reduced = self.reduced or found.tokens.size(1) < tokens.size(1)
        return found.tokens

    def _received(self, layer: Any, seen: Tensor) -> Tensor:
        """Attention that each token receives of the class token, heads averaged, [B, T]."""
        attention = layer.attention
        query = _heads(attention, attention.q_proj(seen[:, :1]))
        key = _heads(attention, attention.k_proj(seen))
        logits = attention.scaling * (query @ key.transpose(2, 3))[:, :, 0]  # [B, H, T]
        if self.proportional and self.now is not None:
            logits = logits + self.now.size.log()[:, None]
        return logits.softmax(2).mean(1)


def _heads(attention: Any, x: Tensor) -> Tensor:
    """[B, heads, T, head_dim] of [B, T, dim]."""
    return x.unflatten(2, (-1, attention.head_dim)).transpose(1, 2)
