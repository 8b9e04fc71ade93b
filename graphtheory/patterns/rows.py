"""Some rows of a pattern, at the cost of those rows where the rule lets them be drawn alone."""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import distinct_ids
from graphtheory.patterns.base import Pattern, require_square
from graphtheory.patterns.degree_groups import DegreeGroups
from graphtheory.patterns.draw import draw_device, scale_columns
from graphtheory.patterns.fastgcn import FastGCN
from graphtheory.patterns.hops import AtDistance, KHop
from graphtheory.patterns.ladies import LADIES
from graphtheory.patterns.layers import flat
from graphtheory.patterns.sage import GraphSAGE
from graphtheory.patterns.uniform import AddSelf, Sample, add_self, distinct
from graphtheory.patterns.uniform_nodes import UniformNodes
from graphtheory.structure import hop_ball, shortest_path_distance
from graphtheory.structure.distance import MAX_CUTOFF


def on_rows(
    pattern: Pattern,
    graph: Neighborhood,
    receivers: Tensor,
    *,
    generator: torch.Generator | None = None,
) -> Neighborhood:
    """The rows `receivers` of ``pattern(graph)``, in that order; senders are all nodes.

    `KHop`, `AtDistance` and ``Sample(whole_graph=True)`` at the beginning and `Sample`, `AddSelf`,
    `GraphSAGE`, `UniformNodes` and `LADIES` anywhere cost what those rows cost, `FastGCN` and
    `DegreeGroups` that is not symmetric, at the beginning, a pass over the nodes besides; draws
    have the distribution of the whole graph's, but need not be the same ones. `LADIES` draws for
    these receivers. Any other pattern is applied to the whole graph.

    Args:
        pattern: Who aggregates from whom.
        graph: Nodes both send and receive.
        receivers: int64 node ids [R], each once.
        generator: Source of randomness.

    Returns:
        Neighborhood [R, N].

    Raises:
        ValueError: Senders and receivers of the graph are different nodes.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> on_rows(KHop(2), path, torch.tensor([2])).edge_index().tolist()
        [[0, 1], [0, 0]]
    """
    require_square(graph, "on_rows")
    parts = flat(pattern)
    if not parts:
        return graph.rows(receivers)
    if not costs_rows(pattern):
        return pattern(graph, generator=generator).rows(receivers)
    first, *rest = parts
    if isinstance(first, (KHop, AtDistance)):
        rows = _ball(first, graph, receivers)
    elif _is_whole(first):
        rows = _of_all_nodes(first, graph, receivers, generator)
    elif _is_of_columns(first):
        rows = scale_columns(graph.rows(receivers), first.factor(graph, generator))
    elif isinstance(first, Sample):
        rows = first.of_rows(graph, receivers, generator)
    else:
        rows, rest = graph.rows(receivers), parts
    for part in rest:
        own = isinstance(part, AddSelf)
        rows = add_self(rows, receivers) if own else part(rows, generator=generator)
    return rows


def layers_on_rows(
    pattern: Pattern,
    graph: Neighborhood,
    receivers: Tensor,
    num_layers: int,
    *,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, list[Neighborhood]]:
    """What so many layers need for the outputs of `receivers`, drawn from the top layer down.

    The receivers of every layer below are all nodes of the layer above. Nodes are numbered so that
    each layer's come first in the layer below.

    Args:
        pattern: Who aggregates from whom, afresh in each layer.
        graph: Nodes both send and receive.
        receivers: int64 node ids [R], each once.
        num_layers: At least 1.
        generator: Source of randomness of all layers.

    Returns:
        Ids of the nodes needed [n], the receivers first, and a neighbourhood for each layer over
        their places, the one computed first at 0.

    Source:
        Zou et al. (2019), algorithm 1; receivers are added to what was drawn, as in their code.

    Example:
        >>> path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> nodes, layers = layers_on_rows(KHop(1), path, torch.tensor([2]), 2)
        >>> nodes.tolist(), [(layer.num_dst, layer.num_src) for layer in layers]
        ([2, 1, 0], [(2, 3), (1, 2)])
    """
    layers: list[Neighborhood] = []
    nodes = receivers
    for _ in range(num_layers):
        nodes, layer = relabel(nodes, on_rows(pattern, graph, nodes, generator=generator))
        layers.insert(0, layer)
    return nodes, layers


def relabel(receivers: Tensor, rows: Neighborhood) -> tuple[Tensor, Neighborhood]:
    """Rows over all nodes as rows over those needed: the receivers first, then ascending senders.

    It costs what the rows cost, whatever the number of all nodes.

    Returns:
        Node ids [n] and the neighbourhood [R, n] over them.
    """
    senders, place = distinct_ids(rows.indices, rows.num_src)
    ascending, order = receivers.sort()
    at = torch.searchsorted(ascending, senders).clamp_(max=len(receivers) - 1)
    known = ascending[at] == senders
    fresh = senders[~known]
    local = torch.empty_like(senders)
    local[known] = order[at[known]]
    local[~known] = torch.arange(len(receivers), len(receivers) + len(fresh))
    nodes = torch.cat([receivers, fresh])
    return nodes, Neighborhood(
        rows.indptr, local[place], len(nodes), weight=rows.weight, distance=rows.distance,
        validate=False,
    )  # fmt: skip


def costs_rows(pattern: Pattern) -> bool:
    """Whether `on_rows` applies it to the rows alone."""
    by_rows = (AddSelf, GraphSAGE, LADIES, Sample, UniformNodes)
    for place, part in enumerate(flat(pattern)):
        begins = isinstance(part, (KHop, AtDistance)) or _is_whole(part) or _is_of_columns(part)
        if (begins and place > 0) or (not begins and not isinstance(part, by_rows)):
            return False
    return True


def _is_whole(pattern: Pattern) -> TypeGuard[Sample]:
    return isinstance(pattern, Sample) and pattern.whole_graph


def _is_of_columns(pattern: Pattern) -> TypeGuard[FastGCN | DegreeGroups]:
    """Whether it scales columns alone, by what the whole graph says of each."""
    return isinstance(pattern, FastGCN) or (
        isinstance(pattern, DegreeGroups) and not pattern.symmetric
    )


def _ball(pattern: KHop | AtDistance, graph: Neighborhood, receivers: Tensor) -> Neighborhood:
    inner, radius = (1, pattern.radius) if isinstance(pattern, KHop) else (pattern.z, pattern.z)
    return hop_ball(graph, radius, inner=inner, receivers=receivers)[0]


def _of_all_nodes(
    pattern: Sample, graph: Neighborhood, receivers: Tensor, generator: torch.Generator | None
) -> Neighborhood:
    nodes, rows = graph.num_dst, len(receivers)
    n = min(pattern.n, nodes)
    senders = distinct(rows, n, nodes, generator, draw_device(generator, graph)).flatten()
    senders = senders.to(graph.device)
    indptr = torch.arange(rows + 1, device=graph.device) * n
    pairs = torch.stack([senders, receivers.repeat_interleave(n)])
    distance = shortest_path_distance(graph, pairs=pairs, cutoff=MAX_CUTOFF)
    return Neighborhood(indptr, senders, nodes, distance=distance, validate=False)
