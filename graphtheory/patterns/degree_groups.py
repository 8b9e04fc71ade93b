"""Graph topology sampling: nodes are drawn separately from each group of similar degree."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns import draw
from graphtheory.patterns.base import Randomness, RowPattern, require_square

Numbers = tuple[float, ...]


def check_boundaries(groups: int | Numbers) -> None:
    """Raise unless this is a number of groups, or a tuple of increasing limits."""
    if isinstance(groups, tuple):
        if not groups or not all(a < b for a, b in pairwise((-math.inf, *groups))):
            raise ValueError(f"groups: got {groups}, expected increasing degrees, at least one")
    elif not isinstance(groups, int) or groups < 1:
        raise ValueError(
            f"groups: got {groups!r}, expected a whole number of groups, at least 1, or a tuple of "
            "the degrees at which the next one begins"
        )


def group_by_degree(degree: Tensor, groups: int | Numbers) -> Tensor:
    """Group of each node from its degree, int64 [N]; `groups` as in `DegreeGroups`."""
    if not isinstance(degree, Tensor) or degree.dtype != torch.int64 or degree.dim() != 1:
        kind, shape = getattr(degree, "dtype", type(degree).__name__), getattr(degree, "shape", ())
        raise TypeError(
            f"degree: got {kind} of shape {tuple(shape)}, expected int64 [N], the sources of each "
            "node"
        )
    check_boundaries(groups)
    if isinstance(groups, int):
        if groups == 1 or len(degree) == 0:
            return torch.zeros_like(degree)
        least, most = (max(int(end), 1) for end in (degree.min(), degree.max()))
        groups = tuple(least * (most / least) ** (k / groups) for k in range(1, groups))
    limits = torch.tensor(groups, dtype=torch.float64, device=degree.device)
    return torch.bucketize(degree.double(), limits, right=True)


def group_sizes(index: Tensor, groups: int | Numbers) -> Tensor:
    """N_l, int64 [L]; raises where a group has no node."""
    expected = groups if isinstance(groups, int) else len(groups) + 1
    size = torch.bincount(index, minlength=expected)
    if bool((size == 0).any()):
        empty = int((size == 0).nonzero()[0])
        raise ValueError(
            f"groups: group {empty} of 0..{len(size) - 1} has no node, expected at least one; "
            f"sizes are {size.tolist()}"
        )
    return size


def each_group(
    name: str, value: float | Numbers, groups: int, fits: Callable[[float], bool], expected: str
) -> Tensor:
    """One value per group, float64 [L], from one value for all groups or one per group."""
    values = value if isinstance(value, tuple) else (value,) * groups
    if len(values) != groups:
        raise ValueError(f"{name}: {len(values)} values, expected one for each of {groups} groups")
    for group, number in enumerate(values):
        if not (math.isfinite(number) and fits(number)):
            raise ValueError(f"{name}: got {number} for group {group}, expected {expected}")
    return torch.tensor(values, dtype=torch.float64)


class Groups(NamedTuple):
    """The groups of a graph's nodes; group l from 0, in the order of growing degree."""

    group: Tensor  # of each node, int64 [N]
    size: Tensor  # N_l, int64 [L]
    drawn: Tensor  # S_l, int64 [L]
    p_star: Tensor  # p*_l, float64 [L]


@dataclass(frozen=True)
class DegreeGroups(RowPattern, draw.Sampler):
    r"""S_l of the N_l nodes of each degree group, uniformly without replacement, rescaled.

    .. math::
        A^s = A P^s, \qquad P^s_{ii} = p^*_l\, \frac{N_l}{S_l} \text{ if i was drawn, else } 0,
        \qquad A^* = A P^* = E[A^s], \quad P^*_{ii} = p^*_l

    Symmetric: :math:`A^s = P^s A P^s` with :math:`P^s_{ii} = \sqrt{p^*_l N_l / S_l}`, and
    :math:`A^* = P^* A P^*` with :math:`P^*_{ii} = \sqrt{p^*_l}` (`effective`). Only on the diagonal
    is that the mean: elsewhere two different nodes, of groups l and k, must both be drawn, and the
    mean (`expected`) is A*_ij times :math:`\sqrt{S_l S_k / (N_l N_k)}`, or times
    :math:`(S_l - 1) / (N_l - 1)` within one group.

    A node's degree is the number of sources in its row. A graph without nodes is returned as it is.

    Args:
        groups: Number of groups L, with limits spaced evenly on a log scale between the smallest
            degree (at least 1) and the largest; or the L - 1 limits: group l has
            limit_l <= degree < limit_(l+1).
        share: S_l / N_l, in (0, 1], one value for all groups or one per group, rounded to at least
            one node. The default of this and `count` is half of each group.
        count: S_l instead of a share, one value for all groups or one per group.
        p_star: p*_l, 0 or more, one value for all groups or one per group; 1 makes A* = A.
        symmetric: Scale rows and columns.
        assignment: The group of each node instead of a rule by degree, int64 [N]; each of 0..L-1
            occurs.

    Raises:
        ValueError: If an argument is out of range, S_l > N_l, a group has no node, or sources and
            targets of the graph are different nodes.
        TypeError: If `assignment` is not an int64 tensor, or `generator` is not a torch.Generator.

    Source:
        Li (2024), section 5.3.2, eqs. (5.6), (5.7); symmetric: section D.1.1, eqs. (D.14), (D.15).
        There, the groups are given and differ in the order of magnitude of their degrees.

    Example:
        >>> star = Neighborhood.from_edge_index(
        ...     torch.tensor([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]]), num_nodes=4)
        >>> hub_and_leaves = DegreeGroups(groups=2, share=1.0, p_star=(0.5, 1.0))
        >>> hub_and_leaves(star).to_dense()[0].tolist()
        [0.0, 0.5, 0.5, 0.5]
    """

    groups: int | Numbers = 1
    share: float | Numbers | None = None
    count: int | tuple[int, ...] | None = None
    p_star: float | Numbers = 1.0
    symmetric: bool = False
    assignment: Tensor | None = field(default=None, repr=False, compare=False)
    assignment_sha256: str = field(init=False, default="")  # shown and compared instead

    def __post_init__(self) -> None:
        for name in ("groups", "share", "count", "p_star"):
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))
        if self.share is not None and self.count is not None:
            raise ValueError(
                f"count: got {self.count} together with share={self.share}, expected one"
            )
        check_boundaries(self.groups)
        given = self.assignment
        if given is not None:
            if self.groups != 1:
                raise ValueError(
                    f"groups: got {self.groups} together with assignment, expected one"
                )
            if not isinstance(given, Tensor) or given.dtype != torch.int64:
                kind = getattr(given, "dtype", type(given).__name__)
                raise TypeError(f"assignment: got {kind}, expected an int64 tensor [N]")
            if given.dim() != 1 or (len(given) and int(given.min()) < 0):
                raise ValueError(
                    f"assignment: shape {tuple(given.shape)}, expected one group of 0 or more per "
                    "node"
                )
            content = given.cpu().contiguous().numpy().tobytes()
            object.__setattr__(self, "assignment_sha256", hashlib.sha256(content).hexdigest()[:16])
            object.__setattr__(self, "assignment", given.clone())  # which nobody else changes

    def groups_of(self, neighborhood: Neighborhood) -> Groups:
        """Groups of the nodes, their sizes, and the number of nodes drawn from each."""
        nodes = require_square(neighborhood, "DegreeGroups")
        index = self.assignment
        if index is None:
            index = group_by_degree(neighborhood.degree(), self.groups)
        elif len(index) != nodes:
            raise ValueError(f"assignment: {len(index)} nodes, expected the graph's {nodes}")
        size = group_sizes(index, self.groups).cpu()
        p_star = each_group("p_star", self.p_star, len(size), lambda p: p >= 0, "0 or more")
        parts = (index, size, self._drawn(size), p_star)
        return Groups(*(part.to(neighborhood.device) for part in parts))

    def _drawn(self, size: Tensor) -> Tensor:
        if self.count is None:
            given = 0.5 if self.share is None else self.share
            share = each_group("share", given, len(size), lambda s: 0 < s <= 1, "above 0 to 1")
            return (share * size).round().long().clamp(min=1)
        expected = "a whole number, 1 or more"
        whole = each_group(
            "count", self.count, len(size), lambda n: n >= 1 and float(n).is_integer(), expected
        )
        count = whole.long()
        if bool((count > size).any()):
            group = int((count > size).nonzero()[0])
            raise ValueError(
                f"count: S_l = {int(count[group])} for group {group}, expected at most its "
                f"{int(size[group])} nodes"
            )
        return count

    @property
    def costs_rows(self) -> bool:
        return not self.symmetric  # then only columns are scaled

    def on_rows(
        self, graph: Neighborhood, targets: Tensor | None, *, generator: Randomness = None
    ) -> Neighborhood:
        if require_square(graph, "DegreeGroups") == 0:
            return graph
        factor = self.factor(graph, generator)
        if not self.symmetric:
            return draw.scale_columns(graph if targets is None else graph.rows(targets), factor)
        root = factor.sqrt()
        drawn = draw.scale_columns(graph, root)
        drawn = draw.scale_edges(drawn, root[drawn.targets()])
        return drawn if targets is None else drawn.rows(targets)

    def factor(self, neighborhood: Neighborhood, generator: Randomness) -> Tensor:
        """p*_l N_l / S_l for drawn nodes and 0 for the others, float64 [N]."""
        device = draw.draw_device(generator, neighborhood)
        if require_square(neighborhood, "DegreeGroups") == 0:
            return torch.zeros(0, dtype=torch.float64)
        groups = self.groups_of(neighborhood)
        kept = draw.first_of_each(groups.group, groups.drawn, generator, device)
        return kept * (groups.p_star * groups.size / groups.drawn)[groups.group]

    def effective(self, neighborhood: Neighborhood) -> Neighborhood:
        """A* of eq. (5.6), or of eq. (D.14) if symmetric, on the same edges."""
        if neighborhood.num_dst == 0:
            return neighborhood
        groups = self.groups_of(neighborhood)
        factor = groups.p_star[groups.group[neighborhood.indices]]
        if self.symmetric:
            factor = (factor * groups.p_star[groups.group[neighborhood.targets()]]).sqrt()
        return draw.scaled(neighborhood, factor)

    def expected(self, neighborhood: Neighborhood) -> Neighborhood:
        """A*; if symmetric, with the factors given in the class docstring."""
        star = self.effective(neighborhood)
        if not self.symmetric or neighborhood.num_dst == 0:
            return star
        group, size, drawn, _ = self.groups_of(neighborhood)
        share = drawn / size.double()
        ends = group[torch.stack([neighborhood.indices, neighborhood.targets()])]  # [2, E]
        within = ((drawn - 1) / (size - 1).clamp(min=1).double())[ends[0]]
        both = torch.where(ends[0] == ends[1], within, share[ends].prod(0).sqrt())
        both[neighborhood.indices == neighborhood.targets()] = 1.0
        return draw.scaled(star, both)
