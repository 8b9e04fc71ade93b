"""Where a semantic token lies: nothing, or one of three ways to tell it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphtheory.graph import Grid
from graphtheory.nn.bias import BucketBias
from graphtheory.vision.nn.centers import Centers
from graphtheory.vision.nn.init import draw_parameter
from graphtheory.vision.nn.patch import from_map, to_map


class NoPosition(nn.Module):
    """Semantic tokens that do not know their place.

    Args:
        centers: Of the tokens.
        dim: Features of a token.

    Shapes:
        tokens [B * M, dim] of B images -> the same shape.

    Source:
        Chang et al. (2023), supplement, table 7: no encoding, learned, conditional and relative
        ones are equal within 0.2 points.
    """

    def __init__(self, centers: Centers, dim: int) -> None:
        super().__init__()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw anew what is neither a linear map nor a convolution."""

    def forward(self, tokens: Tensor, images: int) -> Tensor:
        """What the first block sees."""
        return tokens

    def bias(self, heads: int) -> BucketBias | None:
        """For the attention of a block, a bias by relative position, or none."""
        return None


class LearnedPosition(NoPosition):
    """A learned vector for each token. Arguments and shapes as in `NoPosition`."""

    def __init__(self, centers: Centers, dim: int) -> None:
        super().__init__(centers, dim)
        self.table = nn.Parameter(torch.zeros(centers.tokens, dim))

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the vectors anew."""
        draw_parameter(self.table, generator)

    def forward(self, tokens: Tensor, images: int) -> Tensor:
        """Tokens and their vectors."""
        return tokens + self.table.repeat(images, 1)


class ConditionalPosition(NoPosition):
    """A depthwise 3 x 3 convolution of the tokens on their grid, added to them.

    Arguments and shapes as in `NoPosition`.

    Raises:
        ValueError: Centers without a grid.

    Source: Chu et al. (2021), Conditional positional encodings for vision transformers. Differs:
        added before the first block of semantic tokens, theirs after the first block.
    """

    def __init__(self, centers: Centers, dim: int) -> None:
        super().__init__(centers, dim)
        self.side = side_of(centers)
        self.depthwise = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)

    def forward(self, tokens: Tensor, images: int) -> Tensor:
        """Tokens and what the convolution makes of them."""
        maps = to_map(tokens, Grid(images, self.side, self.side))
        return tokens + from_map(self.depthwise(maps))[0]


class RelativePosition(NoPosition):
    """A learned bias of attention by relative position on the grid of centers, in every block.

    Arguments and shapes as in `NoPosition`.

    Raises:
        ValueError: Centers without a grid.
    """

    def __init__(self, centers: Centers, dim: int) -> None:
        super().__init__(centers, dim)
        self.side = side_of(centers)

    def bias(self, heads: int) -> BucketBias:
        """By relative position."""
        return BucketBias((2 * self.side - 1) ** 2, heads)


def side_of(centers: Centers) -> int:
    """The side of the grid of centers."""
    if centers.side is None:
        raise ValueError(f"centers: {type(centers).__name__} has no grid, expected centers on one")
    return centers.side
