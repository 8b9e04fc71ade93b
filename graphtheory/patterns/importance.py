"""Importance sampling of source nodes, for a whole layer or from the top layer down."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import check_index, distinct_ids
from graphtheory.patterns import draw
from graphtheory.patterns.base import Randomness, RowPattern
from graphtheory.patterns.normalize import degrees
from graphtheory.structure._search import kept_with_graph


def total(values: Tensor) -> Tensor:
    """Sum of the values, with the same bits for any number of threads."""
    return values.cumsum(0)[-1]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def importance_factor(mass: Tensor, count: int, *, replace: bool, generator: Randomness) -> Tensor:
    """Factors of nodes drawn in proportion to `mass` float64 [n]; 0 if not drawn, 1 on average."""
    if not bool(mass.isfinite().all()):
        raise ValueError("weight: NaN, infinite, or too large to square, expected finite weights")
    factor = torch.zeros_like(mass)
    alive = mass.nonzero().flatten()
    if len(alive):
        drawn = _with_replacement if replace else _systematic
        factor[alive] = drawn(mass[alive], count, generator)
    return factor


def _with_replacement(mass: Tensor, count: int, generator: Randomness) -> Tensor:
    reach = mass.cumsum(0)
    key = torch.rand(count, generator=generator, dtype=torch.float64, device=mass.device)
    drawn = torch.searchsorted(reach, key * reach[-1], right=True).clamp(max=len(mass) - 1)
    return torch.bincount(drawn, minlength=len(mass)) * reach[-1] / (count * mass)


def inclusion(mass: Tensor, count: int) -> Tensor:
    """Probabilities pi_j = min(1, c mass_j) that sum to `count`, for positive masses [n]."""
    certain = torch.zeros(len(mass), dtype=torch.bool, device=mass.device)
    if count >= len(mass):
        return torch.ones_like(mass)
    while True:
        left = count - int(certain.sum())
        chance = torch.where(certain, 1.0, left * mass / total(torch.where(certain, 0.0, mass)))
        above = chance > 1
        if not bool(above.any()):
            return chance
        certain |= above


def _systematic(mass: Tensor, count: int, generator: Randomness) -> Tensor:
    chance = inclusion(mass, count)
    order = torch.randperm(len(mass), generator=generator, device=mass.device)
    start = torch.rand(1, generator=generator, dtype=torch.float64, device=mass.device)
    order = order[chance[order] < 1]  # the others are always drawn
    steps = (chance[order].cumsum(0) - start).ceil()
    drawn = chance.new_ones(len(mass))
    drawn[order] = steps.diff(prepend=steps.new_zeros(1))
    return drawn / chance


@partial(kept_with_graph, weights=True)
def column_norms(neighborhood: Neighborhood) -> Tensor:
    """Squared norm of each source's column, float64 [num_src] (cached)."""
    square = draw.edge_weight(neighborhood).detach().double().square()
    return square.new_zeros(neighborhood.num_src).index_add(0, neighborhood.indices, square)


@dataclass(frozen=True)
class FastGCN(RowPattern, draw.NodeSampler):
    r"""S sources for the whole layer, in proportion to the squared norms of their columns.

    .. math::
        q_j = \frac{\sum_i A_{ij}^2}{\sum_{ij} A_{ij}^2}, \qquad
        A^s_{ij} = A_{ij}\, \frac{c_j}{S q_j}, \qquad E[A^s] = A

    where :math:`c_j` counts how often j was drawn in S independent draws. Without replacement, S
    different nodes are drawn, j with probability :math:`\pi_j = \min(1, c\, q_j)` such that they
    sum to S, and :math:`A^s_{ij} = A_{ij} / \pi_j`; the mean is A again. A column of zeros is never
    drawn; without edges nothing is drawn.

    With `unbiased=False`, columns of different nodes are divided by S q_j, as if a node could be
    drawn twice, as in the authors' code. Then :math:`A^*_{ij} = A_{ij}\, \pi_j / (S q_j)`: of the
    sources that are always drawn, larger columns are scaled down; all others are scaled equally.

    Args:
        count: S, at least 1; without replacement at most the number of sources.
        share: S divided by the number of sources instead, in (0, 1], rounded to at least one node.
            The default of both is half of the sources.
        replace: Whether a node can be drawn twice.
        unbiased: Keep the mean; False only without replacement.

    Raises:
        ValueError: If both sizes are given, one is out of range, more different nodes are asked for
            than exist, or a draw with replacement is to be biased.
        TypeError: If `generator` is not a torch.Generator.

    Source:
        Chen, Ma and Xiao (2018), eq. (10) and proposition 4. Their code draws different nodes one
        after the other, which gives probabilities close to pi_j without a closed form.

    Example:
        >>> star = Neighborhood.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]), num_nodes=3)
        >>> FastGCN(share=1.0, replace=False)(star).weight.tolist()
        [1.0, 1.0, 1.0]
    """

    replace: bool = True
    unbiased: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.replace and not self.unbiased:
            raise ValueError("unbiased: got False with replace=True, whose mean is A by itself")

    def on_rows(
        self, graph: Neighborhood, targets: Tensor | None, *, generator: Randomness = None
    ) -> Neighborhood:
        rows = graph if targets is None else graph.rows(targets)
        return draw.scale_columns(rows, self.factor(graph, generator))

    def factor(self, neighborhood: Neighborhood, generator: Randomness) -> Tensor:
        """The factor of each column for one draw, float64 [num_src]; 0 if it was not drawn."""
        device = draw.draw_device(generator, neighborhood)
        norm = column_norms(neighborhood).to(device)
        size = self.size(len(norm), distinct=not self.replace)
        drawn = importance_factor(norm, size, replace=self.replace, generator=generator)
        return self._times_bias(neighborhood, drawn)

    def _times_bias(self, neighborhood: Neighborhood, factor: Tensor) -> Tensor:
        """`factor` [num_src], times pi_j / (S q_j) if the draw is biased."""
        if self.unbiased:
            return factor
        norm = column_norms(neighborhood).to(factor.device)
        alive = norm.nonzero().flatten()
        if len(alive) == 0:
            return factor
        size = self.size(neighborhood.num_src)
        mass = norm[alive]
        chance = inclusion(mass, size)
        return factor.index_copy(0, alive, factor[alive] * chance * total(mass) / (size * mass))

    def expected(self, neighborhood: Neighborhood) -> Neighborhood:
        ones = torch.ones(neighborhood.num_src, dtype=torch.float64, device=neighborhood.device)
        return draw.scaled(neighborhood, self._times_bias(neighborhood, ones)[neighborhood.indices])


@dataclass(frozen=True)
class LADIES(draw.NodeSampler):
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

    def apply(
        self,
        neighborhood: Neighborhood,
        *,
        generator: Randomness = None,
        targets: Tensor | None = None,
    ) -> Neighborhood:
        """Draw for the rows `targets`, int64 node ids; None is every row."""
        if targets is not None:
            check_index("targets", targets, neighborhood.num_dst)
            if targets.dtype != torch.int64:
                raise TypeError(f"targets: dtype {targets.dtype}, expected int64 node ids")
            used = torch.zeros(neighborhood.num_dst, dtype=torch.bool, device=neighborhood.device)
            used[targets] = True
            neighborhood = neighborhood.keep(used[neighborhood.targets()])
        device = draw.draw_device(generator, neighborhood)
        size = self.size(neighborhood.num_src, distinct=not self.replace)
        # Sources without an edge to these rows are left out: a draw costs what the rows cost.
        sources, place = distinct_ids(neighborhood.indices, neighborhood.num_src)
        square = draw.edge_weight(neighborhood).detach().double().square()
        norm = square.new_zeros(len(sources)).index_add(0, place, square).to(device)
        factor = importance_factor(norm, size, replace=self.replace, generator=generator)
        drawn = draw.scale_edges(neighborhood, factor.to(place.device)[place])
        if not self.normalize:
            return drawn
        weight, rows = draw.edge_weight(drawn), drawn.targets()
        sums = degrees(weight, rows, drawn.num_dst)[rows]
        return drawn.replace(weight=(weight / torch.where(sums == 0, 1, sums)).to(weight.dtype))

    def layers(
        self,
        neighborhood: Neighborhood,
        num_layers: int,
        *,
        generator: Randomness = None,
        targets: Tensor | None = None,
    ) -> list[Neighborhood]:
        layers: list[Neighborhood] = []
        for _ in range(num_layers):
            layers.insert(0, self(neighborhood, generator=generator, targets=targets))
            targets = layers[0].indices.unique().long()
        return layers

    def expected(self, neighborhood: Neighborhood) -> Neighborhood | None:
        return None if self.normalize else super().expected(neighborhood)
