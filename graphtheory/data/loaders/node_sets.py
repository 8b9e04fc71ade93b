"""Mini-batches for samplers that draw a set of nodes for each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphtheory.data.loaders.seeds import SeedBatches, SeedLoader
from graphtheory.data.loaders.source import NodeSource, source_of
from graphtheory.patterns import Compose, Pattern
from graphtheory.patterns.compose import apply_fixed
from graphtheory.patterns.rows import layers_on_rows


class NodeSetLoader(SeedLoader):
    r"""Batches of seeds with one sampled, bipartite neighborhood for each layer.

    The top layer's targets are the seeds; the targets of every layer below are all nodes of
    the layer above. Nodes are numbered so that each layer's come first in the layer below:
    ``x[:neighborhoods[k].num_dst]`` are the targets' own features.

    ================  ==============  ======================================================
    of a batch        shape           content
    ================  ==============  ======================================================
    `neighborhoods`   list            a `Neighborhood` for each layer, computed first at 0,
                                      with the sampler's weights; the last has a row for
                                      each seed, the first a source for each node
    `n_id`            int64 [n]       the nodes in the whole graph, seeds first
    `input_id`        int64 [S]       the seeds' places in `input_nodes`
    `batch_size`      int             S
    `x`, `y`, ...     [n, ...]        the rows of these n nodes, and no others
    ================  ==============  ======================================================

    ``model(batch.x, batch.neighborhoods)`` is how `models.SampledGCN` reads it. Attributes of edges
    stay behind, but for `edge_weight`, which the sampler reads. Numbers and strings are in every
    batch. `AddShortestPathDistance` comes out as the pairs of which both nodes are in the batch, at
    their distance in the whole graph; any other attribute that may speak of pairs is refused. What
    is refused is told by name and shape: node ids *in* an attribute with a row for each node stay
    those of the whole graph, which `n_id` translates.

    What comes before a random pattern in a `Compose` is applied once. `GraphSAGE`, `Sample`,
    `LADIES` and `UniformNodes` then cost what the rows cost, `FastGCN` and `DegreeGroups` a pass
    over the nodes besides, other samplers one over the edges for each layer. A sampler that keeps
    everything gives the aggregation of the whole graph.

    Args:
        data: `Data`, `HeteroData` with `edge_type`, a `GraphFolder`, or a pair (FeatureStore,
            GraphStore) of one node type and without weights.
        pattern: Who aggregates from whom; a sampler, perhaps at the end of a `Compose`.
        num_layers: At least 1.
        input_nodes: The seeds, ids or a Bool mask; None is all nodes.
        edge_type: Of `HeteroData` the relation to take, such as ("paper", "cites", "paper"), with
            its one type of nodes, whose ids all ids then are. None for other data.
        attributes: Names of what travels with the nodes; None is all that can.
        options: Those of `SeedLoader`: `batch_size`, `shuffle`, `drop_last`, `seed`, `transform`,
            `num_workers` and what else torch's loader knows.

    Raises:
        TypeError: `HeteroData` without a relation or no graph at all, no pattern, or seeds that are
            no node ids.
        ValueError: An attribute that cannot be cut (it is named), no nodes, no seeds, a seed that
            comes twice, or a number out of its range.
        IndexError: A seed that does not exist.

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

    def __init__(
        self,
        data: Any,
        pattern: Pattern,
        num_layers: int,
        *,
        input_nodes: Any = None,
        edge_type: tuple[str, str, str] | None = None,
        attributes: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(pattern, Pattern):
            raise TypeError(f"pattern: got {type(pattern).__name__}, expected a Pattern")
        if not isinstance(num_layers, int) or num_layers < 1:
            raise ValueError(f"num_layers: got {num_layers!r}, expected at least 1")
        source = source_of(data, attributes, edge_type)
        super().__init__(_NodeSets(source, input_nodes, pattern, num_layers), **options)


class _NodeSets(SeedBatches):
    def __init__(self, source: NodeSource, seeds: Any, pattern: Pattern, num_layers: int) -> None:
        super().__init__(source, seeds)
        self.base, sampler = apply_fixed(pattern, source.graph)
        self.sampler = Compose() if sampler is None else sampler
        self.num_layers = num_layers

    def draw(self, seeds: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Any]]:
        nodes, layers = layers_on_rows(
            self.sampler, self.base, seeds, self.num_layers, generator=generator
        )
        return nodes, {"neighborhoods": layers}
