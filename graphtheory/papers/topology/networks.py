"""Several networks `models.SampledGCN`, each on a graph of its own, computed together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.models import SampledGCN
from graphtheory.models.sampled_gcn import NUM_LAYERS, aggregate_rows, three_layers
from graphtheory.papers.topology.data import SampledTask
from graphtheory.patterns.draw import edge_weight


class SampledGCNs:
    """T networks F of eq. (5.4) on the union of T graphs, for the rows that are asked for.

    Differs from T calls of `SampledGCN` in rounding alone: both hidden layers aggregate before they
    multiply, since few rows are asked for, and add the bias within the product. All tasks have the
    same numbers of features and outputs, m_1 = m_2 = `width`. The initial parameters are drawn
    matrix by matrix: W of every network, then V of every network, and so on.

    Attributes:
        networks: Their parameters.
        starts: Id of the first node of each graph in the union, and the number of all nodes.
    """

    def __init__(
        self, tasks: Sequence[SampledTask], width: int, *, fixed: bool, generator: torch.Generator
    ) -> None:
        self.x = torch.cat([task.x for task in tasks])
        self.starts = torch.tensor([0, *(len(task.x) for task in tasks)]).cumsum(0)
        features, outputs = self.x.size(1), tasks[0].y.size(1)
        self.networks = [
            SampledGCN(features, width, outputs, fixed=fixed, generator=torch.Generator())
            for _ in tasks
        ]
        self._w, self._v, self._c, self._b_1, self._b_2 = (
            [getattr(network, name) for network in self.networks]
            for name in ("W", "V", "C", "B1", "B2")
        )
        self._draw(width, fixed, generator)

    @torch.no_grad()
    def _draw(self, width: int, fixed: bool, generator: torch.Generator) -> None:
        biases = (self._b_1, self._b_2)
        for values in (self._w, self._v, self._c, *biases):
            scale = 1.0 if values is self._c else width**0.5
            for value in values:
                value.copy_(torch.randn(value.shape, generator=generator) / scale)
        if not fixed:
            for bias in (*self._b_1, *self._b_2):
                bias.zero_()

    def trained(self) -> list[Tensor]:
        """The parameters of all networks that are trained."""
        return [value for network in self.networks for value in network.parameters()]

    def __call__(
        self,
        nodes: Tensor,
        adjacency: Neighborhood,
        factor: Tensor | None = None,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Outputs [R, K] of nodes [R] of the union, those of a graph together, graphs in order.

        With the diagonal of P^s [N] as `factor` they are those with A P^s in all three layers;
        dropout is on both hidden layers.
        """
        needed, neighborhoods = [nodes], list[Neighborhood]()
        for _ in range(NUM_LAYERS):
            rows = _scaled(adjacency.rows(needed[0]), factor)
            sources, local = rows.indices.unique(return_inverse=True)
            needed.insert(0, sources)
            own = Neighborhood(rows.indptr, local, len(sources), weight=rows.weight, validate=False)
            neighborhoods.insert(0, own)
        layers = (
            partial(self._hidden, self._sizes(needed[1]), self._w, self._b_1),
            partial(self._hidden, self._sizes(needed[2]), self._v, self._b_2),
            partial(self._output, self._sizes(needed[2])),
        )
        drop = partial(coarse_dropout, probability=dropout, generator=generator)
        return three_layers(self.x[needed[0]], neighborhoods, layers, drop)

    def _sizes(self, nodes: Tensor) -> list[int]:
        """How many of these nodes are in each graph."""
        graph = torch.searchsorted(self.starts, nodes, right=True) - 1
        return torch.bincount(graph, minlength=len(self.networks)).tolist()

    def _hidden(
        self, sizes: list[int], weights: list[Tensor], biases: list[Tensor], z: Tensor,
        neighborhood: Neighborhood,
    ) -> Tensor:  # fmt: skip
        """(A Z) W + B, with W and B of each network for its own rows."""
        parts = zip(aggregate_rows(z, neighborhood).split(sizes), weights, biases, strict=True)
        return torch.cat([torch.addmm(b, rows, w) for rows, w, b in parts])

    def _output(self, sizes: list[int], z: Tensor, neighborhood: Neighborhood) -> Tensor:
        """A (Z C), with C of each network for its own rows."""
        parts = zip(z.split(sizes), self._c, strict=True)
        return aggregate_rows(torch.cat([rows @ c for rows, c in parts]), neighborhood)


def coarse_dropout(value: Tensor, probability: float, generator: torch.Generator | None) -> Tensor:
    """Dropout with a probability of whole 256ths: eight entries from each random number."""
    level = round(256 * probability)
    if level == 0:
        return value
    words = torch.empty(value.numel() // 8 + 1, dtype=torch.int64)
    words.random_(torch.iinfo(torch.int64).min, None, generator=generator)
    kept = words.view(torch.uint8)[: value.numel()].view_as(value) >= level
    return value * kept * (256 / (256 - level))


def _scaled(rows: Neighborhood, factor: Tensor | None) -> Neighborhood:
    if factor is None:
        return rows
    scale = factor[rows.indices]
    return rows.replace(weight=edge_weight(rows) * scale).keep(scale != 0)
