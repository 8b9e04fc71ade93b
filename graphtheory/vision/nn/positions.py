"""Position encodings of the tokens of a sequence, and how the weights of a transformer begin."""

import torch
from torch import Generator, Tensor, nn

_STD = 0.02


def init_transformer(module: nn.Module, generator: Generator | None = None) -> None:
    """Linear maps from a normal distribution of deviation 0.02, cut at -2 and 2, biases of zero.

    Norms, factors of `LayerScale` and bias tables stay as their constructors made them.
    """
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Conv2d)):
            draw_parameter(part.weight, generator)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def draw_parameter(parameter: Tensor, generator: Generator | None = None) -> None:
    """Draw one parameter from that distribution."""
    nn.init.trunc_normal_(parameter, std=_STD, generator=generator)


def init_for_small(module: nn.Module) -> None:
    """Linear and convolution layers from Glorot's uniform distribution, biases of zero.

    Their deviation follows the width, sqrt(2 / (in + out)): what suits a width of hundreds, 0.02,
    lets a narrow network learn late. Draws from torch's global random state.
    """
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Conv2d)):
            nn.init.xavier_uniform_(part.weight.flatten(1))
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def sine_positions(dim: int, height: int, width: int) -> Tensor:
    """Sines and cosines of column and row at dim / 4 wave lengths from 2 pi to 20000 pi.

    Shapes: [height * width, dim]; sine and cosine of the column, then of the row.

    Source: Beyer, Zhai and Kolesnikov (2022), Better plain ViT baselines for ImageNet-1k.
    """
    if dim < 4 or dim % 4:
        raise ValueError(f"dim: got {dim}, expected a multiple of 4")
    rate = 10_000.0 ** -(torch.arange(dim // 4) / max(dim // 4 - 1, 1))
    row, column = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    phases = (place.flatten()[:, None] * rate for place in (column, row))
    return torch.cat([part for phase in phases for part in (phase.sin(), phase.cos())], 1)


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
