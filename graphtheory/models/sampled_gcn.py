"""The GCN of graph topology sampling, of three layers or another number."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.models.stack import per_layer

NUM_LAYERS = 3


class SampledGCN(nn.Module):
    r"""Three layers, each over a neighborhood of its own, such as three draws of a sampler.

    .. math::
        F = A_3\, \sigma(A_2\, \sigma(A_1 X W + B_1)\, V + B_2)\, C, \qquad \sigma = \max(\cdot, 0)

    All rows of B_1 are equal, and so are those of B_2. Initially :math:`W, B_1 \sim N(0, 1/m_1)`,
    :math:`V, B_2 \sim N(0, 1/m_2)`, :math:`C \sim N(0, 1)`, which is meant for features of norm 1.
    A node whose three rows are empty gives 0. With L - 1 widths there are L layers in the same
    form; the weights of the third hidden layer are `W3` and `B3`, and so on.

    With `fixed`, the form of the theory, W and V are trained and B_1, B_2 and C keep their initial
    values. Otherwise, the form of practice, all are trained and the biases start at 0.

    Args:
        in_channels: Features per node, d.
        hidden_channels: m_1, ..., m_(L-1), or one number for both hidden layers of three.
        out_channels: Outputs per node, K.
        fixed: Whether biases and output weights keep their initial values.
        dropout: Probability, on both hidden layers in training.
        generator: Source of the initial parameters.

    Shapes:
        - **x:** [N, in_channels], dense or torch sparse CSR.
        - **neighborhoods:** one with N nodes for all layers, or L, the first layer's at 0.
        - **output:** [N, out_channels].

    Raises:
        ValueError: If a width is below 1, dropout is outside [0, 1), or there are other than one or
            L neighborhoods.
        TypeError: If it is called with something else.

    Source:
        Li (2024), eq. (5.4) and section 5.3.3. Differs: B_2 has one row per node, as the sum
        requires, not m_1; dropout, which section 5.4 uses, is on hidden layers.

    Example:
        >>> from graphtheory import patterns as p
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> adjacency = p.Compose(p.AddSelf(), p.SymmetricNormalize())(path)
        >>> model = SampledGCN(4, 8, 2)
        >>> model(torch.randn(3, 4), p.per_layer(p.FastGCN(), adjacency, 3)).shape
        torch.Size([3, 2])
    """

    C: Tensor

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int | tuple[int, ...],
        out_channels: int,
        *,
        fixed: bool = False,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if isinstance(hidden_channels, int):
            hidden_channels = (hidden_channels,) * (NUM_LAYERS - 1)
        widths = in_channels, min(hidden_channels, default=1), out_channels
        for name, width in zip(("in", "hidden", "out"), widths, strict=True):
            if width < 1:
                raise ValueError(f"{name}_channels: got {width}, expected at least 1")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: got {dropout}, expected a probability in [0, 1)")
        self.fixed, self.drop = fixed, nn.Dropout(dropout)
        self.num_layers = len(hidden_channels) + 1
        places = range(1, self.num_layers)
        self._weights = [{1: "W", 2: "V"}.get(layer, f"W{layer}") for layer in places]
        self._biases = [f"B{layer}" for layer in places]
        *ends, last = pairwise((in_channels, *hidden_channels, out_channels))
        for name, shape in zip(self._weights, ends, strict=True):
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))
        biases = {name: shape[1:] for name, shape in zip(self._biases, ends, strict=True)}
        for name, sizes in (biases | {"C": last}).items():
            value = torch.empty(sizes)
            if fixed:
                self.register_buffer(name, value)
            else:
                self.register_parameter(name, nn.Parameter(value))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all of the parameters again."""
        biases = [getattr(self, name) for name in self._biases]
        for value in (*(getattr(self, name) for name in self._weights), self.C, *biases):
            deviation = 1.0 if value is self.C else (1 / value.size(-1)) ** 0.5
            value.normal_(0, deviation, generator=generator)
        if not self.fixed:
            for bias in biases:
                bias.zero_()

    def forward(self, x: Tensor, neighborhoods: Neighborhood | Sequence[Neighborhood]) -> Tensor:
        biases = [getattr(self, name) for name in self._biases]
        layers = [
            partial(_propagate, weight=getattr(self, name), bias=bias)
            for name, bias in zip((*self._weights, "C"), (*biases, None), strict=True)
        ]
        given = per_layer("neighborhoods", neighborhoods, self.num_layers)
        return three_layers(x, given, layers, self.drop)


def three_layers(
    x: Tensor,
    neighborhoods: Sequence[Neighborhood],
    layers: Sequence[Callable[[Tensor, Neighborhood], Tensor]],
    drop: Callable[[Tensor], Tensor],
) -> Tensor:
    """Eq. (5.4) of any number of layers, which make A_l Z W_l + B_l; no dropout after the last."""
    *hidden, last = zip(layers, neighborhoods, strict=True)
    for layer, neighborhood in hidden:
        x = drop(torch.relu(layer(x, neighborhood)))
    layer, neighborhood = last
    return layer(x, neighborhood)


def aggregate_rows(value: Tensor, neighborhood: Neighborhood) -> Tensor:
    """A Z of a matrix Z [num_src, channels]: [num_dst, channels]."""
    return ops.aggregate(None, value[:, None], neighborhood).squeeze(1)


def _propagate(
    x: Tensor, neighborhood: Neighborhood, *, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """A X W + B, aggregated on the narrower side of W."""
    if x.layout == torch.strided and weight.size(0) < weight.size(1):
        out = aggregate_rows(x, neighborhood) @ weight
    else:
        out = aggregate_rows(x @ weight, neighborhood)
    return out if bias is None else out + bias
