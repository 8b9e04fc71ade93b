"""Semantic tokens in ViT and DeiT of Hugging Face's transformers: their layers, fewer tokens."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from graphtheory.graph import Grid
from graphtheory.integrations.hf_reduce import check_call, layers_of
from graphtheory.nn import AveragePool, Centres


@dataclass(frozen=True, eq=False)
class Semantic:
    r"""Semantic tokens in place of patches, made by two layers of the model as they are.

    .. math:: S_1 = \operatorname{Layer}(P; X), \qquad
        S_2 = \operatorname{Layer}(S_1 + G; [S_1, X])

    Class and distillation token go along: they ask with the tokens, and the tokens see them. A
    model that was not trained so does not know of such tokens; train it on. The centres and G, a
    vector for each token that begins at 0, become a part of the model, ``base_model.semantic``.

    Args:
        tokens: M, a square number, for means of bins; or a kind of `Centres`, such as `MaskPool`.
        base: Layers on the patches.
        with_global: Whether there is a G.

    Source:
        Chang et al. (2023), Making vision transformers efficient from a token sparsification view,
        section 3.2, who have no class token: `models.stvit_deit_small` is theirs.
    """

    tokens: int | Centres = 16
    base: int = 4
    with_global: bool = True

    def centres(self) -> Centres:
        """What makes the first centres."""
        if isinstance(self.tokens, Centres):
            return self.tokens
        if self.tokens < 1 or isqrt(self.tokens) ** 2 != self.tokens:
            raise ValueError(f"tokens: got {self.tokens}, expected a square number or Centres")
        return AveragePool(isqrt(self.tokens))


class _Tokens(nn.Module):
    """What belongs to the model: centres and G."""

    def __init__(self, centres: Centres, dim: int, with_global: bool) -> None:
        super().__init__()
        self.centres = centres
        self.global_centres = (
            nn.Parameter(torch.zeros(centres.tokens, dim)) if with_global else None
        )


class SemanticHooks:
    """The hooks of one model, and what they share during a forward pass.

    Args:
        model: A ViT or DeiT.
        what: Which tokens, and where.

    Raises:
        ValueError: See `hf_reduce.layers_of`; layers that there are not; tokens that are no square.
            The model was not touched.
    """

    def __init__(self, model: PreTrainedModel, what: Semantic) -> None:
        self.layers, self.prefix = layers_of(model)
        if not 0 <= what.base <= len(self.layers) - 2:
            raise ValueError(f"base: got {what.base}, expected 0..{len(self.layers) - 2}")
        some = next(model.parameters())
        parts = _Tokens(what.centres(), model.config.hidden_size, what.with_global)
        self.parts = parts.to(some.device, some.dtype).train(model.training)
        self.base: Any = model.base_model
        self.two: list[Any] = list(self.layers[what.base : what.base + 2])
        self.handles: list[RemovableHandle] = []
        self.size = (0, 0)
        self.patches: Tensor | None = None
        self.senders: list[Tensor] = []

    def install(self) -> None:
        """Put them in, and the parts to learn."""
        self.base.semantic = self.parts
        self.handles += [
            self.base.embeddings.register_forward_pre_hook(self.look),
            *(
                layer.register_forward_pre_hook(check_call, with_kwargs=True)
                for layer in self.layers
            ),
            self.two[0].register_forward_pre_hook(self.ask_patches),
            self.two[1].register_forward_pre_hook(self.ask_both),
        ]
        for which, layer in enumerate(self.two):
            layer.attention.forward = partial(self.attend, which)

    def remove(self) -> None:
        """Take all of it out."""
        del self.base.semantic
        for layer in self.two:
            del layer.attention.forward
        for handle in self.handles:
            handle.remove()

    def look(self, embeddings: nn.Module, args: tuple[Any, ...]) -> None:
        """Of the embeddings: how large the images are."""
        side = self.base.config.patch_size
        sides = (side, side) if isinstance(side, int) else tuple(side)
        height, width = args[0].shape[2:]
        self.size = (height // sides[0], width // sides[1])

    def ask_patches(self, layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Of the first layer: prefix and centres ask prefix and patches."""
        prefix, patches = args[0].tensor_split([self.prefix], 1)
        centres = self.base.semantic.centres(patches.flatten(0, 1), Grid(len(patches), *self.size))
        self.patches, self.senders = patches, [args[0]]
        tokens = centres.view(len(patches), -1, patches.size(2))
        return (torch.cat([prefix, tokens], 1), *args[1:])

    def ask_both(self, layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Of the second: prefix and tokens with G ask prefix, tokens and patches."""
        assert self.patches is not None
        self.senders.append(torch.cat([args[0], self.patches], 1))
        moved = self.base.semantic.global_centres
        if moved is None:
            return args
        prefix, tokens = args[0].tensor_split([self.prefix], 1)
        return (torch.cat([prefix, tokens + moved], 1), *args[1:])

    def attend(
        self,
        which: int,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """The attention of a layer, with senders that are not those who ask."""
        layer: Any = self.two[which]
        attention = layer.attention
        senders = layer.layernorm_before(self.senders[which])
        if which == 1:
            self.patches, self.senders = None, []  # nothing of this pass is kept
        query, key, value = (
            part(x).unflatten(2, (-1, attention.head_dim)).transpose(1, 2)
            for part, x in (
                (attention.q_proj, hidden_states),
                (attention.k_proj, senders),
                (attention.v_proj, senders),
            )
        )
        eager = sys.modules[type(attention).__module__].eager_attention_forward
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(attention.config._attn_implementation, eager)
        dropout = attention.attention_dropout if attention.training else 0.0
        out, weights = attend(
            attention, query, key, value, attention_mask,
            dropout=dropout, scaling=attention.scaling, **options,
        )  # fmt: skip
        return attention.o_proj(out.flatten(2)), weights
