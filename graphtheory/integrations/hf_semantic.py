"""Semantic tokens in the ViT and DeiT of other libraries: their layers, fewer tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from graphtheory.graph import Grid
from graphtheory.integrations.hf_reduce import Layers
from graphtheory.nn import AveragePool, Centers


@dataclass(frozen=True, eq=False)
class Semantic:
    r"""Semantic tokens in place of patches, made by two layers of the model as they are.

    .. math:: S_1 = \operatorname{Layer}(P; X), \qquad
        S_2 = \operatorname{Layer}(S_1 + G; [S_1, X])

    Class and distillation token go along: they ask with the tokens, and the tokens see them. A
    model that was not trained so does not know of such tokens; train it on. The centers and G, a
    vector for each token that begins at 0, become a part of the model, ``base_model.semantic``.

    In a Swin the deepest stage does so, behind its first `base` blocks and without windows or
    their biases by relative position. Its last block gives back, as in STViT-R, :math:`X' =
    \operatorname{Layer}(X; S)`, so that stages and tasks that follow have the whole grid.

    Args:
        tokens: M, a square number, for means of bins; or a kind of `Centers`, such as `MaskPool`.
        base: Layers on the patches; in a Swin of that stage.
        with_global: Whether there is a G.

    Source:
        Chang et al. (2023), Making vision transformers efficient from a token sparsification view,
        section 3.2, who have no class token: `models.stvit_deit_small` is theirs.
    """

    tokens: int | Centers = 16
    base: int = 4
    with_global: bool = True

    def make_centers(self) -> Centers:
        """What makes the first centers."""
        if isinstance(self.tokens, Centers):
            return self.tokens
        if self.tokens < 1 or isqrt(self.tokens) ** 2 != self.tokens:
            raise ValueError(f"tokens: got {self.tokens}, expected a square number or Centers")
        return AveragePool(isqrt(self.tokens))


class Tokens(nn.Module):
    """What belongs to the model: centers and G, on the device and in the dtype of a parameter."""

    def __init__(self, what: Semantic, dim: int, like: nn.Parameter) -> None:
        super().__init__()
        self.centres = what.make_centers()
        shape = (self.centres.tokens, dim)
        self.global_centres = nn.Parameter(torch.zeros(shape)) if what.with_global else None
        self.to(like.device, like.dtype)


class SemanticHooks:
    """The hooks of one model, and what they share during a forward pass.

    Args:
        read: Of that model.
        what: Which tokens, and where.

    Raises:
        ValueError: Layers that there are not; tokens that are no square. The model was not touched.
    """

    def __init__(self, read: Layers, what: Semantic) -> None:
        if not 0 <= what.base <= len(read.layers) - 2:
            raise ValueError(f"base: got {what.base}, expected 0..{len(read.layers) - 2}")
        self.parts = Tokens(what, read.dim, next(read.base.parameters())).train(read.base.training)
        self.read = read
        self.two = read.layers[what.base : what.base + 2]
        self.handles: list[RemovableHandle] = []
        self.size = (0, 0)
        self.patches: Tensor | None = None
        self.senders: list[Tensor] = []

    def install(self) -> None:
        """Put them in, and the parts to learn."""
        self.read.base.semantic = self.parts
        self.handles += [
            self.read.embedding.register_forward_pre_hook(self.look),
            *(
                layer.register_forward_pre_hook(self.read.check, with_kwargs=True)
                for layer in self.read.layers
            ),
            self.two[0].register_forward_pre_hook(self.ask_patches),
            self.two[1].register_forward_pre_hook(self.ask_both),
        ]
        for which, layer in enumerate(self.two):
            self.read.attention(layer).forward = partial(self.attend, which)

    def remove(self) -> None:
        """Take all of it out."""
        del self.read.base.semantic
        for layer in self.two:
            self.read.release(layer)
        for handle in self.handles:
            handle.remove()

    def look(self, embeddings: nn.Module, args: tuple[Any, ...]) -> None:
        """Of the embeddings: how large the images are."""
        (height, width), patch = args[0].shape[2:], self.read.patch
        self.size = (height // patch[0], width // patch[1])

    def ask_patches(self, layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Of the first layer: prefix and centers ask prefix and patches."""
        prefix, patches = args[0].tensor_split([self.read.prefix], 1)
        centers = self.read.base.semantic.centres(
            patches.flatten(0, 1), Grid(len(patches), *self.size)
        )
        self.patches, self.senders = patches, [args[0]]
        tokens = centers.view(len(patches), -1, patches.size(2))
        return (torch.cat([prefix, tokens], 1), *args[1:])

    def ask_both(self, layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Of the second: prefix and tokens with G ask prefix, tokens and patches."""
        assert self.patches is not None
        self.senders.append(torch.cat([args[0], self.patches], 1))
        moved = self.read.base.semantic.global_centres
        if moved is None:
            return args
        prefix, tokens = args[0].tensor_split([self.read.prefix], 1)
        return (torch.cat([prefix, tokens + moved], 1), *args[1:])

    def attend(self, which: int, seen: Tensor, *args: Any, **options: Any) -> Any:
        """The attention of a layer, with senders that are not those who ask."""
        read, layer = self.read, self.two[which]
        senders = read.norm(layer, self.senders[which])
        if which == 1:
            self.patches, self.senders = None, []  # nothing of this pass is kept
        parts = (read.heads(layer, x, i) for i, x in enumerate((seen, senders, senders)))
        return read.attend(layer, *parts, *args, **options)
