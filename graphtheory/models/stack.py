"""Two ways to stack layers that take (x, neighborhood): classic and residual."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from graphtheory.graph import Neighborhood
from graphtheory.nn.dropout import FeatureDropout

MakeLayer = Callable[[int, int, bool], nn.Module]
"""(in_channels, out_channels, is_last) -> layer(x, neighborhood)."""


@dataclass(frozen=True)
class StackOptions:
    """What both kinds of stack do around their layers.

    Attributes:
        dropout: Probability of dropping a feature.
        input_dropout: That probability for the input features; None means `dropout`.
        activation: Module applied after each hidden layer; None means ELU in a `Stack` and GELU in
            a `ResidualStack`.
    """

    dropout: float = 0.5
    input_dropout: float | None = None
    activation: nn.Module | None = None

    def input_drop(self) -> nn.Module:
        """Dropout for the input features."""
        return FeatureDropout(self.dropout if self.input_dropout is None else self.input_dropout)


DEFAULTS = StackOptions()


def _check_layers(num_layers: int) -> None:
    if num_layers < 1:
        raise ValueError(f"num_layers: got {num_layers}, expected at least 1")


class Stack(nn.Module):
    """Layer, activation, dropout, L times; the last layer returns the outputs.

    Call it with one neighborhood for all layers, or with one per layer, first layer first.

    Args:
        make: Builds a layer.
        in_channels: Input features per node.
        hidden_channels: Width between layers.
        out_channels: Outputs per node.
        num_layers: L, at least 1.
        options: Dropout before every layer, and the activation between layers.
        project: Apply a linear map to `hidden_channels` first.
        batch_norm: Normalize every feature over the nodes, between layer and activation.
        layer_norm: Normalize the features of every node there instead.

    Raises:
        ValueError: If there is no layer, both norms are asked for, or the number of neighborhoods
            is neither 1 nor L.
    """

    def __init__(
        self, make: MakeLayer, in_channels: int, hidden_channels: int, out_channels: int,
        num_layers: int, options: StackOptions = DEFAULTS,
        *, project: bool = False, batch_norm: bool = False, layer_norm: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        _check_layers(num_layers)
        if batch_norm and layer_norm:
            raise ValueError("layer_norm: got True beside batch_norm=True, expected one norm")
        norm = nn.BatchNorm1d if batch_norm else nn.LayerNorm if layer_norm else nn.Identity
        self.input = nn.Linear(in_channels, hidden_channels) if project else None
        first = hidden_channels if project else in_channels
        widths = [first, *[hidden_channels] * (num_layers - 1)]
        last = num_layers - 1
        self.layers = nn.ModuleList(
            make(w, out_channels if i == last else hidden_channels, i == last)
            for i, w in enumerate(widths)
        )
        self.norms = nn.ModuleList(norm(hidden_channels) for _ in range(last))
        self.act, self.drop = options.activation or nn.ELU(), nn.Dropout(options.dropout)
        self.input_drop = options.input_drop()

    def forward(self, x: Tensor, neighborhood: Neighborhood | Sequence[Neighborhood]) -> Tensor:
        """Outputs [N, out_channels]."""
        *first, last = self._per_layer(neighborhood)
        x = self.input_drop(x)
        if self.input is not None:
            x = self.drop(self.act(self.input(x)))
        *hidden, output = self.layers
        for layer, norm, nb in zip(hidden, self.norms, first, strict=True):
            x = self.drop(self.act(norm(_apply(layer, x, nb))))
        return _apply(output, x, last)

    def _per_layer(self, given: Neighborhood | Sequence[Neighborhood]) -> Sequence[Neighborhood]:
        if isinstance(given, Neighborhood):
            return [given] * len(self.layers)
        if len(given) != len(self.layers):
            raise ValueError(f"neighborhood: got {len(given)}, expected one or {len(self.layers)}")
        return given


def _apply(layer: nn.Module, x: Tensor, nb: Neighborhood) -> Tensor:
    """The layer's outputs; a bipartite neighborhood takes the pair (x, None), as in PyG."""
    return layer(x if nb.num_src == nb.num_dst else (x, None), nb)


class Block(nn.Module):
    """x + dropout(act(layer(norm(x)))), then x + ffn(norm(x)) if `ffn` is set."""

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
    """Linear map, L residual blocks, layer norm, linear map. Arguments as in `Stack`.

    Args:
        ffn: Add a feed-forward network after the layer of each block.
    """

    def __init__(
        self, make: MakeLayer, in_channels: int, hidden_channels: int, out_channels: int,
        num_layers: int, options: StackOptions = DEFAULTS, *, ffn: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        _check_layers(num_layers)
        width = hidden_channels
        self.input = nn.Linear(in_channels, width)
        self.act, self.drop = options.activation or nn.GELU(), nn.Dropout(options.dropout)
        self.input_drop = options.input_drop()
        self.blocks = nn.ModuleList(
            Block(make(width, width, False), width, options.dropout, ffn, self.act)
            for _ in range(num_layers)
        )
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, out_channels)

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        """Outputs [N, out_channels]."""
        x = self.drop(self.act(self.input(self.input_drop(x))))
        for block in self.blocks:
            x = block(x, neighborhood)
        return self.output(self.norm(x))
