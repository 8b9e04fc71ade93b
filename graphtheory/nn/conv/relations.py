"""The edges of each relation, as `RGCNConv` reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import check_index, sort_by_key
from graphtheory.nn.conv.adjacency import Adjacency, cached_for, outside_inference_mode


@dataclass(frozen=True, eq=False)
class Relations:
    """The relation of each edge, and the pairs of relation and target node that have edges.

    Attributes:
        adjacency: The edges.
        kinds: Relation of each edge in CSR order, int64 [E].
        num_relations: Number of relations.
    """

    adjacency: Adjacency
    kinds: Tensor
    num_relations: int
    _sorted: tuple[Tensor, Tensor, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        # edges by relation, in each by target node as before
        _, order = sort_by_key(self.kinds, self.num_relations)
        ends = self.adjacency.targets()[order]
        kinds = self.kinds[order]
        new = torch.ones_like(kinds, dtype=torch.bool)
        new[1:] = (kinds[1:] != kinds[:-1]) | (ends[1:] != ends[:-1])
        object.__setattr__(self, "_sorted", (order, ends, new))

    @cached_property
    def sources(self) -> Neighborhood:
        """[P pairs <- N_src]: the source nodes of each pair, pairs sorted by relation."""
        order, _, new = self._sorted
        starts = torch.cat([new.nonzero().flatten(), new.new_tensor([len(new)], dtype=torch.long)])
        nb = self.adjacency.neighborhood
        return Neighborhood(starts, nb.indices[order], nb.num_src, validate=False)

    @cached_property
    def targets(self) -> Neighborhood:
        """[N_dst <- P pairs]: the pairs of each target node."""
        _, targets, new = self._sorted
        ends = targets[new]
        ids = torch.arange(len(ends), device=ends.device)
        num_dst = self.adjacency.neighborhood.num_dst
        edges = torch.stack([ids, ends])
        return Neighborhood.from_edge_index(edges, num_src=len(ends), num_dst=num_dst)

    @cached_property
    def counts(self) -> list[int]:
        """Number of pairs of each relation."""
        order, _, new = self._sorted
        found = torch.bincount(self.kinds[order][new], minlength=self.num_relations)
        return [int(count) for count in found.tolist()]

    @cached_property
    def share(self) -> Tensor:
        """1 / number of edges of its relation and target node, for each edge in CSR order [E]."""
        order, _, new = self._sorted
        per_pair = self.sources.degree().to(torch.float64).reciprocal()
        return torch.zeros_like(order, dtype=torch.float64).index_copy(
            0, order, per_pair[new.cumsum(0) - 1]
        )

    @cached_property
    def by_kind(self) -> Neighborhood:
        """The edges with a source node of its own for each relation: relation * N_src + source."""
        nb = self.adjacency.neighborhood
        indices = self.kinds * nb.num_src + nb.indices
        return Neighborhood(nb.indptr, indices, self.num_relations * nb.num_src, validate=False)


def relations_of(adj: Adjacency, kinds: Tensor, num_relations: int) -> Relations:
    """The relations, made once for an adjacency and a tensor `kinds` in the given order of edges.

    Raises:
        IndexError: If a relation is out of range.
    """

    def make() -> Relations:
        check_index("edge_type", kinds, num_relations)
        return Relations(adj, adj.to_csr_order(kinds.detach().long()), num_relations)

    cache = cached_for(kinds)
    if cache is None:
        return make()
    found = cache.get("relations")
    if found is None or found.adjacency is not adj or found.num_relations != num_relations:
        found = cache["relations"] = outside_inference_mode(make)
    return found
