"""A few semantic tokens in place of all patches: how they come to stand for them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphtheory.graph import Grid, Neighborhood
from graphtheory.nn.blocks import Block
from graphtheory.vision.nn.centers import Centers
from graphtheory.vision.nn.init import draw_parameter


class SemanticTokens(nn.Module):
    r"""Semantic tokens of the patches X: centers P, then layers that attend to the patches.

    .. math:: S_1 = \operatorname{Block}(P; X), \qquad
        S_2 = \operatorname{Block}(S_1 + G; [S_1, X])

    G, a learned vector for each token, is added to the second query alone, not to keys and values.
    X is not changed. Further layers are as the second, without G.

    Args:
        centers: Makes P.
        blocks: The layers, first to last.
        with_global: Whether there is a G.
        residual_of_centers: The second layer's attention is added to P in place of S_1 + G.

    Shapes:
        x [B * N, dim] and its grid -> [B * M, dim].

    Raises:
        ValueError: No layer; a G or a residual P with one layer alone.

    Source:
        Chang et al. (2023), section 3.2. One norm serves query, key and value, and the residual of
        the second layer is S_1 + G, as in the authors' released code for Swin.
    """

    def __init__(
        self,
        centers: Centers,
        blocks: Sequence[Block],
        *,
        with_global: bool = True,
        residual_of_centers: bool = False,
    ) -> None:
        super().__init__()
        least = 2 if with_global or residual_of_centers else 1
        if len(blocks) < least:
            raise ValueError(f"blocks: got {len(blocks)}, expected at least {least}")
        self.centers, self.blocks = centers, nn.ModuleList(blocks)
        self.residual_of_centers = residual_of_centers
        shape = (centers.tokens, blocks[0].attention.dim)
        self.global_centers = nn.Parameter(torch.zeros(shape)) if with_global else None

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw G and learned centers anew."""
        self.centers.reset_parameters(generator)
        if self.global_centers is not None:
            draw_parameter(self.global_centers, generator)

    def forward(
        self,
        x: Tensor,
        grid: Grid,
        of_patches: Neighborhood,
        of_both: Neighborhood,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Semantic tokens; blocks of M targets, with N sources, then with M + N of them."""
        centers = self.centers(x, grid)
        options = {"images": grid.count, "generator": generator}
        tokens = self.blocks[0](centers, of_patches, sources=x, **options)
        for i, block in enumerate(self.blocks[1:]):
            query, residual = tokens, centers if self.residual_of_centers and i == 0 else None
            if self.global_centers is not None and i == 0:
                query = tokens + self.global_centers.repeat(grid.count, 1)
            sources = tokens_and_patches(tokens, x, grid.count).flatten(0, 1)
            tokens = block(query, of_both, sources=sources, residual=residual, **options)
        return tokens


def tokens_and_patches(tokens: Tensor, x: Tensor, images: int) -> Tensor:
    """The tokens of each image, followed by its patches, [B, M + N, dim]."""
    return torch.cat([t.view(images, len(t) // max(images, 1), -1) for t in (tokens, x)], 1)
