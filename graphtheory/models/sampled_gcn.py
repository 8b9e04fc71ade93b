"""The three-layer GCN of graph topology sampling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphtheory import ops
from graphtheory.graph import Neighborhood

NUM_LAYERS = 3


class SampledGCN(nn.Module):
    r"""Three layers over a neighbourhood each, which may be three draws of a sampler.

    .. math::
        F = A_3\, \sigma(A_2\, \sigma(A_1 X W + B_1)\, V + B_2)\, C, \qquad \sigma = \max(\cdot, 0)

    Every row of B_1 is the same, and so is every row of B_2. Starts at entries
    :math:`W, B_1 \sim N(0, 1/m_1)`, :math:`V, B_2 \sim N(0, 1/m_2)`, :math:`C \sim N(0, 1)`.
    Features of norm 1 are what these are meant for. A node with an empty row hears nothing: where
    all three of its rows are empty its output is 0.

    With `fixed`, the form of the theory, W and V learn and B_1, B_2 and C stay. Otherwise, the form
    of practice, all learn and the biases start at 0.

    Args:
        in_channels: Features of a node, d.
        hidden_channels: m_1 and m_2, or one number for both.
        out_channels: Outputs of a node, K.
        fixed: Whether biases and output weights stay as drawn.
        dropout: Probability, on both hidden layers in training.
        generator: Source of the parameters.

    Shapes:
        - **x:** [N, in_channels], dense or torch sparse CSR.
        - **neighborhoods:** one with N nodes for all layers, or three, the one applied first at 0.
        - **output:** [N, out_channels].

    Raises:
        ValueError: A width below 1, dropout outside [0, 1), or a number of neighbourhoods other
            than one or three.
        TypeError: What it is called with are no neighbourhoods.

    Source:
        Li (2024), eq. (5.4) and section 5.3.3. Differs: B_2 has a row for each node, as the sum
        needs, where the text says m_1 rows; dropout, which section 5.4 uses, is on hidden layers.

    Example:
        >>> from graphtheory import patterns as p
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> adjacency = p.Compose(p.AddSelf(), p.SymmetricNormalize())(path)
        >>> model = SampledGCN(4, 8, 2)
        >>> model(torch.randn(3, 4), p.per_layer(p.FastGCN(), adjacency, 3)).shape
        torch.Size([3, 2])
    """

    B1: Tensor
    B2: Tensor
    C: Tensor

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int | tuple[int, int],
        out_channels: int,
        *,
        fixed: bool = False,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if isinstance(hidden_channels, int):
            hidden_channels = (hidden_channels, hidden_channels)
        m_1, m_2 = hidden_channels
        for name, width in (
            ("in_channels", in_channels),
            ("hidden_channels", min(hidden_channels)),
            ("out_channels", out_channels),
        ):
            if width < 1:
                raise ValueError(f"{name}: got {width}, expected at least 1")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: got {dropout}, expected a probability in [0, 1)")
        self.fixed, self.drop = fixed, nn.Dropout(dropout)
        self.W = nn.Parameter(torch.empty(in_channels, m_1))
        self.V = nn.Parameter(torch.empty(m_1, m_2))
        for name, shape in (("B1", (m_1,)), ("B2", (m_2,)), ("C", (m_2, out_channels))):
            if fixed:
                self.register_buffer(name, torch.empty(shape))
            else:
                self.register_parameter(name, nn.Parameter(torch.empty(shape)))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw all parameters afresh."""
        m_1, m_2 = self.V.shape
        for value, variance in (
            (self.W, 1 / m_1), (self.V, 1 / m_2), (self.C, 1.0), (self.B1, 1 / m_1),
            (self.B2, 1 / m_2),
        ):  # fmt: skip
            value.normal_(0, variance**0.5, generator=generator)
        if not self.fixed:
            self.B1.zero_()
            self.B2.zero_()

    def forward(self, x: Tensor, neighborhoods: Neighborhood | Sequence[Neighborhood]) -> Tensor:
        """Outputs of every node; see the class for shapes."""
        first, second, third = _three(neighborhoods)
        hidden = self.drop(torch.relu(_propagate(x, self.W, first) + self.B1))
        hidden = self.drop(torch.relu(_propagate(hidden, self.V, second) + self.B2))
        return _propagate(hidden, self.C, third)


def _three(given: Neighborhood | Sequence[Neighborhood]) -> Sequence[Neighborhood]:
    if isinstance(given, Neighborhood):
        return [given] * NUM_LAYERS
    parts = given if isinstance(given, Sequence) else [given]
    if strangers := [type(part).__name__ for part in parts if not isinstance(part, Neighborhood)]:
        raise TypeError(
            f"neighborhoods: got {strangers[0]}, expected one Neighborhood or a list of "
            f"{NUM_LAYERS}; graph.neighborhood_from reads an edge_index or PyG's Data"
        )
    if len(given) != NUM_LAYERS:
        raise ValueError(f"neighborhoods: got {len(given)}, expected one or {NUM_LAYERS}")
    return given


def _propagate(x: Tensor, weight: Tensor, neighborhood: Neighborhood) -> Tensor:
    """A X W, aggregated on the narrower side."""
    if x.layout == torch.strided and weight.size(0) < weight.size(1):
        return _sum(x, neighborhood) @ weight
    return _sum(x @ weight, neighborhood)


def _sum(value: Tensor, neighborhood: Neighborhood) -> Tensor:
    return ops.aggregate(None, value[:, None], neighborhood)[:, 0]
