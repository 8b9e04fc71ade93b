"""How the weights of a transformer begin."""

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
