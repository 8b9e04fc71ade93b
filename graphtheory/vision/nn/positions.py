"""Position encodings: of the tokens of a sequence, and of semantic tokens."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

from graphtheory.graph import Grid
from graphtheory.nn.bias import BucketBias
from graphtheory.vision.nn.centers import Centers
from graphtheory.vision.nn.init import draw_parameter
from graphtheory.vision.nn.patch import from_map, to_map

_SLOWEST = 10_000.0  # of the wavelengths, over 2 pi


class LearnedPositions(nn.Module):
    """A learned vector for each place.

    Args:
        length: Places, from 0 on.
        dim: Features of a token.

    Shapes:
        int64 places [n] -> [n, dim].

    Raises:
        ValueError: No place.
        IndexError: A place beyond the last one; on a GPU torch's own error.

    Source: Radford et al. (2019), Language models are unsupervised multitask learners.
    """

    def __init__(self, length: int, dim: int) -> None:
        super().__init__()
        if length < 1:
            raise ValueError(f"length: got {length}, expected at least 1 place")
        self.table = nn.Parameter(torch.zeros(length, dim))

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Draw the vectors of all places anew."""
        draw_parameter(self.table, generator)

    def forward(self, place: Tensor) -> Tensor:
        if place.device.type == "cpu" and place.numel() and int(place.max()) >= len(self.table):
            raise IndexError(
                f"place: largest entry {int(place.max())}, expected 0..{len(self.table) - 1}; the "
                f"sequence is longer than the {len(self.table)} learned places"
            )
        return nn.functional.embedding(place, self.table)


class SinusoidalPositions(nn.Module):
    r"""Sines and cosines of the place, of wavelengths from 2 pi to 20,000 pi.

    .. math:: e_{p, 2i} = \sin(p / 10000^{2i/d}), \quad e_{p, 2i+1} = \cos(p / 10000^{2i/d})

    Args:
        dim: Features of a token, d.
        scale: Factor of all of them.

    Shapes:
        int64 places [n], of any size -> [n, dim].

    Source: Vaswani et al. (2017), Attention is all you need, section 3.5.

    Example:
        >>> SinusoidalPositions(4)(torch.tensor([0])).tolist()
        [[0.0, 1.0, 0.0, 1.0]]
    """

    def __init__(self, dim: int, scale: float = 1.0) -> None:
        super().__init__()
        self.dim, self.scale = dim, scale

    def forward(self, place: Tensor) -> Tensor:
        even = torch.arange(0, self.dim, 2, dtype=torch.float64, device=place.device)
        angle = place[:, None].double() * _SLOWEST ** (-even / self.dim)
        waves = torch.stack([angle.sin(), angle.cos()], 2).flatten(1)[:, : self.dim]
        return self.scale * waves.to(torch.get_default_dtype())

    def extra_repr(self) -> str:
        return f"{self.dim}"


class PeriodicPositions(nn.Module):
    r"""The same vectors again after each period: place p has :math:`c_{p \bmod K}`.

    Args:
        vectors: c_0..c_{K-1}, [K, dim]; they stay as they are.

    Shapes:
        int64 places [n], of any size -> [n, dim].

    Raises:
        ValueError: No vector.

    Source: Li (2024), section 7.2.1, which counts places from 1 and so begins at c_1 of its own.

    Example:
        >>> PeriodicPositions(torch.eye(2))(torch.tensor([0, 1, 2])).tolist()
        [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """

    vectors: Tensor

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        if vectors.dim() != 2 or not len(vectors):
            raise ValueError(
                f"vectors: shape {tuple(vectors.shape)}, expected [period, dim] of a period from 1"
            )
        self.register_buffer("vectors", vectors.clone())

    def forward(self, place: Tensor) -> Tensor:
        return self.vectors[place % len(self.vectors)]


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

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Draw anew what is neither a linear map nor a convolution."""

    def forward(self, tokens: Tensor, images: int) -> Tensor:
        return tokens

    def bias(self, heads: int) -> BucketBias | None:
        """For the attention of a block, a bias by relative position, or none."""
        return None


class LearnedPosition(NoPosition):
    """A learned vector for each token. Arguments and shapes as in `NoPosition`."""

    def __init__(self, centers: Centers, dim: int) -> None:
        super().__init__(centers, dim)
        self.table = nn.Parameter(torch.zeros(centers.tokens, dim))

    def reset_parameters(self, generator: Generator | None = None) -> None:
        draw_parameter(self.table, generator)

    def forward(self, tokens: Tensor, images: int) -> Tensor:
        return tokens + self.table.repeat(images, 1)


class OnCenters(NoPosition):
    """Positions of centers that lie on a grid; ValueError for others."""

    def __init__(self, centers: Centers, dim: int) -> None:
        super().__init__(centers, dim)
        if centers.side is None:
            kind = type(centers).__name__
            raise ValueError(f"centers: {kind} has no grid, expected centers on one")
        self.side = centers.side


class ConditionalPosition(OnCenters):
    """A depthwise 3 x 3 convolution of the tokens on their grid, added to them.

    Arguments and shapes as in `NoPosition`.

    Raises:
        ValueError: Centers without a grid.

    Source: Chu et al. (2021), Conditional positional encodings for vision transformers. Differs:
        added before the first block of semantic tokens, theirs after the first block.
    """

    def __init__(self, centers: Centers, dim: int) -> None:
        super().__init__(centers, dim)
        self.depthwise = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)

    def forward(self, tokens: Tensor, images: int) -> Tensor:
        maps = to_map(tokens, Grid(images, self.side, self.side))
        return tokens + from_map(self.depthwise(maps))[0]


class RelativePosition(OnCenters):
    """A learned bias of attention by relative position on the grid of centers, in every block.

    Arguments and shapes as in `NoPosition`.

    Raises:
        ValueError: Centers without a grid.
    """

    def bias(self, heads: int) -> BucketBias:
        return BucketBias((2 * self.side - 1) ** 2, heads)
