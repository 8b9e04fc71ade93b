"""Vision transformers in which an image goes on as a few semantic tokens."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Generator, Tensor, nn

from graphtheory.graph import Grid
from graphtheory.nn.blocks import Block
from graphtheory.vision.models.vit import (
    ImageModel,
    MeanToken,
    depth_rates,
    patch_tokens,
    prenorm_block,
)
from graphtheory.vision.nn import Centers, MaskPool, SemanticTokens
from graphtheory.vision.nn.centers import centers_of
from graphtheory.vision.nn.patch import PatchTokens
from graphtheory.vision.nn.positions import draw_parameter, init_transformer
from graphtheory.vision.nn.token_sets import token_bipartite, token_cliques


class STViT(ImageModel):
    """Blocks on patches, semantic tokens of them, blocks on those tokens alone, one vector.

    `stvit` and the named constructors put the parts together. In `attention_maps` patches attend to
    patches, then semantic tokens to patches, then to tokens and patches of their image in this
    order, at last tokens to tokens; nodes count image by image.

    Args:
        embed: Makes tokens of images, none of them without a place.
        base: Blocks on the patches, first to last.
        semantic: Makes semantic tokens of the patches.
        blocks: Blocks on the semantic tokens.
        head: Takes the normalized semantic tokens [B, M, dim].

    Shapes:
        images [B, C, H, W] of any size that the patch divides -> what `head` gives.

    Source:
        Chang et al. (2023), Making vision transformers efficient from a token sparsification view,
        for DeiT. Differs: see `MaskPool`; the order of norm and mean is that of the authors'
        code for Swin, for their code for DeiT was never released.

    Example:
        >>> import torch
        >>> model = stvit_nano(out_channels=10)
        >>> model(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        embed: PatchTokens,
        base: Sequence[Block],
        semantic: SemanticTokens,
        blocks: Sequence[Block],
        head: nn.Module,
    ) -> None:
        super().__init__()
        dim = embed.patch.dim
        self.embed, self.base, self.semantic = embed, nn.ModuleList(base), semantic
        self.blocks, self.norm, self.head = nn.ModuleList(blocks), nn.LayerNorm(dim, 1e-6), head
        self.reset_parameters()

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Draw all of the weights anew."""
        init_transformer(self, generator)
        draw_parameter(self.embed.position.table, generator)
        self.semantic.reset_parameters(generator)

    def patches(self, images: Tensor, *, generator: Generator | None = None) -> tuple[Tensor, Grid]:
        """The patches [B * N, dim] that the semantic tokens attend to, and their grid."""
        x, grid = self.embed(images)
        neighborhood = token_cliques(grid.count, grid.size, x.device)
        for block in self.base:
            x = block(x, neighborhood, images=grid.count, generator=generator)
        return x, grid

    def tokens(self, images: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Normalized semantic tokens [B, M, dim]."""
        x, grid = self.patches(images, generator=generator)
        count, tokens = grid.count, self.semantic.centers.tokens
        of_patches, of_both = (
            token_bipartite(count, tokens, sources, x.device)
            for sources in (grid.size, tokens + grid.size)
        )
        x = self.semantic(x, grid, of_patches, of_both, generator=generator)
        neighborhood = token_cliques(count, tokens, x.device)
        for block in self.blocks:
            x = block(x, neighborhood, images=count, generator=generator)
        return self.norm(x).view(count, tokens, -1)

    def assignment(self, images: Tensor) -> Tensor:
        """Weights [B, heads, M, N] of the patches in the last layer that sees them; no dropout.

        A row has a sum below 1: the rest went to semantic tokens.
        """
        layers, tokens = len(self.semantic.blocks), self.semantic.centers.tokens
        found = self.attention_maps(images)[len(self.base) + layers - 1].weights
        weights = found.view(len(images), tokens, -1, found.size(1)).permute(0, 3, 1, 2)
        return weights[..., tokens:] if layers > 1 else weights


def stvit(
    dim: int,
    depth: int,
    heads: int,
    *,
    tokens: int | Centers = 16,
    base: int = 4,
    semantic: int = 2,
    out_channels: int = 1000,
    image_size: int = 224,
    patch_size: int = 16,
    in_channels: int = 3,
    with_global: bool = True,
    drop_path: float = 0.0,
    **block: Any,
) -> STViT:
    """A vision transformer with semantic tokens, of `depth` blocks in all.

    The first `base` blocks are on the patches, in the next `semantic` ones semantic tokens attend
    to the patches, the others are on semantic tokens. `tokens` is M, how many an image has, a
    square number; or what makes their centers, the default being `MaskPool`. `with_global` is
    that of `SemanticTokens`. All other arguments as in `vit`.

    Raises:
        ValueError: If the patch does not divide the image, tokens are no square, or blocks leave
            none of `depth` for semantic tokens.
    """
    if not 0 <= base <= depth - semantic:
        raise ValueError(f"base: got {base}, expected 0..{depth - semantic}, depth less semantic")
    centers = centers_of(tokens, partial(MaskPool, dim=dim))
    first = base + semantic
    rates = depth_rates(drop_path, depth)
    blocks = [prenorm_block(dim, heads, drop_path=p, **block) for p in rates]
    return STViT(
        patch_tokens(dim, image_size, patch_size, in_channels),
        blocks[:base],
        SemanticTokens(centers, blocks[base:first], with_global=with_global),
        blocks[first:],
        MeanToken.linear(dim, out_channels),
    )


stvit_deit_tiny = partial(stvit, 192, 12, 3, drop_path=0.1)
"""STViT-DeiT-T/16 for 224 pixels: width 192, 4 + 2 + 6 blocks of 3 heads, 16 tokens."""
stvit_deit_small = partial(stvit, 384, 12, 6, drop_path=0.1)
"""STViT-DeiT-S/16 for 224 pixels: width 384, 4 + 2 + 6 blocks of 6 heads, 16 tokens."""
stvit_deit_base = partial(stvit, 768, 12, 12, drop_path=0.1)
"""STViT-DeiT-B/16 for 224 pixels: width 768, 4 + 2 + 6 blocks of 12 heads, 16 tokens."""
_small_stvit = partial(stvit, image_size=32, patch_size=4)
stvit_pico = partial(_small_stvit, 64, 4, 2, base=1)
"""`vit_pico` with 16 semantic tokens: 1 + 2 + 1 blocks."""
stvit_nano = partial(_small_stvit, 128, 6, 4, base=2)
"""`vit_nano` with 16 semantic tokens: 2 + 2 + 2 blocks."""
stvit_micro = partial(_small_stvit, 192, 9, 6, base=3)
"""`vit_micro` with 16 semantic tokens: 3 + 2 + 4 blocks."""
