"""LADIES: importance sampling of source nodes, layer by layer from the top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import check_index, distinct_ids
from graphtheory.patterns.draw import draw_device, edge_weight, scale_edges
from graphtheory.patterns.fastgcn import column_norms
from graphtheory.patterns.importance import importance_factor
from graphtheory.patterns.samplers import NodeSampler


@dataclass(frozen=True)
class LADIES(NodeSampler):
    r"""S sources, in proportion to their squared column norms restricted to the active rows.

    .. math::
        q_j = \frac{\sum_{i \in R} A_{ij}^2}{\sum_{i \in R} \sum_k A_{ik}^2}, \qquad
        A^s_{ij} = A_{ij}\, \frac{c_j}{S q_j} \text{ for } i \in R, \qquad E[A^s] = A \text{ on } R

    R are the active rows: the sources that the layer above drew (`per_layer` goes from the top
    layer down). Rows outside R are empty. `FastGCN` is the same with all nodes as R.

    Args:
        count: S, at least 1; without replacement at most the number of sources.
        share: S divided by the number of sources instead; the default of both is half of them.
        replace: Whether a node can be drawn twice.
        normalize: Divide every row by its sum afterwards, as in the paper. The mean is then not A,
            and known from draws only.

    Raises:
        ValueError: If both sizes are given, one is out of range, or more different nodes are asked
            for than exist.
        TypeError: If `generator` is not a torch.Generator, or `targets` is not int64.
        IndexError: If a target does not exist.

    Source:
        Zou et al. (2019), algorithm 1. Differs: the mean is A by default, and the targets
        are not added to the drawn nodes.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> LADIES(count=1)(path, targets=torch.tensor([2])).edge_index().tolist()
        [[1], [2]]
    """

    replace: bool = True
    normalize: bool = False
    by_row: ClassVar[bool] = True

    def __call__(
        self,
        neighborhood: Neighborhood,
        *,
        generator: torch.Generator | None = None,
        targets: Tensor | None = None,
    ) -> Neighborhood:
        """Draw for the rows `targets`, int64 node ids; None is every row."""
        if targets is not None:
            neighborhood = only_rows(neighborhood, targets)
        device = draw_device(generator, neighborhood)
        size = self.size(neighborhood.num_src, distinct=not self.replace)
        # Sources without an edge to these rows are left out: a draw costs what the rows cost.
        sources, place = distinct_ids(neighborhood.indices, neighborhood.num_src)
        active = Neighborhood(
            neighborhood.indptr, place, len(sources), weight=neighborhood.weight, validate=False
        )
        norm = column_norms(active).to(device)
        factor = importance_factor(norm, size, replace=self.replace, generator=generator)
        drawn = scale_edges(neighborhood, factor.to(place.device)[place])
        return _row_normalized(drawn) if self.normalize else drawn

    def layers(
        self,
        neighborhood: Neighborhood,
        num_layers: int,
        *,
        generator: torch.Generator | None = None,
        targets: Tensor | None = None,
    ) -> list[Neighborhood]:
        """Drawn from the top layer down: the sources of a layer are the targets below it."""
        layers: list[Neighborhood] = []
        for _ in range(num_layers):
            layers.insert(0, self(neighborhood, generator=generator, targets=targets))
            targets = layers[0].indices.unique().long()
        return layers

    def expected(self, neighborhood: Neighborhood) -> Neighborhood | None:
        """The graph itself, if rows are not normalized."""
        return None if self.normalize else super().expected(neighborhood)


def only_rows(neighborhood: Neighborhood, targets: Tensor) -> Neighborhood:
    """The same neighborhood with all other rows empty."""
    if targets.dtype != torch.int64:
        raise TypeError(f"targets: dtype {targets.dtype}, expected int64 node ids")
    check_index("targets", targets, neighborhood.num_dst)
    used = torch.zeros(neighborhood.num_dst, dtype=torch.bool, device=neighborhood.device)
    used[targets] = True
    return neighborhood.keep(used[neighborhood.targets()])


def _row_normalized(neighborhood: Neighborhood) -> Neighborhood:
    weight, rows = edge_weight(neighborhood), neighborhood.targets()
    sums = weight.new_zeros(neighborhood.num_dst).index_add(0, rows, weight)[rows]
    return neighborhood.replace(weight=weight / torch.where(sums == 0, 1, sums))
