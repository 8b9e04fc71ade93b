"""The graph transformer: a stack of layers of attention over any pattern, with bias by distance."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from graphtheory.graph import Neighborhood
from graphtheory.models.stack import DEFAULTS, ResidualStack, StackOptions
from graphtheory.nn.conv.spd_transformer_conv import SPDTransformerConv
from graphtheory.patterns import AddSelf, Compose, KHop, Pattern

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
        ValueError: If `heads` does not divide `hidden_channels`, there is no layer, or x has
            another width.

    Source:
        Li (2024), section 3.5.2 (4 layers, 4 heads, Z = 20, 20 sampled nodes). Differs:
        normalization, residual connections and dropout by choice.

    Example:
        >>> model = GraphTransformer(16, 32, 7, num_layers=2)
        >>> model(torch.randn(3, 16), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 7])
    """

    __call__: Callable[..., Tensor]

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
        self.pattern, self.in_channels = pattern, in_channels

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
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise ValueError(f"x: shape {tuple(x.shape)}, expected [N, {self.in_channels}]")
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
