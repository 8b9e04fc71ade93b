"""Position encodings of the tokens of a sequence: learned, of sines and cosines, or periodic."""

import torch
from torch import Generator, Tensor, nn

from graphtheory.vision.nn.init import draw_parameter

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
