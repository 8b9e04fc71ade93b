"""Two ways to stack layers that take (x, neighborhood): classic and residual."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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

    Called with one neighborhood for all layers, or with one for each, the one applied first at 0.

    Args:
        make: Builds a layer.
        in_channels: Features of a node.
        hidden_channels: Width between layers.
        out_channels: Outputs of a node.
        num_layers: L, at least 1.
        dropout: Probability, before every layer.
        input_dropout: Probability on the features of the input; None is `dropout`.
        project: A linear map to `hidden_channels` first.
        batch_norm: Normalize every feature over the nodes between layer and activation.
        activation: A module between layers.

    Raises:
        ValueError: Fewer than one layer, or as many neighborhoods as there are not layers.
    """

    def __init__(
        self, make: MakeLayer, in_channels: int, hidden_channels: int, out_channels: int,
        num_layers: int, *, dropout: float, input_dropout: float | None = None,
        project: bool = False, batch_norm: bool = False, activation: nn.Module | None = None,
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
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(hidden_channels) if batch_norm else nn.Identity() for _ in range(last)
        )
        self.act, self.drop = activation or nn.ELU(), nn.Dropout(dropout)
        self.input_drop = FeatureDropout(dropout if input_dropout is None else input_dropout)

    def forward(self, x: Tensor, neighborhood: Neighborhood | Sequence[Neighborhood]) -> Tensor:
        """Outputs [N, out_channels]."""
        *first, last = self._of_each_layer(neighborhood)
        x = self.input_drop(x)
        if self.input is not None:
            x = self.drop(self.act(self.input(x)))
        *hidden, output = self.layers
        for layer, norm, seen in zip(hidden, self.norms, first, strict=True):
            x = self.drop(self.act(norm(_apply(layer, x, seen))))
        return _apply(output, x, last)

    def _of_each_layer(
        self, given: Neighborhood | Sequence[Neighborhood]
    ) -> Sequence[Neighborhood]:
        if isinstance(given, Neighborhood):
            return [given] * len(self.layers)
        if len(given) != len(self.layers):
            raise ValueError(f"neighborhood: got {len(given)}, expected one or {len(self.layers)}")
        return given


def _apply(layer: nn.Module, x: Tensor, seen: Neighborhood) -> Tensor:
    """The layer's outputs; where receivers and senders differ it is told so as PyG's layers are."""
    return layer(x if seen.num_src == seen.num_dst else (x, None), seen)


class Block(nn.Module):
    """x + dropout(act(layer(norm(x)))), then x + ffn(norm(x)) where an FFN is asked for."""

    def __init__(
        self, layer: nn.Module, width: int, dropout: float, ffn: bool, activation: nn.Module
    ) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(width), layer
        self.act, self.drop = activation, nn.Dropout(dropout)
        self.ffn = None
        if ffn:
            self.ffn = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 2 * width), activation, nn.Dropout(dropout),
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
        num_layers: int, *, dropout: float, input_dropout: float | None = None,
        ffn: bool = False, activation: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        _check_layers(num_layers)
        width = hidden_channels
        self.input = nn.Linear(in_channels, width)
        self.act, self.drop = activation or nn.GELU(), nn.Dropout(dropout)
        self.input_drop = FeatureDropout(dropout if input_dropout is None else input_dropout)
        self.blocks = nn.ModuleList(
            Block(make(width, width, False), width, dropout, ffn, self.act)
            for _ in range(num_layers)
        )
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, out_channels)

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        """Outputs [N, out_channels]."""
        x = self.drop(self.act(self.input(self.input_drop(x))))
        for block in self.blocks:
            x = block(x, neighborhood)
        return self.output(self.norm(x))
