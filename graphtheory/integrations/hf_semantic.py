"""Semantic tokens (STViT) in ViT and DeiT of other libraries, using their own layers."""

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
    r"""Semantic tokens in place of patches, computed by two of the model's own layers.

    .. math:: S_1 = \operatorname{Layer}(P; X), \qquad
        S_2 = \operatorname{Layer}(S_1 + G; [S_1, X])

    Class and distillation tokens are both queries and keys in both layers. Fine-tune a model that
    was not trained with semantic tokens. The centers and G, a vector per token initialized to 0,
    become a submodule of the model, ``base_model.semantic``.

    In a Swin this applies to the deepest stage, after its first `base` blocks and without windows
    or relative position biases. Its last block restores the patches, as in STViT-R, :math:`X' =
    \operatorname{Layer}(X; S)`, so that later stages and heads have the whole grid.

    Args:
        tokens: M, a square number, for average pooling; or `Centers`, such as `MaskPool`.
        base: Number of layers on the patches before; in a Swin, of the deepest stage.
        with_global: Whether to learn G.

    Source:
        Chang et al. (2023), Making vision transformers efficient from a token sparsification view,
        section 3.2. Differs: class tokens are kept; `models.stvit_deit_small` is the original.
    """

    tokens: int | Centers = 16
    base: int = 4
    with_global: bool = True

    def make_centers(self) -> Centers:
        """The module that computes the initial centers."""
        if isinstance(self.tokens, Centers):
            return self.tokens
        if self.tokens < 1 or isqrt(self.tokens) ** 2 != self.tokens:
            raise ValueError(f"tokens: got {self.tokens}, expected a square number or Centers")
        return AveragePool(isqrt(self.tokens))


class Tokens(nn.Module):
    """Centers and G, a submodule of the model, on the device and in the dtype of `like`."""

    def __init__(self, what: Semantic, dim: int, like: nn.Parameter) -> None:
        super().__init__()
        self.centres = what.make_centers()
        shape = (self.centres.tokens, dim)
        self.global_centres = nn.Parameter(torch.zeros(shape)) if what.with_global else None
        self.to(like.device, like.dtype)


class SemanticHooks:
    """The hooks of one model, and their state during a forward pass.

    Args:
        read: The layers of the model.
        what: Which tokens, and after which layer.

    Raises:
        ValueError: If the layers do not exist or `tokens` is no square; the model is not changed.
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
        """Register the hooks and add the new parameters."""
        self.read.base.semantic = self.parts
        self.handles += [
            self.read.embedding.register_forward_pre_hook(self.record_size),
            *(
                layer.register_forward_pre_hook(self.read.check, with_kwargs=True)
                for layer in self.read.layers
            ),
            self.two[0].register_forward_pre_hook(self.query_patches),
            self.two[1].register_forward_pre_hook(self.query_both),
        ]
        for which, layer in enumerate(self.two):
            self.read.attention(layer).forward = partial(self.attend, which)

    def remove(self) -> None:
        """Remove the hooks and the new parameters."""
        del self.read.base.semantic
        for layer in self.two:
            self.read.release(layer)
        for handle in self.handles:
            handle.remove()

    def record_size(self, embeddings: nn.Module, args: tuple[Any, ...]) -> None:
        """Before the embedding: record the size of the images in patches."""
        (height, width), patch = args[0].shape[2:], self.read.patch
        self.size = (height // patch[0], width // patch[1])

    def query_patches(self, layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Before the first layer: prefix and centers query prefix and patches."""
        prefix, patches = args[0].tensor_split([self.read.prefix], 1)
        centers = self.read.base.semantic.centres(
            patches.flatten(0, 1), Grid(len(patches), *self.size)
        )
        self.patches, self.senders = patches, [args[0]]
        tokens = centers.view(len(patches), -1, patches.size(2))
        return (torch.cat([prefix, tokens], 1), *args[1:])

    def query_both(self, layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Before the second: prefix and tokens plus G query prefix, tokens and patches."""
        assert self.patches is not None
        self.senders.append(torch.cat([args[0], self.patches], 1))
        moved = self.read.base.semantic.global_centres
        if moved is None:
            return args
        prefix, tokens = args[0].tensor_split([self.read.prefix], 1)
        return (torch.cat([prefix, tokens + moved], 1), *args[1:])

    def attend(self, which: int, normed: Tensor, *args: Any, **options: Any) -> Any:
        """Cross-attention with the attention module of a layer."""
        read, layer = self.read, self.two[which]
        senders = read.norm(layer, self.senders[which])
        if which == 1:
            self.patches, self.senders = None, []  # keep no tensors of this pass
        parts = (read.heads(layer, x, i) for i, x in enumerate((normed, senders, senders)))
        return read.attend(layer, *parts, *args, **options)
