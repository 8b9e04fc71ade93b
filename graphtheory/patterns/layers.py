"""One draw for each layer of a network."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Compose, Pattern, require_square
from graphtheory.patterns.ladies import LADIES


def per_layer(
    pattern: Pattern,
    neighborhood: Neighborhood,
    num_layers: int,
    *,
    generator: torch.Generator | None = None,
    receivers: Tensor | None = None,
) -> list[Neighborhood]:
    """A neighbourhood for each layer, the one that is computed first at index 0.

    Every layer gets a draw of its own, first layer first; without randomness all get the same
    object. What comes before a random pattern in a `Compose` is applied once. `LADIES` goes from
    the top layer down: the senders that a layer drew are the receivers of the layer below.

    Args:
        pattern: Who aggregates from whom; a sampler, perhaps at the end of a `Compose`.
        neighborhood: The graph; nodes both send and receive.
        num_layers: At least 1.
        generator: Source of randomness of all layers.
        receivers: int64 node ids whose outputs are needed, for `LADIES`; None is all. Other
            patterns take no notice.

    Raises:
        ValueError: Fewer than one layer, or senders and receivers that are different nodes.

    Source:
        Li (2024), section 5.3.2, footnote 23: independent draws; Zou et al. (2019), algorithm 1.

    Example:
        >>> from graphtheory.patterns import AddSelf, UniformNodes
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> len(per_layer(Compose(AddSelf(), UniformNodes()), path, 3))
        3
    """
    if not isinstance(num_layers, int) or num_layers < 1:
        raise ValueError(f"num_layers: got {num_layers!r}, expected at least 1")
    require_square(neighborhood, "per_layer")
    base, sampler = begun(pattern, neighborhood)
    if sampler is None:
        return [base] * num_layers
    if not isinstance(sampler, LADIES):
        return [sampler(base, generator=generator) for _ in range(num_layers)]
    layers: list[Neighborhood] = []
    for _ in range(num_layers):
        layers.insert(0, sampler(base, generator=generator, receivers=receivers))
        receivers = layers[0].indices.unique().long()
    return layers


def begun(pattern: Pattern, neighborhood: Neighborhood) -> tuple[Neighborhood, Pattern | None]:
    """What the parts before the first random one make of it, and all from there on, if any."""
    parts = flat(pattern)
    first = next((i for i, part in enumerate(parts) if part.is_random), len(parts))
    base, rest = Compose(*parts[:first])(neighborhood), parts[first:]
    if not rest:
        return base, None
    return base, rest[0] if len(rest) == 1 else Compose(*rest)


def flat(pattern: Pattern) -> list[Pattern]:
    """The patterns of a `Compose`, those inside another one too; any other pattern alone."""
    if not isinstance(pattern, Compose):
        return [pattern]
    return [part for inner in pattern.patterns for part in flat(inner)]
