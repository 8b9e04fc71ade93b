"""A few semantic tokens in place of all patches: how they come to stand for them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphtheory.graph import Grid, Neighborhood
from graphtheory.nn.blocks import Block
from graphtheory.nn.centres import Centres
from graphtheory.nn.init import draw_parameter


class SemanticBlock(Block):
    r"""A `Block` whose residual may be other nodes than those that ask.

    .. math:: S' = R + \operatorname{Attn}(\operatorname{LN}(Q); \operatorname{LN}(K)), \qquad
        S = S' + \operatorname{MLP}(\operatorname{LN}'(S'))

    Arguments as in `Block`. Shapes: x and residual [num_dst, dim], senders [num_src, dim].
    """

    def forward(
        self,
        x: Tensor,
        neighborhood: Neighborhood,
        *,
        senders: Tensor | None = None,
        relation: Tensor | None = None,
        images: int = 1,
        generator: torch.Generator | None = None,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Same shape as x, which is the residual where that is None."""
        branch = self.attention(
            self.norm1(x), neighborhood, relation=relation, generator=generator,
            senders=None if senders is None else self.norm1(senders),
        )  # fmt: skip
        start = x if residual is None else residual
        x = start + self.drop_path(self.scale1(branch), images, generator)
        return self.after_attention(x, images, generator)


class SemanticTokens(nn.Module):
    r"""Semantic tokens of the patches X: centres P, then layers that attend to the patches.

    .. math:: S_1 = \operatorname{Block}(P; X), \qquad
        S_2 = \operatorname{Block}(S_1 + G; [S_1, X])

    G, a learned vector for each token, is added to the second query alone, not to keys and values.
    X is not changed. Further layers are as the second, without G.

    Args:
        centres: Makes P.
        blocks: The layers, first to last.
        with_global: Whether there is a G.
        residual_of_centres: The second layer's attention is added to P in place of S_1 + G.

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
        centres: Centres,
        blocks: Sequence[SemanticBlock],
        *,
        with_global: bool = True,
        residual_of_centres: bool = False,
    ) -> None:
        super().__init__()
        least = 2 if with_global or residual_of_centres else 1
        if len(blocks) < least:
            raise ValueError(f"blocks: got {len(blocks)}, expected at least {least}")
        self.centres, self.blocks = centres, nn.ModuleList(blocks)
        self.residual_of_centres = residual_of_centres
        shape = (centres.tokens, blocks[0].attention.dim)
        self.global_centres = nn.Parameter(torch.zeros(shape)) if with_global else None

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw G and learned centres anew."""
        self.centres.reset_parameters(generator)
        if self.global_centres is not None:
            draw_parameter(self.global_centres, generator)

    def forward(
        self,
        x: Tensor,
        grid: Grid,
        of_patches: Neighborhood,
        of_both: Neighborhood,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Semantic tokens; blocks of M receivers, with N senders, then with M + N of them."""
        centres = self.centres(x, grid)
        options = {"images": grid.count, "generator": generator}
        tokens = self.blocks[0](centres, of_patches, senders=x, **options)
        for i, block in enumerate(self.blocks[1:]):
            query, residual = tokens, centres if self.residual_of_centres and i == 0 else None
            if self.global_centres is not None and i == 0:
                query = tokens + self.global_centres.repeat(grid.count, 1)
            senders = _side_by_side(tokens, x, grid.count)
            tokens = block(query, of_both, senders=senders, residual=residual, **options)
        return tokens


def _side_by_side(tokens: Tensor, x: Tensor, images: int) -> Tensor:
    """Of each image the tokens, then the patches."""
    parts = (t.view(images, len(t) // max(images, 1), t.size(1)) for t in (tokens, x))
    return torch.cat(list(parts), 1).flatten(0, 1)
