"""The vision transformer: an image is a clique of patches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphtheory.models.readout import ClassToken
from graphtheory.nn.attention import Attention, AttentionMap, attention_maps
from graphtheory.nn.blocks import Block
from graphtheory.nn.init import draw_parameter, init_transformer
from graphtheory.nn.patch import PatchEmbedding, PatchTokens, PositionEmbedding
from graphtheory.nn.token_sets import token_cliques


class ViT(nn.Module):
    """Patches, blocks in which every token of an image attends to every other, one vector.

    `vit` and the named constructors put the parts together.

    Args:
        embed: Makes tokens of images.
        blocks: First to last.
        head: Takes the normalized tokens [B, T, dim].
        eps: Of the last norm.

    Shapes:
        images [B, C, H, W] of any size that the patch divides -> what `head` gives.

    Source:
        Dosovitskiy et al. (2021), An image is worth 16x16 words; with `DistilledToken` Touvron et
        al. (2021), Training data-efficient image transformers. Differs: no dropout of features.

    Example:
        >>> model = vit_nano(out_channels=10)
        >>> model(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self, embed: PatchTokens, blocks: Sequence[Block], head: nn.Module, *, eps: float = 1e-6
    ) -> None:
        super().__init__()
        self.embed, self.blocks, self.head = embed, nn.ModuleList(blocks), head
        self.norm = nn.LayerNorm(embed.patch.dim, eps)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weights anew."""
        init_transformer(self, generator)
        draw_parameter(self.embed.prefix, generator)
        draw_parameter(self.embed.position.table, generator)

    def tokens(self, images: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Normalized tokens [B, T, dim], those without a place first."""
        x, grid = self.embed(images)
        neighborhood = token_cliques(grid.count, len(x) // max(grid.count, 1), x.device)
        for block in self.blocks:
            x = block(x, neighborhood, images=grid.count, generator=generator)
        return self.norm(x).view(grid.count, -1, x.size(1))

    def forward(self, images: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """One vector an image; `generator` is the source of stochastic depth and dropout."""
        return self.head(self.tokens(images, generator=generator))

    def attention_maps(self, images: Tensor) -> list[AttentionMap]:
        """Who attended to whom in each layer, and with which weights [E, heads]; no dropout.

        Node i of image b is i + b * T, the tokens without a place before the patches.
        """
        return attention_maps(self, images)


def prenorm_block(
    dim: int, heads: int, *, drop_path: float = 0.0, mlp_ratio: float = 4.0,
    layer_scale: float | None = None, eps: float = 1e-6, **attention: Any,
) -> Block:  # fmt: skip
    """A `Block` around an `Attention`, which takes the other options."""
    return Block(
        Attention(dim, heads, **attention),
        drop_path=drop_path, mlp_ratio=mlp_ratio, layer_scale=layer_scale, eps=eps,
    )  # fmt: skip


def depth_rates(drop_path: float, depth: int) -> list[float]:
    """The rate of stochastic depth of each block, from 0 in the first to `drop_path` in the last.

    Example:
        >>> depth_rates(0.2, 3)
        [0.0, 0.1, 0.2]
    """
    return [drop_path * i / max(depth - 1, 1) for i in range(depth)]


def vit(
    dim: int,
    depth: int,
    heads: int,
    *,
    out_channels: int = 1000,
    image_size: int = 224,
    patch_size: int = 16,
    in_channels: int = 3,
    readout: type[ClassToken] = ClassToken,
    drop_path: float = 0.0,
    **block: Any,
) -> ViT:
    """A vision transformer of equal blocks.

    Args:
        dim: Features of a token.
        depth: Blocks.
        heads: Attention heads of a block.
        out_channels: Classes.
        image_size: Rows and columns, in pixels, of the images whose positions are learned; those of
            other images are interpolated.
        patch_size: Rows and columns of a patch, in pixels.
        in_channels: Channels of an image.
        readout: `ClassToken`, `DistilledToken` (and a distillation token), `MeanToken` (neither).
        drop_path: Probability that an image skips the last block; earlier ones have less.
        block: Options of `prenorm_block`, such as ``dropout=0.1`` or ``layer_scale=1e-5``.

    Raises:
        ValueError: An image that the patch does not divide.
    """
    side, rest = divmod(image_size, patch_size)
    if rest:
        raise ValueError(
            f"image_size: got {image_size}, expected a multiple of patch_size={patch_size} pixels"
        )
    patch = PatchEmbedding(dim, patch_size, in_channels)
    position = PositionEmbedding(dim, side, side, readout.prefix)
    blocks = [
        prenorm_block(dim, heads, drop_path=p, **block) for p in depth_rates(drop_path, depth)
    ]
    return ViT(PatchTokens(patch, position), blocks, readout.linear(dim, out_channels))


def vit_tiny(**options: Any) -> ViT:
    """ViT-Ti/16 for 224 pixels: width 192, 12 blocks of 3 heads. Options as in `vit`."""
    return vit(192, 12, 3, **options)


def vit_small(**options: Any) -> ViT:
    """ViT-S/16 for 224 pixels: width 384, 12 blocks of 6 heads. Options as in `vit`."""
    return vit(384, 12, 6, **options)


def vit_base(**options: Any) -> ViT:
    """ViT-B/16 for 224 pixels: width 768, 12 blocks of 12 heads. Options as in `vit`."""
    return vit(768, 12, 12, **options)


def deit_tiny(**options: Any) -> ViT:
    """`vit_tiny` with DeiT's stochastic depth; ``readout=DistilledToken`` for its second token."""
    return vit_tiny(**{"drop_path": 0.1, **options})


def deit_small(**options: Any) -> ViT:
    """`vit_small` with DeiT's stochastic depth; ``readout=DistilledToken`` for its second token."""
    return vit_small(**{"drop_path": 0.1, **options})


def deit_base(**options: Any) -> ViT:
    """`vit_base` with DeiT's stochastic depth; ``readout=DistilledToken`` for its second token."""
    return vit_base(**{"drop_path": 0.1, **options})


def _of_small_images(dim: int, depth: int, heads: int, options: dict[str, Any]) -> ViT:
    return vit(dim, depth, heads, **{"image_size": 32, "patch_size": 4, **options})


def vit_pico(**options: Any) -> ViT:
    """For 32 or 28 pixels, patches of 4: width 64, 4 blocks of 2 heads. Options as in `vit`."""
    return _of_small_images(64, 4, 2, options)


def vit_nano(**options: Any) -> ViT:
    """For 32 or 28 pixels, patches of 4: width 128, 6 blocks of 4 heads. Options as in `vit`."""
    return _of_small_images(128, 6, 4, options)


def vit_micro(**options: Any) -> ViT:
    """For 32 or 28 pixels, patches of 4: width 192, 9 blocks of 6 heads. Options as in `vit`."""
    return _of_small_images(192, 9, 6, options)
