"""Stacks of layers that take (x, neighborhood): plain, with a linear output, residual."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from graphtheory.graph import Neighborhood


class FeatureDropout(nn.Dropout):
    """Dropout for dense [N, F] or torch sparse CSR features: zeros stay zeros in either form."""

    def forward(self, x: Tensor) -> Tensor:
        if x.layout != torch.sparse_csr:
            return super().forward(x)
        if not self.training or self.p == 0:
            return x
        entries = super().forward(x.values())
        return torch.sparse_csr_tensor(
            x.crow_indices(), x.col_indices(), entries, x.shape, check_invariants=False
        )  # the structure is that of x


MakeLayer = Callable[[int, int, bool], nn.Module]


@dataclass(frozen=True)
class StackOptions:
    """What every kind of stack does around its layers.

    Attributes:
        dropout: Probability of dropping a feature.
        input_dropout: That probability for the input features; None means `dropout`.
        activation: Module applied after each hidden layer; None means ELU in a `Stack`, ReLU in a
            `LinearOutputStack` and GELU in a `ResidualStack`.
    """

    dropout: float = 0.5
    input_dropout: float | None = None
    activation: nn.Module | None = None


DEFAULTS = StackOptions()


class _Stacked(nn.Module):
    """What every kind of stack has: the activation, and dropout of features and of the input."""

    def __init__(self, num_layers: int, options: StackOptions, activation: nn.Module) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers: got {num_layers}, expected at least 1")
        p, p_input = options.dropout, options.input_dropout
        self.act, self.drop = options.activation or activation, nn.Dropout(p)
        self.input_drop = FeatureDropout(p if p_input is None else p_input)


def per_layer(
    name: str, given: Neighborhood | Sequence[Neighborhood], layers: int
) -> Sequence[Neighborhood]:
    """One neighborhood for each of the layers."""
    if isinstance(given, Neighborhood):
        return [given] * layers
    parts = given if isinstance(given, Sequence) else [given]
    if strangers := [type(part).__name__ for part in parts if not isinstance(part, Neighborhood)]:
        raise TypeError(
            f"{name}: got {strangers[0]}, expected one Neighborhood or a list of {layers}; "
            "graph.neighborhood_from reads an edge_index or PyG's Data"
        )
    if len(given) != layers:
        raise ValueError(f"{name}: got {len(given)}, expected one or {layers}")
    return given


class Stack(_Stacked):
    """Layer, activation, dropout, L times; the last layer returns the outputs.

    Call it with one neighborhood for all layers, or with one per layer, first layer first.

    Args:
        make: Builds a layer ``layer(x, neighborhood)`` from its in and out channels and whether it
            is the last.
        in_channels, hidden_channels, out_channels: Features of the input, between layers, and of
            the output.
        num_layers: L, at least 1.
        options: Dropout before every layer, and the activation between layers.
        project: Apply a linear map to `hidden_channels` first.
        batch_norm: Normalize every feature over the nodes, between layer and activation.
        layer_norm: Normalize the features of every node there instead.

    Raises:
        ValueError: If there is no layer, both norms are asked for, or there are other than one or L
            neighborhoods.
    """

    def __init__(
        self, make: MakeLayer, in_channels: int, hidden_channels: int, out_channels: int,
        num_layers: int, options: StackOptions = DEFAULTS,
        *, project: bool = False, batch_norm: bool = False, layer_norm: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(num_layers, options, nn.ELU())
        norm = _norm(batch_norm, layer_norm)
        self.input = nn.Linear(in_channels, hidden_channels) if project else None
        first = hidden_channels if project else in_channels
        widths = [first, *[hidden_channels] * (num_layers - 1), out_channels]
        self.layers = nn.ModuleList(
            make(*ends, i == num_layers) for i, ends in enumerate(pairwise(widths), 1)
        )
        self.norms = nn.ModuleList(norm(hidden_channels) for _ in range(num_layers - 1))

    def forward(self, x: Tensor, neighborhood: Neighborhood | Sequence[Neighborhood]) -> Tensor:
        *first, last = per_layer("neighborhood", neighborhood, len(self.layers))
        x = self.input_drop(x)
        if self.input is not None:
            x = self.drop(self.act(self.input(x)))
        *hidden, output = self.layers
        for layer, norm, nb in zip(hidden, self.norms, first, strict=True):
            x = self.drop(self.act(norm(_apply(layer, x, nb))))
        return _apply(output, x, last)


class LinearOutputStack(_Stacked):
    """Layer, norm, activation, dropout, L times; a linear map of the last one gives the outputs.

    Args:
        make: Builds a layer, as for `Stack`; none of them is the last.
        in_channels, hidden_channels, out_channels: Features of the input, of every layer's output,
            and of the output.
        num_layers: L, at least 1.
        options: Dropout of the input and behind every layer, and the activation; None is ReLU.
        project: Apply a linear map to `hidden_channels`, without activation, and dropout first.
        batch_norm, layer_norm: Normalize each layer's output, one of them, as in `Stack`.
        linear_residual: Add a linear map of each layer's input to its output.
        gate: Normalize the product with a learned map of the layer's input x, and mix: with y the
            activation of the output, (1 - b) norm(relu(W x + w) * y) + b y, b in (0, 1) learned.

    Raises:
        ValueError: If there is no layer, or both norms are asked for.

    Source:
        Luo, Shi and Wu (2024), "Classic GNNs are strong baselines", section 3; the sum over
        layers ("jumping knowledge"), which none of its recipes has, is left out. The gate is that
        of the code of Deng, Yue and Zhang (2024), "Polynormer"; here every b begins at 1/2.
    """

    def __init__(
        self, make: MakeLayer, in_channels: int, hidden_channels: int, out_channels: int,
        num_layers: int, options: StackOptions = DEFAULTS, *, project: bool = False,
        batch_norm: bool = False, layer_norm: bool = False, linear_residual: bool = False,
        gate: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(num_layers, options, nn.ReLU())
        norm, width = _norm(batch_norm, layer_norm), hidden_channels
        self.input = nn.Linear(in_channels, width) if project else None
        widths = [width if project else in_channels, *[width] * num_layers]
        self.layers = nn.ModuleList(make(*ends, False) for ends in pairwise(widths))
        own = (nn.Linear(*ends) if linear_residual else None for ends in pairwise(widths))
        self.residuals = nn.ModuleList(filter(None, own))
        self.gates = nn.ModuleList(nn.Linear(*ends) for ends in pairwise(widths) if gate)
        self.mix = nn.Parameter(torch.zeros(len(self.gates), width)) if gate else None
        self.norms = nn.ModuleList(norm(width) for _ in self.layers)
        self.output = nn.Linear(width, out_channels)

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        x = self.input_drop(x)
        if self.input is not None:
            x = self.drop(self.input(x))
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            out = layer(x, neighborhood)
            out = out + self.residuals[i](x) if self.residuals else out
            if self.mix is None:
                x = self.drop(self.act(norm(out)))
                continue
            out = self.drop(self.act(out))
            x = torch.lerp(norm(self.gates[i](x).relu() * out), out, self.mix[i].sigmoid())
        return self.output(x)


def _norm(batch_norm: bool, layer_norm: bool) -> type[nn.Module]:
    if batch_norm and layer_norm:
        raise ValueError("layer_norm: got True beside batch_norm=True, expected one norm")
    return nn.BatchNorm1d if batch_norm else nn.LayerNorm if layer_norm else nn.Identity


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
        x = x + self.drop(self.act(self.layer(self.norm(x), neighborhood)))
        return x if self.ffn is None else x + self.ffn(x)


class ResidualStack(_Stacked):
    """Linear map, L residual blocks, layer norm, linear map. Arguments as in `Stack`.

    Args:
        ffn: Add a feed-forward network after the layer of each block.
    """

    def __init__(
        self, make: MakeLayer, in_channels: int, hidden_channels: int, out_channels: int,
        num_layers: int, options: StackOptions = DEFAULTS, *, ffn: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(num_layers, options, nn.GELU())
        width = hidden_channels
        self.input = nn.Linear(in_channels, width)
        self.blocks = nn.ModuleList(
            Block(make(width, width, False), width, options.dropout, ffn, self.act)
            for _ in range(num_layers)
        )
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, out_channels)

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        x = self.drop(self.act(self.input(self.input_drop(x))))
        for block in self.blocks:
            x = block(x, neighborhood)
        return self.output(self.norm(x))
