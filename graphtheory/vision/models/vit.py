"""Vision transformers: an image is a clique of patches."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphtheory.nn.attention import Attention, AttentionMap, attention_maps
from graphtheory.nn.blocks import Block
from graphtheory.vision.nn.patch import PatchEmbedding, PatchTokens, PositionEmbedding
from graphtheory.vision.nn.positions import draw_parameter, init_transformer
from graphtheory.vision.nn.token_sets import token_cliques


class ClassToken(nn.Module):
    """The first token, through a module such as a linear map to classes.

    Args:
        output: Any module; None gives the token itself.

    Shapes:
        tokens [B, T, dim] -> [B, ...].

    Attributes:
        prefix: Tokens that it needs before the patches.
    """

    prefix: ClassVar[int] = 1

    def __init__(self, output: nn.Module | None = None) -> None:
        super().__init__()
        self.output = nn.Identity() if output is None else output

    @classmethod
    def linear(cls, dim: int, out_channels: int) -> "ClassToken":
        """With a linear map to classes."""
        return cls(nn.Linear(dim, out_channels))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(tokens[:, 0])


class MeanToken(ClassToken):
    """The mean of the tokens, through a module. Arguments and shapes as in `ClassToken`."""

    prefix: ClassVar[int] = 0

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(tokens.mean(1))


class DistilledToken(ClassToken):
    """The mean of two outputs: of the class token, and of the distillation token behind it.

    Args:
        output: Of the class token.
        distilled: Of the distillation token.

    Shapes:
        tokens [B, T, dim] -> [B, ...].

    Source: Touvron et al. (2021), Training data-efficient image transformers, section 4.
    """

    prefix: ClassVar[int] = 2

    def __init__(self, output: nn.Module, distilled: nn.Module) -> None:
        super().__init__(output)
        self.distilled = distilled

    @classmethod
    def linear(cls, dim: int, out_channels: int) -> "DistilledToken":
        """With two linear maps to classes."""
        return cls(nn.Linear(dim, out_channels), nn.Linear(dim, out_channels))

    def both(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The output of either token; a teacher trains the second."""
        return self.output(tokens[:, 0]), self.distilled(tokens[:, 1])

    def forward(self, tokens: Tensor) -> Tensor:
        output, distilled = self.both(tokens)
        return (output + distilled) / 2


class ImageModel(nn.Module):
    """Base of networks that make tokens of images, and one vector of the tokens.

    Subclasses set `head` and define `tokens`.
    """

    head: nn.Module

    def tokens(self, images: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """The tokens [B, T, dim] that `head` takes."""
        raise NotImplementedError

    def forward(self, images: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """One vector an image; `generator` is the source of stochastic depth and dropout."""
        return self.head(self.tokens(images, generator=generator))

    def attention_maps(self, images: Tensor) -> list[AttentionMap]:
        """Who attended to whom in each layer, and with which weights [E, heads]; no dropout.

        Nodes count image by image, in each of them tokens without a place before the patches.
        """
        return attention_maps(self, images)


class ViT(ImageModel):
    """Patches, blocks in which every token of an image attends to every other, one vector.

    `vit` and the named constructors put the parts together.

    Args:
        embed: Makes tokens of images.
        blocks: First to last.
        head: Takes the normalized tokens [B, T, dim].

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

    def __init__(self, embed: PatchTokens, blocks: Sequence[Block], head: nn.Module) -> None:
        super().__init__()
        self.embed, self.blocks, self.head = embed, nn.ModuleList(blocks), head
        self.norm = nn.LayerNorm(embed.patch.dim, 1e-6)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all weights and positions anew."""
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
    """Rates of stochastic depth, from 0 in the first block to `drop_path` in the last."""
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
    """Build a vision transformer of equal blocks.

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
    embed = patch_tokens(dim, image_size, patch_size, in_channels, readout.prefix)
    rates = depth_rates(drop_path, depth)
    blocks = [prenorm_block(dim, heads, drop_path=p, **block) for p in rates]
    return ViT(embed, blocks, readout.linear(dim, out_channels))


def patch_tokens(
    dim: int, image_size: int, patch_size: int, in_channels: int, prefix: int = 0
) -> PatchTokens:
    """Patches with learned positions, after `prefix` tokens without a place."""
    side = patches_along(image_size, patch_size)
    patch = PatchEmbedding(dim, patch_size, in_channels)
    return PatchTokens(patch, PositionEmbedding(dim, side, side, prefix))


def patches_along(image_size: int, patch_size: int) -> int:
    """Patches along a side of an image; ValueError if they do not divide it."""
    side, rest = divmod(image_size, patch_size)
    if rest:
        raise ValueError(
            f"image_size: got {image_size}, expected a multiple of patch_size={patch_size} pixels"
        )
    return side


vit_tiny = partial(vit, 192, 12, 3)
"""ViT-Ti/16 for 224 pixels: width 192, 12 blocks of 3 heads. Options as in `vit`."""
vit_small = partial(vit, 384, 12, 6)
"""ViT-S/16 for 224 pixels: width 384, 12 blocks of 6 heads. Options as in `vit`."""
vit_base = partial(vit, 768, 12, 12)
"""ViT-B/16 for 224 pixels: width 768, 12 blocks of 12 heads. Options as in `vit`."""
deit_tiny = partial(vit_tiny, drop_path=0.1)
"""`vit_tiny` with DeiT's stochastic depth; ``readout=DistilledToken`` for its second token."""
deit_small = partial(vit_small, drop_path=0.1)
"""`vit_small` with DeiT's stochastic depth; ``readout=DistilledToken`` for its second token."""
deit_base = partial(vit_base, drop_path=0.1)
"""`vit_base` with DeiT's stochastic depth; ``readout=DistilledToken`` for its second token."""
vit_pico = partial(vit, 64, 4, 2, image_size=32, patch_size=4)
"""For 32 or 28 pixels, patches of 4: width 64, 4 blocks of 2 heads. Options as in `vit`."""
vit_nano = partial(vit, 128, 6, 4, image_size=32, patch_size=4)
"""For 32 or 28 pixels, patches of 4: width 128, 6 blocks of 4 heads. Options as in `vit`."""
vit_micro = partial(vit, 192, 9, 6, image_size=32, patch_size=4)
"""For 32 or 28 pixels, patches of 4: width 192, 9 blocks of 6 heads. Options as in `vit`."""
