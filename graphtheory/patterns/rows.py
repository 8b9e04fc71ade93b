"""Patterns on some rows of a graph, and for the layers of a network."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import distinct_ids
from graphtheory.patterns.base import Pattern, require_square


def on_rows(
    pattern: Pattern,
    graph: Neighborhood,
    targets: Tensor,
    *,
    generator: torch.Generator | None = None,
) -> Neighborhood:
    """The rows `targets` of ``pattern(graph)``, in that order; sources are all nodes.

    `KHop`, `AtDistance`, `DilatedHops` and ``Sample(whole_graph=True)`` as the first pattern, and
    `Sample`, `AddSelf`, `GraphSAGE`, `UniformNodes` and `LADIES` anywhere, cost what those rows
    cost. `FastGCN` and `DegreeGroups` that is not symmetric, as the first pattern, cost one pass
    over the nodes in addition. Draws have the same distribution as those for the whole graph, but
    need not be the same draws. `LADIES` draws for these targets. Any other pattern is applied to
    the whole graph (`Pattern.costs_rows` tells).

    Args:
        pattern: Who aggregates from whom.
        graph: Nodes both send and receive.
        targets: int64 node ids [R], each once.
        generator: Source of randomness.

    Returns:
        Neighborhood [R, N].

    Raises:
        ValueError: If sources and targets of the graph are different nodes.

    Example:
        >>> from graphtheory.patterns import KHop
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> on_rows(KHop(2), path, torch.tensor([2])).edge_index().tolist()
        [[0, 1], [0, 0]]
    """
    require_square(graph, "on_rows")
    return pattern.on_rows(graph, targets, generator=generator)


def per_layer(
    pattern: Pattern,
    neighborhood: Neighborhood,
    num_layers: int,
    *,
    generator: torch.Generator | None = None,
    targets: Tensor | None = None,
) -> list[Neighborhood]:
    """One neighborhood per layer; the layer that is computed first has index 0.

    Every layer gets its own draw, first layer first; without randomness all layers get the same
    object. What comes before a random pattern in a `Compose` is applied once. `LADIES` goes from
    the top layer down: the sources that a layer drew are the targets of the layer below.

    Args:
        pattern: Who aggregates from whom; a sampler, perhaps at the end of a `Compose`.
        neighborhood: The graph; nodes both send and receive.
        num_layers: At least 1.
        generator: Source of randomness of all layers.
        targets: int64 node ids whose outputs are needed, for `LADIES`; None is all. Other
            patterns ignore it.

    Raises:
        ValueError: If there is less than one layer, or if sources and targets are different
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
    return pattern.layers(neighborhood, num_layers, generator=generator, targets=targets)


def layers_on_rows(
    pattern: Pattern,
    graph: Neighborhood,
    targets: Tensor,
    num_layers: int,
    *,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, list[Neighborhood]]:
    """One neighborhood per layer for the outputs of `targets`, drawn from the top layer down.

    The targets of a layer are all nodes of the layer above it. Nodes are numbered so that those
    of a layer come first in the layer below.

    Args:
        pattern: Who aggregates from whom; drawn again for each layer.
        graph: Nodes both send and receive.
        targets: int64 node ids [R], each once.
        num_layers: At least 1.
        generator: Source of randomness of all layers.

    Returns:
        Ids of the needed nodes [n], the targets first, and one neighborhood per layer whose nodes
        are positions in these ids, first layer first.

    Source:
        Zou et al. (2019), algorithm 1; targets are added to the drawn nodes, as in their code.

    Example:
        >>> from graphtheory.patterns import KHop
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> nodes, layers = layers_on_rows(KHop(1), path, torch.tensor([2]), 2)
        >>> nodes.tolist(), [(layer.num_dst, layer.num_src) for layer in layers]
        ([2, 1, 0], [(2, 3), (1, 2)])
    """
    layers: list[Neighborhood] = []
    nodes = targets
    for _ in range(num_layers):
        nodes, layer = relabel(nodes, on_rows(pattern, graph, nodes, generator=generator))
        layers.insert(0, layer)
    return nodes, layers


def relabel(targets: Tensor, rows: Neighborhood) -> tuple[Tensor, Neighborhood]:
    """Renumber the sources of some rows: the targets first, then the other sources, ascending.

    The cost depends on the rows, not on the number of all nodes.

    Returns:
        Node ids [n] and the neighborhood [R, n] over them.
    """
    sources, place = distinct_ids(rows.indices, rows.num_src)
    ascending, order = targets.sort()
    at = torch.searchsorted(ascending, sources).clamp_(max=len(targets) - 1)
    known = ascending[at] == sources
    fresh = sources[~known]
    local = torch.empty_like(sources)
    local[known] = order[at[known]]
    local[~known] = torch.arange(len(targets), len(targets) + len(fresh))
    nodes = torch.cat([targets, fresh])
    return nodes, Neighborhood(
        rows.indptr, local[place], len(nodes), weight=rows.weight, distance=rows.distance,
        validate=False,
    )  # fmt: skip
