"""One draw for each layer of a network."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern, require_square


def per_layer(
    pattern: Pattern,
    neighborhood: Neighborhood,
    num_layers: int,
    *,
    generator: torch.Generator | None = None,
    receivers: Tensor | None = None,
) -> list[Neighborhood]:
    """One neighborhood per layer; the layer that is computed first has index 0.

    Every layer gets a draw of its own, first layer first; without randomness all get the same
    object. What comes before a random pattern in a `Compose` is applied once. `LADIES` goes from
    the top layer down: the senders that a layer drew are the receivers of the layer below.

    Args:
        pattern: Who aggregates from whom; a sampler, perhaps at the end of a `Compose`.
        neighborhood: The graph; nodes both send and receive.
        num_layers: At least 1.
        generator: Source of randomness of all layers.
        receivers: int64 node ids whose outputs are needed, for `LADIES`; None is all. Other
            patterns ignore it.

    Raises:
        ValueError: If there is less than one layer, or if senders and receivers are different
            nodes.

    Source:
        Li (2024), section 5.3.2, footnote 23: independent draws; Zou et al. (2019), algorithm 1.

    Example:
        >>> from graphtheory.patterns import AddSelf, Compose, UniformNodes
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> len(per_layer(Compose(AddSelf(), UniformNodes()), path, 3))
        3
    """
    if not isinstance(num_layers, int) or num_layers < 1:
        raise ValueError(f"num_layers: got {num_layers!r}, expected at least 1")
    require_square(neighborhood, "per_layer")
    return pattern.layers(neighborhood, num_layers, generator=generator, receivers=receivers)
