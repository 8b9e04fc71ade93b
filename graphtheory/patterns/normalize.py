"""Self-loops, and weights: those of the GCN, the symmetrically normalized adjacency, or means."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern, Randomness, require_square
from graphtheory.patterns.draw import edge_weight
from graphtheory.structure._loops import with_loops
from graphtheory.structure._search import not_traced


@dataclass(frozen=True)
class AddSelf(Pattern):
    """Add the node itself, at distance 0 and with weight 1, to every row without it."""

    by_row: ClassVar[bool] = True

    def apply(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        nodes = require_square(neighborhood, "AddSelf")
        return self.narrow(neighborhood, torch.arange(nodes, device=neighborhood.device))

    def narrow(
        self, rows: Neighborhood, targets: Tensor, *, generator: Randomness = None
    ) -> Neighborhood:
        on_cpu = rows.device.type == "cpu"
        indptr, edges = (_with_loops_on_cpu if on_cpu else _with_loops)(rows, targets)
        indices = torch.cat([rows.indices, targets]).index_select(0, edges)
        weight, distance = rows.weight, rows.distance
        if weight is not None:
            weight = torch.cat([weight, weight.new_ones(len(targets))])[edges]
        if distance is not None:
            hops = torch.cat([distance, distance.new_zeros(len(targets))])
            distance = hops.index_select(0, edges)
        return Neighborhood(
            indptr, indices, rows.num_src, weight=weight, distance=distance, validate=False
        )

    def mask(self, base: Tensor) -> Tensor:
        return base | torch.eye(base.size(0), dtype=torch.bool)


@not_traced
def _with_loops_on_cpu(rows: Neighborhood, targets: Tensor) -> tuple[Tensor, Tensor]:
    indptr, edges = with_loops(*(t.numpy() for t in (rows.indptr, rows.indices, targets)))
    return torch.from_numpy(indptr), torch.from_numpy(edges)


def _with_loops(rows: Neighborhood, targets: Tensor) -> tuple[Tensor, Tensor]:
    """What `structure._loops.with_loops` gives, on any device."""
    row = rows.targets()
    lacks = torch.ones(rows.num_dst, dtype=torch.bool, device=rows.device)
    lacks[row[rows.indices == targets[row]]] = False
    added = torch.cat([rows.indptr.new_zeros(1), lacks.cumsum(0)])
    indptr = rows.indptr + added
    edges = torch.empty(int(indptr[-1]), dtype=torch.int64, device=rows.device)
    old = torch.arange(rows.num_edges, device=rows.device)
    edges[old + added[row]] = old
    edges[indptr[1:][lacks] - 1] = rows.num_edges + lacks.nonzero().flatten()
    return indptr, edges


def degrees(weight: Tensor, rows: Tensor, count: int) -> Tensor:
    """Sums of weights by row, in float32 or wider: in 16 bits they stop growing."""
    wide = weight.to(torch.promote_types(weight.dtype, torch.float32))
    return wide.new_zeros(count).index_add(0, rows, wide)


@dataclass(frozen=True)
class SymmetricNormalize(Pattern):
    r"""The same edges with weights :math:`w_{ij} / \sqrt{d_i d_j}`; d is the weighted in-degree.

    `Compose(AddSelf(), SymmetricNormalize())` gives the propagation matrix of the GCN. Edges of a
    node with a degree of 0 or less get weight 0.

    Example:
        >>> pair = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> SymmetricNormalize()(pair).weight.tolist()
        [1.0, 1.0]
    """

    def apply(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        nodes = require_square(neighborhood, "SymmetricNormalize")
        rows, sources = neighborhood.targets(), neighborhood.indices
        weight = edge_weight(neighborhood)
        degree = degrees(weight, rows, nodes)
        root = torch.where(degree > 0, degree, torch.inf).rsqrt()
        return neighborhood.replace(weight=(weight * root[rows] * root[sources]).to(weight.dtype))

    def mask(self, base: Tensor) -> Tensor:
        return base


@dataclass(frozen=True)
class MeanNormalize(Pattern):
    r"""The same edges with weights :math:`w_{ij} / d_i`, whose sum is the mean over T^i.

    d is the weighted in-degree; edges of a node with degree 0 get weight 0.

    Example:
        >>> star = Neighborhood.from_edge_index(torch.tensor([[1, 2], [0, 0]]), num_nodes=3)
        >>> MeanNormalize()(star).weight.tolist()
        [0.5, 0.5]
    """

    def apply(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        rows, weight = neighborhood.targets(), edge_weight(neighborhood)
        degree = degrees(weight, rows, neighborhood.num_dst)
        share = 1 / torch.where(degree == 0, torch.inf, degree)
        return neighborhood.replace(weight=(share[rows] * weight).to(weight.dtype))

    def mask(self, base: Tensor) -> Tensor:
        return base
