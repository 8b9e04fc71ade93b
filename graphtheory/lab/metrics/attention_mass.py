"""Where attention goes."""

from __future__ import annotations

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood


def mass_by_distance(
    weights: list[Tensor], neighborhood: Neighborhood
) -> list[dict[str, float | int]]:
    r"""Share of attention that goes to each distance, beside the share of uniform attention.

    .. math:: m_z = \frac1N \sum_n \sum_{s \in T^n : \mathrm{hops}(s, n) = z} w_{sn}

    Nodes with an empty row are left out; heads are averaged.

    Args:
        weights: [num_edges, heads] of each layer, in the edge order of the neighborhood.
        neighborhood: Who aggregates from whom, with distances.

    Returns:
        Rows with keys layer (from 1), distance (hops), mass, uniform.

    Raises:
        ValueError: The neighborhood has no distances.
    """
    if neighborhood.distance is None:
        raise ValueError("neighborhood: has no distance, expected hops of each edge")
    rows, hops = neighborhood.targets(), neighborhood.distance.long()
    degree = neighborhood.degree()
    busy = max(int((degree > 0).sum()), 1)
    none = torch.zeros(256, device=hops.device)
    uniform = none.index_add(0, hops, 1 / degree[rows].float()) / busy
    out: list[dict[str, float | int]] = []
    for layer, weight in enumerate(weights, 1):
        mass = none.index_add(0, hops, weight.float().mean(1)) / busy
        out += [
            {"layer": layer, "distance": z, "mass": float(mass[z]), "uniform": float(uniform[z])}
            for z in torch.unique(hops).tolist()
        ]
    return out


def mass_on(
    weights: Tensor, neighborhood: Neighborhood, relevant: Tensor, nodes: Tensor | None = None
) -> float:
    r"""Attention concentration, left side of (3.11): mean mass put on relevant edges.

    Args:
        weights: [num_edges, heads].
        neighborhood: Who aggregates from whom.
        relevant: Bool [num_edges], e.g. sources that carry the target's class-relevant pattern.
        nodes: Bool [num_dst], the targets to average over; default all. Those with an empty row
            are left out.

    Raises:
        ValueError: No target is left to average over, or a shape that does not fit.
    """
    edges = neighborhood.num_edges
    if weights.dim() != 2 or weights.size(0) != edges:
        raise ValueError(f"weights: shape {tuple(weights.shape)}, expected [{edges}, heads]")
    if relevant.shape != (edges,):
        raise ValueError(f"relevant: shape {tuple(relevant.shape)}, expected [{edges}]")
    kept = torch.where(relevant, weights.mean(1), 0)
    per_node = weights.new_zeros(neighborhood.num_dst).index_add(0, neighborhood.targets(), kept)
    chosen = neighborhood.degree() > 0
    if nodes is not None:
        chosen = chosen & nodes
    if not bool(chosen.any()):
        raise ValueError("nodes: none of them has a row, expected a target to average over")
    return float(per_node[chosen].mean())
