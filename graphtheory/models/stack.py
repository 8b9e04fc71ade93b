"""Two ways to stack layers that take (x, neighborhood): classic and residual."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from graphtheory.graph import Neighborhood
from graphtheory.nn.dropout import FeatureDropout

MakeLayer = Callable[[int, int, bool], nn.Module]
"""(in_channels, out_channels, is_last) -> layer(x, neighborhood)."""


def _check_layers(num_layers: int) -> None:
    if num_layers < 1:
        raise ValueError(f"num_layers: got {num_layers}, expected at least 1")


class Stack(nn.Module):
    """layer, activation, dropout, L times; the last layer gives the outputs.

    Args:
        make: Builds a layer.
        in_channels: Features of a node.
        hidden_channels: Width between layers.
        out_channels: Outputs of a node.
        num_layers: L, at least 1.
        dropout: Probability, before every layer.
        project: A linear map to `hidden_channels` first.

    Raises:
        ValueError: Fewer than one layer.
    """

    def __init__(
        self, make: MakeLayer, in_channels: int, hidden_channels: int, out_channels: int,
        num_layers: int, *, dropout: float, project: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        _check_layers(num_layers)
        self.input = nn.Linear(in_channels, hidden_channels) if project else None
        first = hidden_channels if project else in_channels
        widths = [first, *[hidden_channels] * (num_layers - 1)]
        last = num_layers - 1
        self.layers = nn.ModuleList(
            make(w, out_channels if i == last else hidden_channels, i == last)
            for i, w in enumerate(widths)
        )
        self.act, self.drop = nn.ELU(), FeatureDropout(dropout)

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        """Outputs [N, out_channels]."""
        if self.input is not None:
            x = self.act(self.input(self.drop(x)))
        for i, layer in enumerate(self.layers):
            x = layer(self.drop(x), neighborhood)
            if i < len(self.layers) - 1:
                x = self.act(x)
        return x


class Block(nn.Module):
    """x + dropout(act(layer(norm(x)))), then x + ffn(norm(x)) where an FFN is asked for."""

    def __init__(self, layer: nn.Module, width: int, dropout: float, ffn: bool) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(width), layer
        self.act, self.drop = nn.GELU(), nn.Dropout(dropout)
        self.ffn = None
        if ffn:
            self.ffn = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(dropout),
                nn.Linear(2 * width, width), nn.Dropout(dropout),
            )  # fmt: skip

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        """Same shape as x."""
        x = x + self.drop(self.act(self.layer(self.norm(x), neighborhood)))
        return x if self.ffn is None else x + self.ffn(x)


class ResidualStack(nn.Module):
    """Linear in, L residual blocks, norm, linear out. Arguments as in `Stack`, and `ffn`."""

    def __init__(
        self, make: MakeLayer, in_channels: int, hidden_channels: int, out_channels: int,
        num_layers: int, *, dropout: float, ffn: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        _check_layers(num_layers)
        width = hidden_channels
        self.input = nn.Linear(in_channels, width)
        self.act, self.drop = nn.GELU(), FeatureDropout(dropout)
        self.blocks = nn.ModuleList(
            Block(make(width, width, False), width, dropout, ffn) for _ in range(num_layers)
        )
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, out_channels)

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        """Outputs [N, out_channels]."""
        x = self.drop(self.act(self.input(self.drop(x))))
        for block in self.blocks:
            x = block(x, neighborhood)
        return self.output(self.norm(x))
