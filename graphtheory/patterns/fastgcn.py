"""FastGCN: importance sampling of senders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern
from graphtheory.patterns.draw import (
    check_size,
    draw_device,
    edge_weight,
    importance_factor,
    sample_size,
    scale_columns,
)


@dataclass(frozen=True)
class FastGCN(Pattern):
    r"""S senders for the whole layer, in proportion to the squared norms of their columns.

    .. math::
        q_j = \frac{\sum_i A_{ij}^2}{\sum_{ij} A_{ij}^2}, \qquad
        A^s_{ij} = A_{ij}\, \frac{c_j}{S q_j}, \qquad E[A^s] = A

    with :math:`c_j` the number of times that j came in S independent draws. Without replacement the
    S draws are of different nodes, j comes with probability :math:`\pi_j = \min(1, c\, q_j)`, these
    sum to S, and :math:`A^s_{ij} = A_{ij} / \pi_j`; the mean is A again. A column of zeros is never
    drawn; without edges there is nothing to draw.

    Args:
        count: S, at least 1; without replacement at most the number of senders.
        share: S over the number of senders instead, above 0 and at most 1, rounded to at least one
            node. Default of both: half of them.
        replace: Whether a node can come twice.

    Raises:
        ValueError: Both sizes, one out of its range, or more different nodes than there are.
        TypeError: A generator that is none.

    Source:
        Chen, Ma and Xiao (2018), eq. (10) and proposition 4. Differs from their code, which draws
        without replacement and still divides by S q_j, so that its mean is not A.

    Example:
        >>> star = Neighborhood.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]), num_nodes=3)
        >>> FastGCN(share=1.0, replace=False)(star).weight.tolist()
        [1.0, 1.0, 1.0]
    """

    count: int | None = None
    share: float | None = None
    replace: bool = True
    is_random: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_size(self.count, self.share)

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Draw."""
        factor = importance_of_columns(
            neighborhood, self.count, self.share, self.replace, generator
        )
        return scale_columns(neighborhood, factor)

    def mask(self, base: Tensor) -> Tensor:
        """The pairs it may draw: those there are."""
        return base

    def row_size(self, base: Tensor) -> Tensor:
        """The draw decides."""
        return torch.full((base.size(0),), -1)

    def expected(self, neighborhood: Neighborhood) -> Neighborhood:
        """A itself."""
        return neighborhood.with_(weight=edge_weight(neighborhood))


def importance_of_columns(
    neighborhood: Neighborhood,
    count: int | None,
    share: float | None,
    replace: bool,
    generator: torch.Generator | None,
) -> Tensor:
    """Factor of each sender [num_src], float64, drawn by the squared norms of the columns."""
    device = draw_device(generator, neighborhood)
    nodes = neighborhood.num_src
    size = sample_size(count, share, nodes)
    if not replace and size > max(nodes, 1):
        raise ValueError(f"count: got {size}, expected at most the {nodes} senders there are")
    square = edge_weight(neighborhood).detach().double().square()
    norm = square.new_zeros(nodes).index_add(0, neighborhood.indices, square)
    return importance_factor(norm.to(device), size, replace=replace, generator=generator)
