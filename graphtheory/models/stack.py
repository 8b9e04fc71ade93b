"""Stacks of layers that take (x, neighborhood), and the graph transformer, which is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from graphtheory.graph import Neighborhood
from graphtheory.nn.conv.spd_transformer_conv import SPDTransformerConv
from graphtheory.patterns import AddSelf, Compose, KHop, Pattern


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


DEFAULTS = StackOptions()


class _Stacked(nn.Module):
    """What both kinds of stack have: the activation, and dropout of features and of the input."""

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
    """One neighborhood for each of so many layers."""
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
        if batch_norm and layer_norm:
            raise ValueError("layer_norm: got True beside batch_norm=True, expected one norm")
        norm = nn.BatchNorm1d if batch_norm else nn.LayerNorm if layer_norm else nn.Identity
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


ONE_HOP = Compose(KHop(1), AddSelf())


class Sum(nn.Module):
    """The sum of what layers make of the same nodes and neighborhood, of equal shapes."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        first, *others = (layer(x, neighborhood) for layer in self.layers)
        return sum(others, first)


class GraphTransformer(nn.Module):
    r"""L layers of attention over T^n with a learned bias for every distance.

    Each layer is `nn.SPDTransformerConv`; what a node attends to is a pattern:
    ``Compose(KHop(2), AddSelf())`` a ball, ``Sample(20, whole_graph=True)`` the thesis's practical
    network, in which every node draws 20 nodes of the graph afresh in every iteration.

    Args:
        in_channels: Features of a node.
        hidden_channels: Width of the network; a multiple of `heads`.
        out_channels: Classes.
        num_layers, heads: L, and attention heads of a layer.
        num_buckets: Z of eq. (3.2); None is the network without encoding.
        attention_dropout: Probability of dropping an attention weight.
        root_weight: Add W_R x_n to the output of every layer.
        beside: Builds a layer ``conv(x, T^n)`` from its in and out channels, whose output is added
            to that of the attention in every layer; None is attention alone.
        pattern: Computes T^n from the graph that the network is called with; by default one hop
            and the node itself. None uses the given graph as T^n.
        stack: How layers are stacked: `models.ResidualStack` or `models.Stack`.
        options: Dropout of features and activation of the stack.

    Shapes:
        x [N, in_channels] dense or sparse CSR, a graph as `edge_index` [2, E] or as a
        `Neighborhood` -> [N, out_channels]. Both forms of the same edges give the same result.
        `nn.attention_maps(model, x, edge_index)` gives T^n and the weights of every layer.

    Raises:
        ValueError: If `heads` does not divide `hidden_channels`, or there is no layer.

    Source:
        Li (2024), section 3.5.2 (4 layers, 4 heads, Z = 20, 20 sampled nodes). Differs:
        normalization, residual connections and dropout by choice.

    Example:
        >>> model = GraphTransformer(16, 32, 7, num_layers=2)
        >>> model(torch.randn(3, 16), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 7])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 4,
        heads: int = 4,
        *,
        num_buckets: int | None = 20,
        attention_dropout: float = 0.0,
        root_weight: bool = True,
        beside: Callable[[int, int], nn.Module] | None = None,
        pattern: Pattern | None = ONE_HOP,
        stack: Callable[..., nn.Module] = ResidualStack,
        options: StackOptions = DEFAULTS,
    ) -> None:
        super().__init__()
        if heads < 1 or hidden_channels % heads:
            raise ValueError(
                f"heads: got {heads}, expected a divisor of hidden_channels={hidden_channels}"
            )
        if pattern is not None and not isinstance(pattern, Pattern):
            raise TypeError(f"pattern: got {pattern!r}, expected a Pattern such as KHop(2) or None")
        self.pattern = pattern

        def make(width_in: int, width_out: int, last: bool) -> nn.Module:
            width = width_out if last else width_out // heads
            # the heads of an output layer are averaged
            layer = SPDTransformerConv(
                width_in, width, heads, concat=not last, num_buckets=num_buckets,
                dropout=attention_dropout, root_weight=root_weight,
            )  # fmt: skip
            return layer if beside is None else Sum(layer, beside(width_in, width_out))

        self.body = stack(make, in_channels, hidden_channels, out_channels, num_layers, options)

    def neighborhood(
        self, edge_index: Tensor | Neighborhood, num_nodes: int | None = None,
        *, generator: torch.Generator | None = None,
    ) -> Neighborhood:  # fmt: skip
        """T^n of every node: the pattern applied to a graph, an edge list or a `Neighborhood`."""
        if not isinstance(edge_index, Neighborhood):
            edge_index = Neighborhood.from_edge_index(edge_index, num_nodes)
        if self.pattern is None:
            return edge_index
        return self.pattern(edge_index, generator=generator)

    def forward(
        self, x: Tensor, edge_index: Tensor | Neighborhood,
        *, generator: torch.Generator | None = None,
    ) -> Tensor:  # fmt: skip
        """Class scores; `generator` is the source of randomness of the pattern."""
        return self.body(x, self.neighborhood(edge_index, x.size(0), generator=generator))

    def attention_layers(self) -> list[SPDTransformerConv]:
        """The layers, first to last."""
        return [m for m in self.modules() if isinstance(m, SPDTransformerConv)]

    def bucket_bias_table(self) -> Tensor:
        """Learned b, [layers, Z, heads], as in figure 3.8; a ValueError without encoding."""
        biases = [layer.bucket_bias for layer in self.attention_layers()]
        tables: list[Tensor] = [bias.table for bias in biases if bias is not None]
        if not tables:
            raise ValueError("num_buckets: this network has None, so there is no b to read")
        return torch.stack(tables).detach()
