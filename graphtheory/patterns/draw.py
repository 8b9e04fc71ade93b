"""Samplers of edges or nodes: how they draw, and how draws become edge weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Pattern, Randomness

_FEW_GROUPS = 16  # up to here one pass over the nodes per group is faster than sorting them


def derive(seed: int, *position: int) -> int:
    """A 63-bit seed for one position in a run, such as (epoch,) or (epoch, step).

    Adjacent seeds and positions give unrelated results, and nothing depends on earlier draws.
    """
    words = np.random.SeedSequence((len(position), seed, *position)).generate_state(1, np.uint64)
    return int(words[0]) >> 1


def draw_device(generator: Randomness, neighborhood: Neighborhood) -> torch.device:
    """The device to draw on: that of the generator, so that a seed gives one draw on any device."""
    if generator is None:
        return neighborhood.device
    if not isinstance(generator, torch.Generator):
        kind = type(generator).__name__
        raise TypeError(f"generator: got {kind}, expected a torch.Generator or None")
    return generator.device


def edge_weight(neighborhood: Neighborhood) -> Tensor:
    """Weight of each edge [num_edges]; ones if the neighborhood has none."""
    if neighborhood.weight is not None:
        return neighborhood.weight
    return torch.ones(neighborhood.num_edges, device=neighborhood.device)


def weighted(neighborhood: Neighborhood) -> Neighborhood:
    """The same neighborhood with weights; ones if it has none."""
    return neighborhood.replace(weight=edge_weight(neighborhood))


def scaled(neighborhood: Neighborhood, factor: Tensor) -> Neighborhood:
    """Weights times `factor` [num_edges], in the precision of the weights."""
    weight = edge_weight(neighborhood)
    return neighborhood.replace(weight=weight * factor.to(weight))


def scale_edges(neighborhood: Neighborhood, factor: Tensor) -> Neighborhood:
    """Weights times `factor` [num_edges]; edges with factor 0 are dropped."""
    stays = factor != 0
    return scaled(neighborhood.keep(stays), factor[stays])


def scale_columns(neighborhood: Neighborhood, factor: Tensor) -> Neighborhood:
    """A P for the diagonal P = diag(factor) [num_src]; edges with factor 0 are dropped."""
    factor = factor.to(neighborhood.device)
    kept = neighborhood.keep((factor != 0)[neighborhood.indices])
    return scaled(kept, factor[kept.indices])


def ranks(group: Tensor, generator: Randomness, device: torch.device) -> Tensor:
    """Rank of each node in a random order of its group [N]; those below S are a uniform sample."""
    key = torch.rand(len(group), generator=generator, dtype=torch.float64, device=device)
    order = torch.argsort(group + key.to(group.device), stable=True)
    first = torch.bincount(group).cumsum(0) - torch.bincount(group)
    rank = torch.empty_like(group)
    rank[order] = torch.arange(len(group), device=group.device) - first[group[order]]
    return rank


def first_of_each(
    group: Tensor, size: Tensor, generator: Randomness, device: torch.device
) -> Tensor:
    """Bool [N]: the `size[l]` nodes of each group l with the smallest random keys."""
    if len(size) > _FEW_GROUPS:
        return ranks(group, generator, device) < size[group]
    key = torch.rand(len(group), generator=generator, dtype=torch.float64, device=device)
    key, kept = key.to(group.device), torch.zeros_like(group, dtype=torch.bool)
    for index, count in enumerate(size.tolist()):
        mine = (group == index).nonzero().flatten()
        kept[mine[key[mine].topk(count, largest=False, sorted=False).indices]] = True
    return kept


class Sampler(Pattern):
    """A random pattern that keeps some edges of the graph, with weights of the same mean.

    A subclass needs no more than a call; one that does not keep the mean replaces `expected`.
    """

    is_random: ClassVar[bool] = True

    def mask(self, base: Tensor) -> Tensor:
        return base

    def expected(self, neighborhood: Neighborhood) -> Neighborhood | None:
        return weighted(neighborhood)


@dataclass(frozen=True)
class NodeSampler(Sampler):
    """A sampler that draws S nodes for the whole layer: a count, or a share of the nodes."""

    count: int | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        count, share = self.count, self.share
        if count is not None and share is not None:
            raise ValueError(
                f"count: got {count} together with share={share}, expected one of the two"
            )
        whole = isinstance(count, int) and not isinstance(count, bool)
        if count is not None and not (whole and count >= 1):
            raise ValueError(f"count: got {count!r}, expected a whole number of nodes, at least 1")
        number = isinstance(share, (int, float)) and not isinstance(share, bool)
        if share is not None and not (number and 0 < share <= 1):
            raise ValueError(f"share: got {share!r}, expected a share of the nodes, in (0, 1]")

    def size(self, nodes: int, *, distinct: bool = False) -> int:
        """S for a number of nodes; raises if it is above that and they must be `distinct`."""
        size = self.count
        if size is None:
            size = max(1, round((0.5 if self.share is None else self.share) * nodes))
        if distinct and size > max(nodes, 1):
            raise ValueError(f"count: got {size}, expected at most the {nodes} sources there are")
        return size


@dataclass(frozen=True)
class UniformNodes(NodeSampler):
    r"""S of the N sources, uniformly without replacement; every row keeps those only.

    .. math:: A^s_{ij} = A_{ij}\, \frac NS \text{ if j was drawn, else } 0, \qquad E[A^s] = A

    Without sources nothing is drawn.

    Args:
        count: S, 1 to N nodes.
        share: S / N instead, in (0, 1], rounded to at least one node. The default of both is half
            of the nodes.

    Raises:
        ValueError: If both sizes are given, one is out of range, or more nodes are asked for than
            exist.
        TypeError: If `generator` is not a torch.Generator.

    Source:
        Li (2024), section 5.3.2 with one group and p* = 1.

    Example:
        >>> pair = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> UniformNodes(count=1)(pair, generator=torch.Generator().manual_seed(0)).weight.tolist()
        [2.0]
    """

    by_row: ClassVar[bool] = True

    def __call__(self, neighborhood: Neighborhood, *, generator: Randomness = None) -> Neighborhood:
        device = draw_device(generator, neighborhood)
        nodes = neighborhood.num_src
        if nodes == 0:
            return neighborhood
        size = self.size(nodes, distinct=True)
        one_group = torch.zeros(nodes, dtype=torch.int64, device=neighborhood.device)
        drawn = first_of_each(one_group, torch.tensor([size]), generator, device)
        return scale_columns(neighborhood, drawn.double() * (nodes / size))
