"""Neighbor sampling of GraphSAGE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.draw import draw_device, edge_weight
from graphtheory.patterns.samplers import Sampler
from graphtheory.patterns.uniform import Sample


@dataclass(frozen=True)
class GraphSAGE(Sampler):
    r"""n sources per row, uniformly without replacement, with rescaled weights.

    .. math:: A^s_{ij} = A_{ij}\, \frac{|T^i|}{n} \text{ if j was drawn, else } 0, \qquad E[A^s] = A

    A row with at most n sources stays as it is.

    Args:
        n: Sources per row, at least 1.

    Raises:
        ValueError: If n is not a whole number, or below 1.
        TypeError: If `generator` is not a torch.Generator.

    Source:
        Hamilton, Ying and Leskovec (2017), algorithm 2. Their mean over the drawn sources is this
        pattern on rows with weights `1/|T^i|`; `Sample` draws the same sources without rescaling.

    Example:
        >>> pair = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), num_nodes=2)
        >>> GraphSAGE(1)(pair, generator=torch.Generator().manual_seed(0)).weight.tolist()
        [2.0]
    """

    n: int = 10
    by_row: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Sample(self.n)  # which checks n

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Draw."""
        draw_device(generator, neighborhood)
        factor = (neighborhood.degree().double() / self.n).clamp(min=1)[neighborhood.targets()]
        weight = edge_weight(neighborhood)
        scaled = neighborhood.replace(weight=weight * factor.to(weight.dtype))
        return Sample(self.n)(scaled, generator=generator)

    def row_size(self, base: Tensor) -> Tensor:
        """At most n."""
        return base.sum(1).clamp(max=self.n)
