"""Mini-batches of seeds with the nodes that they need: by layer, attended to, or whole parts."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphtheory.data.loaders.parts import check_part
from graphtheory.data.loaders.seeds import SeedBatches, SeedLoader, check_numbers
from graphtheory.data.loaders.source import Draws, NodeSource, induced
from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import row_places, sort_by_key
from graphtheory.patterns import AddSelf, Compose, Pattern, on_rows, per_layer
from graphtheory.patterns.base import apply_fixed, relabel
from graphtheory.structure import shortest_path_distance
from graphtheory.structure.distance import MAX_CUTOFF


class NodeSetLoader(SeedLoader):
    r"""Batches of seeds with one sampled, bipartite neighborhood for each layer.

    The top layer's targets are the seeds; the targets of every layer below are all nodes of
    the layer above. Nodes are numbered so that each layer's come first in the layer below:
    ``x[:neighborhoods[k].num_dst]`` are the targets' own features.

    A batch has what every batch of a `SeedLoader` has, and `neighborhoods`: a list with one for
    each layer, computed first at 0, with the sampler's weights; the last has a row for each seed,
    the first a source for each node. `models.SampledGCN` reads ``batch.x, batch.neighborhoods``.

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

    Source: Zou et al. (2019), algorithm 1; targets are added to what was drawn, as in their code.

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
    check_numbers(num_layers=(num_layers, 1))


class _NodeSets(Draws, SeedBatches):
    def __init__(self, source: NodeSource, seeds: Any, pattern: Pattern, num_layers: int) -> None:
        super().__init__(source, seeds)
        base, sampler = apply_fixed(pattern, source.own)
        perm = base.perm if source.edge else None  # which rows would gather
        self.base = base._changed(perm=perm)._seal()
        self.sampler, self.num_layers = sampler or Compose(), num_layers

    def draw(self, seeds: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Any]]:
        nodes, layers, given = seeds, list[Neighborhood](), list[Tensor | None]()
        for _ in range(self.num_layers):  # as `patterns.layers_on_rows`
            rows = on_rows(self.sampler, self.base, nodes, generator=generator)
            nodes, layer = relabel(nodes, rows)
            layers.insert(0, layer)
            given.insert(0, rows.perm)
        return nodes, {"neighborhoods": layers} | self.of_layers(nodes, layers, given)


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
        check_numbers(count=(self.count, 1))

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
    seed; its `.distance` uint8 [P] is the hops of each pair in the whole graph (of its search, if
    `KHop` has a cap), 254 for 254 or more, 255 for no path.

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

    Source: Li (2024), section 3.5: S^{n,t}.

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


class _AttentionSets(Draws, SeedBatches):
    def __init__(self, source: NodeSource, seeds: Any, pattern: Pattern | SharedAnchors) -> None:
        super().__init__(source, seeds)
        self.base, self.pattern = source.own, pattern

    def draw(self, seeds: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Any]]:
        rows = self._rows(seeds, generator)
        nodes, neighborhood = relabel(seeds, rows)
        more = self.source.of_edges(nodes, neighborhood, rows.perm)
        return nodes, {"neighborhood": neighborhood} | more

    def _rows(self, seeds: Tensor, generator: torch.Generator) -> Neighborhood:
        graph, pattern = self.base, self.pattern
        if isinstance(pattern, SharedAnchors):
            return pattern.rows(graph, seeds, generator=generator)
        rows = on_rows(pattern, graph, seeds, generator=generator)
        if rows.distance is not None and pattern.costs_rows:
            return rows
        # Others may count hops in a graph that an earlier pattern of theirs made.
        pairs = torch.stack([rows.indices, seeds[rows.targets()]])
        return rows.replace(distance=shortest_path_distance(graph, pairs=pairs, cutoff=MAX_CUTOFF))


class PartitionLoader(SeedLoader):
    r"""Batches of whole parts of a graph, with the edges among their nodes.

    A batch has what every batch of a `SeedLoader` has, where S are the seeds in these parts, and
    `neighborhood` [n, n]: the pattern on the graph that the nodes of these parts induce; with
    `num_layers` instead of it a list `neighborhoods`, one for each layer, as of
    `patterns.per_layer`.

    ``model(batch.x, batch.neighborhood)[: batch.batch_size]`` are the outputs of the seeds. Edges
    between parts count where both parts are in a batch, which `shuffle` draws afresh in every
    epoch. Nothing is computed for the whole graph, also not what comes before a random pattern, and
    of a `GraphFolder` written with the same parts only the pages of a batch are read. Parts without
    any seed are left out.

    Args:
        data: The graph, see `SeedLoader`, among it a `GraphFolder`.
        part: The part of each node, int64 [N], 0 or more, such as of `metis`.
        pattern: Who aggregates from whom within a batch; None is the induced graph.
        num_layers: Layers that get a neighborhood each; None gives one for all.
        options: Those of `SeedLoader`, as in `NodeSetLoader`, but `batch_size` is the number of
            parts in a batch, and processes share the parts.

    Raises:
        TypeError, ValueError, IndexError: As `SeedLoader`, or parts of another type or shape.

    Source: Chiang et al. (2019), Cluster-GCN, algorithm 1; several parts: section 3.2.

    Example:
        >>> from torch_geometric.data import Data
        >>> path = Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> loader = PartitionLoader(path, torch.tensor([0, 0, 1, 1]), input_nodes=[1, 3])
        >>> [(batch.n_id.tolist(), batch.neighborhood.indices.tolist()) for batch in loader]
        [([1, 0], [1]), ([3, 2], [1])]
    """

    def __init__(
        self, data: Any, part: Tensor, pattern: Pattern | None = None, *,
        num_layers: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        if pattern is not None and not isinstance(pattern, Pattern):
            raise TypeError(f"pattern: got {type(pattern).__name__}, expected a Pattern or None")
        make = partial(
            _Parts, part=part, pattern=pattern or Compose(), num_layers=num_layers,
            order=options.get("node_order"),
        )  # fmt: skip
        super().__init__(data, make, **options)


class _Parts(SeedBatches):
    def __init__(
        self, source: NodeSource, seeds: Any, part: Tensor, pattern: Pattern,
        num_layers: int | None, order: str | None,
    ) -> None:  # fmt: skip
        super().__init__(source, seeds)
        check_part(part, source.graph.num_dst)
        if source.is_original("part", part, order):
            moved = torch.empty_like(part)
            part = moved.index_copy_(0, source.ids(torch.arange(len(part))), part)
        self.pattern, self.num_layers = pattern, num_layers
        self.indptr, self.order = sort_by_key(part, int(part.max()) + 1)
        self.place = torch.full_like(part, -1)  # of each node among the seeds
        self.place[self.nodes] = self.input_id
        self.nodes, self.counts = part[self.nodes].unique(return_counts=True)  # parts are drawn

    def draw(self, seeds: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Any]]:
        nodes = self._of_parts(seeds)
        graph = induced(self.source.graph, nodes)
        if self.num_layers is None:
            one = self.pattern(graph, generator=generator)
            return nodes, {"neighborhood": one} | self.source.of_edges(nodes, one, one.perm)
        layers = per_layer(self.pattern, graph, self.num_layers, generator=generator)
        more = self.of_layers(nodes, layers, [layer.perm for layer in layers])
        return nodes, {"neighborhoods": layers} | more

    def of_seeds(self, position: Tensor) -> dict[str, Any]:
        place = self.place[self._of_parts(self.nodes[position])]
        place = place[place >= 0]
        return {"input_id": place, "batch_size": len(place)}

    def _of_parts(self, parts: Tensor) -> Tensor:
        nodes = self.order[row_places(self.indptr, parts)[1]]
        seed = self.place[nodes] >= 0
        return torch.cat([nodes[seed], nodes[~seed]])
