"""FastGCN: importance sampling of source nodes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.content import state_of
from graphtheory.patterns.draw import draw_device, edge_weight, scale_columns
from graphtheory.patterns.importance import importance_factor, inclusion, total
from graphtheory.patterns.samplers import NodeSampler

_norms: WeakKeyDictionary[Neighborhood, tuple[Hashable, Tensor]] = WeakKeyDictionary()


@dataclass(frozen=True)
class FastGCN(NodeSampler):
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

    def __call__(
        self, neighborhood: Neighborhood, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Draw."""
        return scale_columns(neighborhood, self.factor(neighborhood, generator))

    def on_rows(
        self, graph: Neighborhood, targets: Tensor, *, generator: torch.Generator | None = None
    ) -> Neighborhood:
        """Draw by the columns of the whole graph, and scale them in those rows only."""
        return scale_columns(graph.rows(targets), self.factor(graph, generator))

    def factor(self, neighborhood: Neighborhood, generator: torch.Generator | None) -> Tensor:
        """The factor of each column for one draw, float64 [num_src]; 0 if it was not drawn."""
        device = draw_device(generator, neighborhood)
        norm = _known_norms(neighborhood).to(device)
        size = self.size(len(norm), distinct=not self.replace)
        drawn = importance_factor(norm, size, replace=self.replace, generator=generator)
        return self._times_bias(neighborhood, drawn)

    def _times_bias(self, neighborhood: Neighborhood, factor: Tensor) -> Tensor:
        """`factor` [num_src], times pi_j / (S q_j) if the draw is biased."""
        if self.unbiased:
            return factor
        norm = _known_norms(neighborhood).to(factor.device)
        alive = norm.nonzero().flatten()
        if len(alive) == 0:
            return factor
        size = self.size(neighborhood.num_src)
        mass = norm[alive]
        chance = inclusion(mass, size)
        return factor.index_copy(0, alive, factor[alive] * chance * total(mass) / (size * mass))

    def expected(self, neighborhood: Neighborhood) -> Neighborhood:
        """A itself, times the bias if there is one."""
        ones = torch.ones(neighborhood.num_src, dtype=torch.float64, device=neighborhood.device)
        factor = self._times_bias(neighborhood, ones)[neighborhood.indices]
        weight = edge_weight(neighborhood)
        return neighborhood.replace(weight=weight * factor.to(weight.dtype))


def _known_norms(neighborhood: Neighborhood) -> Tensor:
    """`column_norms`, cached per graph object: every layer of every batch draws by them.

    They are computed again if the weights hold something else, and on every call where that cannot
    be seen.
    """
    weight = neighborhood.weight
    state = state_of(neighborhood.indptr if weight is None else weight)
    if state is None or neighborhood.check_unchanged() is None:
        return column_norms(neighborhood)
    if neighborhood not in _norms or _norms[neighborhood][0] != state:
        _norms[neighborhood] = (state, column_norms(neighborhood))
    return _norms[neighborhood][1]


def column_norms(neighborhood: Neighborhood) -> Tensor:
    """Squared norm of each source's column, float64 [num_src]."""
    square = edge_weight(neighborhood).detach().double().square()
    return square.new_zeros(neighborhood.num_src).index_add(0, neighborhood.indices, square)
