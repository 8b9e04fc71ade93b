"""How the weights of a transformer begin."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_STD = 0.02


def init_transformer(module: nn.Module, generator: torch.Generator | None = None) -> None:
    """Linear maps from a normal distribution of deviation 0.02, cut at -2 and 2, biases of zero.

    Norms, factors of `LayerScale` and bias tables stay as their constructors made them.

    Args:
        module: Its linear and convolution layers, at any depth, are drawn anew.
        generator: Source of randomness; None takes torch's global one.
    """
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Conv2d)):
            draw_parameter(part.weight, generator)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def draw_parameter(parameter: Tensor, generator: torch.Generator | None = None) -> None:
    """Draw one parameter from that distribution."""
    nn.init.trunc_normal_(parameter, std=_STD, generator=generator)
