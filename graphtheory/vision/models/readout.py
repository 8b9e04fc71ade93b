"""From the tokens of an image to one vector."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn


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
    def linear(cls, dim: int, out_channels: int) -> ClassToken:
        """With a linear map to classes."""
        return cls(nn.Linear(dim, out_channels))

    def forward(self, tokens: Tensor) -> Tensor:
        """One vector an image."""
        return self.output(tokens[:, 0])


class MeanToken(ClassToken):
    """The mean of the tokens, through a module. Arguments and shapes as in `ClassToken`."""

    prefix: ClassVar[int] = 0

    def forward(self, tokens: Tensor) -> Tensor:
        """One vector an image."""
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
    def linear(cls, dim: int, out_channels: int) -> DistilledToken:
        """With two linear maps to classes."""
        return cls(nn.Linear(dim, out_channels), nn.Linear(dim, out_channels))

    def both(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The output of either token; a teacher trains the second."""
        return self.output(tokens[:, 0]), self.distilled(tokens[:, 1])

    def forward(self, tokens: Tensor) -> Tensor:
        """One vector an image."""
        output, distilled = self.both(tokens)
        return (output + distilled) / 2
