"""Many three-layer GCNs on sampled graphs, trained side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.patterns import Pattern
from graphtheory.patterns.draw import edge_weight


class Trial(NamedTuple):
    """One network's task.

    Attributes:
        x: Features [N, d].
        y: Targets [N, K].
        labelled: Ids of the labelled nodes [S].
        adjacency: A, with weights.
        sampler: Draws A^s.
        step_size: eta.
    """

    x: Tensor
    y: Tensor
    labelled: Tensor
    adjacency: Neighborhood
    sampler: Pattern
    step_size: float = 1e-3


@dataclass(frozen=True)
class TrialOptions:
    """How all of them are trained.

    Args:
        width: m_1 = m_2.
        steps: Steps of SGD.
        batch_size: Labelled nodes a step.
        dropout: On both hidden layers.
    """

    width: int = 500
    steps: int = 1000
    batch_size: int = 5
    dropout: float = 0.4


class SampledTrials:
    r"""T networks F of eq. (5.4), W and V learned, each on a graph, targets and draws of its own.

    .. math:: \min_{W, V}\; \frac{1}{|B| K} \|F_{A^s}(B) - y_B\|_F^2

    by SGD, the same draw A^s in all three layers, afresh in every step. Only the rows that the
    batch needs are computed, of all networks together; `train.train_on_samples` is the same for one
    network, with all rows and all options.

    Args:
        trials: All with the same numbers of features, outputs and labelled nodes.
        options: Of all of them.
        generator: Source of all randomness.

    Source:
        Li (2024), eq. (5.4) and section 5.4; the initial values of section 5.3.3.
    """

    def __init__(
        self, trials: Sequence[Trial], options: TrialOptions, generator: torch.Generator
    ) -> None:
        self.trials, self.options, self.generator = trials, options, generator
        self.x = torch.cat([t.x for t in trials])
        self.y = torch.cat([t.y for t in trials])
        self.starts = torch.tensor([0, *(len(t.x) for t in trials)]).cumsum(0)
        self.labelled = torch.stack([t.labelled for t in trials]) + self.starts[:-1, None]
        m, d, k = options.width, self.x.size(1), self.y.size(1)
        self.w = [self._normal(d, m) / m**0.5 for _ in trials]
        self.v = [self._normal(m, m) / m**0.5 for _ in trials]
        self.c = [self._normal(m, k) for _ in trials]
        self.b_1 = [self._normal(m) / m**0.5 for _ in trials]
        self.b_2 = [self._normal(m) / m**0.5 for _ in trials]
        for value in (*self.w, *self.v):
            value.requires_grad_()

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator)

    def train(self) -> None:
        """All steps."""
        for _ in range(self.options.steps):
            self.step()

    def step(self) -> None:
        """One step of SGD of each network."""
        key = torch.rand(self.labelled.shape, generator=self.generator)
        places = key.topk(min(self.options.batch_size, key.size(1)), dim=1).indices
        batch = self.labelled.gather(1, places).flatten()
        drawn = union([t.sampler(t.adjacency, generator=self.generator) for t in self.trials])
        out = self.forward(batch, drawn, self.options.dropout)
        loss = (out - self.y[batch]).square().mean() * len(self.trials)
        values = [*self.w, *self.v]
        gradients = torch.autograd.grad(loss, values)
        with torch.no_grad():
            steps = [-t.step_size for t in self.trials] * 2
            torch._foreach_add_(values, torch._foreach_mul(gradients, steps))

    def forward(self, nodes: Tensor, adjacency: Neighborhood, drop: float = 0.0) -> Tensor:
        """Outputs [R, K] of some nodes of the union of all graphs, those of a graph together."""
        layers: list[Neighborhood] = []
        reached = [nodes]
        for _ in range(3):
            rows = adjacency.rows(reached[0])
            senders, local = rows.indices.unique(return_inverse=True)
            reached.insert(0, senders)
            layers.insert(
                0,
                Neighborhood(rows.indptr, local, len(senders), weight=rows.weight, validate=False),
            )
        hidden = _sum(self.x[reached[0]], layers[0])
        hidden = self._map(hidden, reached[1], self.w, self.b_1, drop)
        hidden = self._map(_sum(hidden, layers[1]), reached[2], self.v, self.b_2, drop)
        return _sum(self._map(hidden, reached[2], self.c), layers[2])

    def _map(
        self,
        value: Tensor,
        nodes: Tensor,
        weights: list[Tensor],
        biases: list[Tensor] | None = None,
        drop: float = 0.0,
    ) -> Tensor:
        """Each network's linear map of its own rows, and with biases its hidden units."""
        graph = torch.searchsorted(self.starts, nodes, right=True) - 1
        sizes = torch.bincount(graph, minlength=len(weights)).tolist()
        parts = list(value.split(sizes))
        if biases is None:
            return torch.cat([x @ w for x, w in zip(parts, weights, strict=True)])
        mapped = [torch.addmm(b, x, w) for x, w, b in zip(parts, weights, biases, strict=True)]
        return self._dropped(torch.relu(torch.cat(mapped)), drop)

    def _dropped(self, value: Tensor, drop: float) -> Tensor:
        """Dropout with a probability of whole 256ths: eight entries from each random number."""
        level = round(256 * drop)
        if level == 0:
            return value
        words = torch.empty(value.numel() // 8 + 1, dtype=torch.int64)
        words.random_(torch.iinfo(torch.int64).min, None, generator=self.generator)
        kept = words.view(torch.uint8)[: value.numel()].view_as(value) >= level
        return value * kept * (256 / (256 - level))

    @torch.no_grad()
    def errors(self, adjacencies: Sequence[Neighborhood]) -> list[float]:
        """Mean squared error of each network on its unlabelled nodes, with the given adjacency.

        Infinite of a network that diverged: the others went on without it.
        """
        whole = union(adjacencies)
        out = torch.cat(
            [self.forward(nodes, whole) for nodes in torch.arange(len(self.x)).split(4096)]
        )
        square = (out - self.y).square().mean(1)
        rest = torch.ones(len(square), dtype=torch.bool)
        rest[self.labelled.flatten()] = False
        sizes = self.starts.diff().tolist()
        means = [e[r].mean() for e, r in zip(square.split(sizes), rest.split(sizes), strict=True)]
        return [float(e) if bool(e.isfinite()) else float("inf") for e in means]


def union(graphs: Sequence[Neighborhood]) -> Neighborhood:
    """The graphs side by side, nodes and edges of the first one first."""
    nodes = torch.tensor([0, *(g.num_dst for g in graphs)]).cumsum(0).tolist()
    edges = torch.tensor([0, *(g.num_edges for g in graphs)]).cumsum(0).tolist()
    indptr = [g.indptr[1:] + first for g, first in zip(graphs, edges, strict=False)]
    indices = [g.indices + first for g, first in zip(graphs, nodes, strict=False)]
    weight = torch.cat([edge_weight(g) for g in graphs])
    start = torch.zeros(1, dtype=torch.int64)
    return Neighborhood(
        torch.cat([start, *indptr]), torch.cat(indices), nodes[-1], weight=weight, validate=False
    )


def _sum(value: Tensor, neighborhood: Neighborhood) -> Tensor:
    return ops.aggregate(None, value[:, None], neighborhood)[:, 0]
