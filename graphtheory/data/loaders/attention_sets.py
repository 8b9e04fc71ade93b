"""Mini-batches for graph transformers: what each seed may attend to, with distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphtheory.data.loaders.seeds import SeedBatches, SeedLoader
from graphtheory.data.loaders.source import NodeSource, source_of
from graphtheory.graph import Neighborhood
from graphtheory.patterns import AddSelf, Pattern, on_rows
from graphtheory.patterns.rows import relabel
from graphtheory.structure import shortest_path_distance
from graphtheory.structure.distance import MAX_CUTOFF


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

    ================  ==============  ======================================================
    of a batch        shape           content
    ================  ==============  ======================================================
    `neighborhood`    [S, n]          a row for each seed; `.distance` uint8 [P] is the hops
                                      of each pair in the whole graph: 254 is 254 or more,
                                      255 no path
    `n_id`            int64 [n]       the nodes in the whole graph, seeds first
    `input_id`        int64 [S]       the seeds' places in `input_nodes`
    `batch_size`      int             S
    `x`, `y`, ...     [n, ...]        the rows of these n nodes, and no others
    ================  ==============  ======================================================

    ``conv((batch.x, batch.x[:batch.batch_size]), batch.neighborhood)`` is how the layers read it:
    one layer of attention, its outputs those of the seeds. A seed may have an empty row. What
    becomes of attributes is as in `NodeSetLoader`.

    Args:
        data: `Data`, `HeteroData` with `edge_type`, a `GraphFolder`, or a pair (FeatureStore,
            GraphStore) of one node type and without weights.
        pattern: A pattern, such as ``Compose(KHop(2), Sample(60), AddSelf())``, or
            ``Compose(Sample(20, whole_graph=True), AddSelf())``, which cost what the seeds' rows
            cost (`on_rows`); or `SharedAnchors`.
        input_nodes: The seeds, ids or a Bool mask; None is all nodes.
        edge_type: Of `HeteroData` the relation to take, as in `NodeSetLoader`.
        attributes: Names of what travels with the nodes; None is all that can.
        options: Those of `SeedLoader`, `transform` among them.

    Raises:
        TypeError, ValueError, IndexError: As in `NodeSetLoader`.

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

    def __init__(
        self,
        data: Any,
        pattern: Pattern | SharedAnchors,
        *,
        input_nodes: Any = None,
        edge_type: tuple[str, str, str] | None = None,
        attributes: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(pattern, (Pattern, SharedAnchors)):
            kind = type(pattern).__name__
            raise TypeError(f"pattern: got {kind}, expected a Pattern or SharedAnchors")
        source = source_of(data, attributes, edge_type)
        super().__init__(_AttentionSets(source, input_nodes, pattern), **options)


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
