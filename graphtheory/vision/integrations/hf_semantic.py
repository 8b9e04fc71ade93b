"""Semantic tokens (STViT) in vision transformers of other libraries, by their own layers."""

from __future__ import annotations

import gc
import warnings
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn

from graphtheory.graph import Grid
from graphtheory.vision.integrations.token_layers import Ask, Layers, Positions, Removable
from graphtheory.vision.nn import AveragePool, Centers


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
        whole = isinstance(self.tokens, int) and self.tokens > 0
        if not whole or isqrt(self.tokens) ** 2 != self.tokens:
            raise ValueError(f"tokens: got {self.tokens}, expected a square number or Centers")
        return AveragePool(isqrt(self.tokens))


class Tokens(nn.Module):
    """Centers and G, a submodule of the model, on the device and in the dtype of `like`."""

    def __init__(self, what: Semantic, dim: int, like: nn.Parameter) -> None:
        super().__init__()
        self.centers = what.make_centers()
        shape = (self.centers.tokens, dim)
        self.global_centers = nn.Parameter(torch.zeros(shape)) if what.with_global else None
        self.to(like.device, like.dtype)


def add_tokens(base: nn.Module, parts: Tokens) -> None:
    """Make the new parameters a submodule, and warn of optimizers that will not train them."""
    base.semantic = parts
    new, old = [n for n, _ in parts.named_parameters()], {id(p) for p in base.parameters()}
    for found in gc.get_objects() if new else ():
        if not issubclass(type(found), torch.optim.Optimizer):
            continue
        if any(id(p) in old for group in found.param_groups for p in group["params"]):
            warnings.warn(
                f"optimizer: this {type(found).__name__} was made before `apply` and does not hold "
                f"semantic.{', semantic.'.join(new)}, which it will not train; make it afterwards, "
                "or use add_param_group",
                stacklevel=5,
            )


class SemanticHooks:
    """The patched layers of one model, and their state during a forward pass.

    Args:
        read: The layers of the model.
        what: Which tokens, and after which layer.

    Raises:
        ValueError: If the layers do not exist, the patches lie on no grid or `tokens` is no square;
            the model is not changed.
    """

    def __init__(self, read: Layers, what: Semantic) -> None:
        if not 0 <= what.base <= len(read.layers) - 2:
            raise ValueError(f"base: got {what.base}, expected 0..{len(read.layers) - 2}")
        if read.grid_reason:
            raise ValueError(
                f"model: {type(read.base).__name__} has no grid of patches, which Semantic pools: "
                f"{read.grid_reason}; expected a ViT with the same weights"
            )
        self.parts = Tokens(what, read.dim, next(read.base.parameters())).train(read.base.training)
        self.read, self.what = read, what
        self.patched = read.layers[what.base :]
        self.handles: list[Removable] = []
        self.size = (0, 0)
        self.patches: Tensor | None = None

    def install(self) -> None:
        """Patch the layers and add the new parameters."""
        add_tokens(self.read.base, self.parts)
        hook = self.read.embedding.register_forward_pre_hook(self.record_size, with_kwargs=True)
        self.handles += [handle for handle in (hook, self.read.guard()) if handle is not None]
        for which, layer in enumerate(self.patched):
            layer.forward = partial(self.run, which)
            self.read.patch_attention(layer)

    def remove(self) -> None:
        """Restore the layers and remove the new parameters."""
        del self.read.base.semantic
        for layer in self.patched:
            del layer.forward
            self.read.release(layer)
        for handle in self.handles:
            handle.remove()

    def record_size(
        self, embeddings: nn.Module, args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        """Before the embedding: record the size of the images in patches."""
        images = args[0] if args else options["pixel_values"]
        (height, width), patch = images.shape[2:], self.read.patch
        self.size = (height // patch[0], width // patch[1])

    def run(self, which: int, x: Tensor, *args: Any, **options: Any) -> Tensor:
        """Forward of a patched layer; `which` is 0 for the first one."""
        layer = self.patched[which]
        step = partial(self._step, which, self.read.positions(layer, args, options), self.size)
        if which == 0:
            self.patches = x[:, self.read.prefix :]
        if which != 1:
            return self.read.checkpointed(layer, step, x)
        patches, self.patches = self.patches, None  # keep no tensors of this pass
        assert patches is not None
        return self.read.checkpointed(layer, step, x, patches)

    def _step(
        self, which: int, positions: Positions, size: tuple[int, int], x: Tensor,
        patches: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Prefix and semantic tokens after a layer; x has the patches in place of these at first.

        Semantic tokens have no position, as the class token.
        """
        read, layer, semantic = self.read, self.patched[which], self.read.base.semantic
        prefix, rest = x.tensor_split([read.prefix], 1)
        sources, places = x, torch.arange(x.size(1), device=x.device)[None]
        none = places.new_full((1, semantic.centers.tokens), -1)
        if which == 0:
            centers = semantic.centers(rest.flatten(0, 1), Grid(x.size(0), *size))
            x = torch.cat([prefix, centers.view(x.size(0), -1, x.size(2))], 1)
        elif patches is not None:
            sources = torch.cat([x, patches], 1)
            places = torch.arange(read.prefix + patches.size(1), device=x.device)[None]
            places = torch.cat([places[:, : read.prefix], none, places[:, read.prefix :]], 1)
            if semantic.global_centers is not None:
                x = torch.cat([prefix, rest + semantic.global_centers], 1)
        rows = torch.cat([places[:, : read.prefix], none], 1)
        if which > 1:
            return read.second(layer, read.first(layer, x, Ask(positions, None, rows, rows)))
        ask = Ask(positions, read.norm(layer, sources), rows, places)
        return read.second(layer, read.first(layer, x, ask))
