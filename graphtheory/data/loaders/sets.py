"""Mini-batches of seeds with the nodes that they aggregate from: layer by layer, or attended to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphtheory.data.loaders.seeds import SeedBatches, SeedLoader
from graphtheory.data.loaders.source import NodeSource
from graphtheory.graph import Neighborhood
from graphtheory.patterns import AddSelf, Compose, Pattern, layers_on_rows, on_rows
from graphtheory.patterns.base import relabel
from graphtheory.patterns.compose import apply_fixed
from graphtheory.structure import shortest_path_distance
from graphtheory.structure.distance import MAX_CUTOFF


class NodeSetLoader(SeedLoader):
    r"""Batches of seeds with one sampled, bipartite neighborhood for each layer.

    The top layer's targets are the seeds; the targets of every layer below are all nodes of
    the layer above. Nodes are numbered so that each layer's come first in the layer below:
    ``x[:neighborhoods[k].num_dst]`` are the targets' own features.

    A batch has what every batch of a `SeedLoader` has, and `neighborhoods`: a list with a
    `Neighborhood` for each layer, computed first at 0, with the sampler's weights; the last has a
    row for each seed, the first a source for each node.
    ``model(batch.x, batch.neighborhoods)`` is how `models.SampledGCN` reads it.

    What comes before a random pattern in a `Compose` is applied once. `GraphSAGE`, `Sample`,
    `LADIES` and `UniformNodes` then cost what the rows cost, `FastGCN` and `DegreeGroups` a pass
    over the nodes besides, other samplers one over the edges for each layer. A sampler that keeps
    everything gives the aggregation of the whole graph.

    Args:
        data: The graph, see `SeedLoader`.
        pattern: Who aggregates from whom; a sampler, perhaps at the end of a `Compose`.
        num_layers: At least 1.
        options: Those of `SeedLoader`: `input_nodes`, `edge_type`, `attributes`, `transform`,
            `batch_size`, `shuffle`, `drop_last`, `seed`, `num_workers` and so on.

    Raises:
        TypeError, ValueError, IndexError: As `SeedLoader`, or no pattern, or fewer than one layer.

    Source:
        Zou et al. (2019), algorithm 1; targets are added to what was drawn, as in their code.

    Example:
        >>> from torch_geometric.data import Data
        >>> from graphtheory.patterns import AddSelf, Compose, LADIES
        >>> path = Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> loader = NodeSetLoader(path, Compose(AddSelf(), LADIES(4)), 2, batch_size=2, seed=1)
        >>> batch = next(iter(loader))
        >>> batch.n_id[:2].tolist(), [layer.num_dst for layer in batch.neighborhoods][-1]
        ([0, 1], 2)
    """

    def __init__(self, data: Any, pattern: Pattern, num_layers: int, **options: Any) -> None:
        check_layers(pattern, num_layers)
        super().__init__(
            data, partial(_NodeSets, pattern=pattern, num_layers=num_layers), **options
        )


def check_layers(pattern: Any, num_layers: Any) -> None:
    """Raise unless this is a pattern for one layer or more."""
    if not isinstance(pattern, Pattern):
        raise TypeError(f"pattern: got {type(pattern).__name__}, expected a Pattern")
    if not isinstance(num_layers, int) or num_layers < 1:
        raise ValueError(f"num_layers: got {num_layers!r}, expected at least 1")


class _NodeSets(SeedBatches):
    def __init__(self, source: NodeSource, seeds: Any, pattern: Pattern, num_layers: int) -> None:
        super().__init__(source, seeds)
        self.base, sampler = apply_fixed(pattern, source.graph)
        self.sampler, self.num_layers = sampler or Compose(), num_layers

    def draw(self, seeds: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Any]]:
        nodes, layers = layers_on_rows(
            self.sampler, self.base, seeds, self.num_layers, generator=generator
        )
        return nodes, {"neighborhoods": layers}


@dataclass(frozen=True)
class SharedAnchors:
    """All seeds of a batch attend to the same nodes, drawn uniformly for each batch.

    The distances of all pairs come from one search that starts at the anchors together: its cost
    does not depend on the number of seeds, its memory is N bytes an anchor.

    Args:
        count: Different anchors a batch, at least 1; all nodes where there are fewer.
        with_self: Every seed also attends to itself, if it is no anchor.

    Raises:
        ValueError: `count` is no whole number, or below 1.
    """

    count: int = 256
    with_self: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or self.count < 1:
            raise ValueError(f"count: got {self.count!r}, expected a whole number, at least 1")

    def rows(
        self, graph: Neighborhood, seeds: Tensor, *, generator: torch.Generator
    ) -> Neighborhood:
        """A row for each seed, [S, N], with distances."""
        nodes = graph.num_dst
        anchors = torch.randperm(nodes, generator=generator)[: self.count].sort().values
        distance = shortest_path_distance(graph, sources=anchors, cutoff=MAX_CUTOFF)[seeds]
        rows = Neighborhood(
            torch.arange(len(seeds) + 1) * len(anchors), anchors.repeat(len(seeds)), nodes,
            distance=distance.flatten(), validate=False,
        )  # fmt: skip
        return AddSelf().narrow(rows, seeds) if self.with_self else rows


class AttentionSetLoader(SeedLoader):
    """Batches of seeds with what they may attend to, and the distances of exactly these pairs.

    A batch has what every batch of a `SeedLoader` has, and `neighborhood` [S, n]: a row for each
    seed; its `.distance` uint8 [P] is the hops of each pair in the whole graph, 254 for 254 or
    more, 255 for no path.

    ``conv((batch.x, batch.x[:batch.batch_size]), batch.neighborhood)`` is how the layers read it:
    one layer of attention, its outputs those of the seeds. A seed may have an empty row.

    Args:
        data: The graph, see `SeedLoader`.
        pattern: A pattern, such as ``Compose(KHop(2), Sample(60), AddSelf())``, or
            ``Compose(Sample(20, whole_graph=True), AddSelf())``, which cost what the seeds' rows
            cost (`on_rows`); or `SharedAnchors`.
        options: Those of `SeedLoader`, as in `NodeSetLoader`.

    Raises:
        TypeError, ValueError, IndexError: As `SeedLoader`, or no pattern.

    Source:
        Li (2024), section 3.5: S^{n,t}.

    Example:
        >>> from torch_geometric.data import Data
        >>> from graphtheory.patterns import AddSelf, Compose, KHop
        >>> path = Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> loader = AttentionSetLoader(path, Compose(KHop(2), AddSelf()), input_nodes=[3])
        >>> batch = next(iter(loader))
        >>> batch.n_id.tolist(), batch.neighborhood.indices.tolist()
        ([3, 1, 2], [1, 2, 0])
        >>> batch.neighborhood.distance.tolist()
        [2, 1, 0]
    """

    def __init__(self, data: Any, pattern: Pattern | SharedAnchors, **options: Any) -> None:
        if not isinstance(pattern, (Pattern, SharedAnchors)):
            kind = type(pattern).__name__
            raise TypeError(f"pattern: got {kind}, expected a Pattern or SharedAnchors")
        super().__init__(data, partial(_AttentionSets, pattern=pattern), **options)


class _AttentionSets(SeedBatches):
    def __init__(self, source: NodeSource, seeds: Any, pattern: Pattern | SharedAnchors) -> None:
        super().__init__(source, seeds)
        self.pattern = pattern

    def draw(self, seeds: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Any]]:
        nodes, neighborhood = relabel(seeds, self._rows(seeds, generator))
        return nodes, {"neighborhood": neighborhood}

    def _rows(self, seeds: Tensor, generator: torch.Generator) -> Neighborhood:
        graph, pattern = self.source.graph, self.pattern
        if isinstance(pattern, SharedAnchors):
            return pattern.rows(graph, seeds, generator=generator)
        rows = on_rows(pattern, graph, seeds, generator=generator)
        if rows.distance is not None and pattern.costs_rows:
            return rows
        # Others may count hops in a graph that an earlier pattern of theirs made.
        pairs = torch.stack([rows.indices, seeds[rows.targets()]])
        return rows.replace(distance=shortest_path_distance(graph, pairs=pairs, cutoff=MAX_CUTOFF))
