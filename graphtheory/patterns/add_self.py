"""Self-loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern, require_square
from graphtheory.structure._loops import with_loops


@dataclass(frozen=True)
class AddSelf(Pattern):
    """Add the node itself, at distance 0 and with weight 1, to every row without it."""

    by_row: ClassVar[bool] = True

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Add the missing loops, at the end of their rows."""
        nodes = require_square(neighborhood, "AddSelf")
        return add_self(neighborhood, torch.arange(nodes, device=neighborhood.device))

    def narrow(
        self, rows: Neighborhood, targets: Tensor, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Add the loops of those targets."""
        return add_self(rows, targets)

    def mask(self, base: Tensor) -> Tensor:
        """The diagonal added."""
        return base | torch.eye(base.size(0), dtype=torch.bool)


def add_self(rows: Neighborhood, targets: Tensor) -> Neighborhood:
    """`AddSelf` for rows of which row i is that of node targets[i]; sources are all nodes."""
    if rows.device.type == "cpu":
        arrays = (t.numpy() for t in (rows.indptr, rows.indices, targets))
        indptr, edges = map(torch.from_numpy, with_loops(*arrays))
    else:
        indptr, edges = _with_loops(rows, targets)
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


def _with_loops(rows: Neighborhood, targets: Tensor) -> tuple[Tensor, Tensor]:
    """`structure._loops.with_loops` on any device."""
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
