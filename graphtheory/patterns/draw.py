"""How samplers draw nodes, and how draws become edge weights."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.patterns.base import Randomness

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
    """Bool [N]: `size[l]` nodes of each group l, uniformly without replacement.

    The nodes with the smallest random keys: ``ranks(...) < size[group]`` without sorting.
    """
    if len(size) > _FEW_GROUPS:
        return ranks(group, generator, device) < size[group]
    key = torch.rand(len(group), generator=generator, dtype=torch.float64, device=device)
    key, kept = key.to(group.device), torch.zeros_like(group, dtype=torch.bool)
    for index, count in enumerate(size.tolist()):
        mine = (group == index).nonzero().flatten()
        kept[mine[key[mine].topk(count, largest=False, sorted=False).indices]] = True
    return kept
