"""Many three-layer GCNs on sampled graphs, trained side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphtheory import ops
from graphtheory.graph import Neighborhood, union
from graphtheory.patterns import DegreeGroups, FastGCN, Pattern
from graphtheory.patterns.draw import edge_weight
from graphtheory.patterns.fastgcn import column_norms


class Trial(NamedTuple):
    """One network's task.

    Attributes:
        x: Features [N, d].
        y: Targets [N, K].
        labelled: Ids of the labelled nodes [S].
        adjacency: A, with weights.
        sampler: Draws A^s = A P^s; without one A is used.
    """

    x: Tensor
    y: Tensor
    labelled: Tensor
    adjacency: Neighborhood
    sampler: DegreeGroups | FastGCN | None = None


@dataclass(frozen=True)
class TrialOptions:
    """How all of them are trained.

    Args:
        width: m_1 = m_2.
        steps: How many.
        batch_size: Labelled nodes a step.
        dropout: On both hidden layers.
        step_size: eta.
        adam: Steps of Adam instead of SGD.
        everything: Biases, from 0, and C learn too: the model of practice.
    """

    width: int = 500
    steps: int = 1000
    batch_size: int = 5
    dropout: float = 0.4
    step_size: float = 1e-3
    adam: bool = False
    everything: bool = False


class SampledTrials:
    r"""T networks F of eq. (5.4), each on a graph, with targets and draws of its own.

    .. math:: \min_{W, V}\; \frac{1}{|B| K} \|F_{A^s}(B) - y_B\|_F^2

    by SGD or Adam, also over the biases and C where everything learns. All three layers share the
    draw A^s, afresh in every step. Only the rows that the batch needs are computed, of all networks
    together; `train.train_on_samples` is the same for one network, with all rows and all options.

    Args:
        trials: All with the same numbers of features, outputs and labelled nodes.
        options: Of all of them.
        generator: Source of all randomness.

    Raises:
        TypeError: A sampler whose P^s is not drawn by itself.

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
        learned = [*self.w, *self.v]
        if options.everything:
            self.b_1, self.b_2 = ([torch.zeros_like(b) for b in of] for of in (self.b_1, self.b_2))
            learned += [*self.c, *self.b_1, *self.b_2]
        for value in learned:
            value.requires_grad_()
        kind = torch.optim.Adam if options.adam else torch.optim.SGD
        self.optimizer = kind(learned, lr=options.step_size, fused=True)
        self.whole = union([t.adjacency for t in trials])
        self.columns = _Columns(trials)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator)

    def train(self) -> None:
        """All steps."""
        for _ in range(self.options.steps):
            self.step()

    def step(self) -> None:
        """One step of each network."""
        key = torch.rand(self.labelled.shape, generator=self.generator)
        places = key.topk(min(self.options.batch_size, key.size(1)), dim=1).indices
        batch = self.labelled.gather(1, places).flatten()
        factor = self.columns(self.generator)
        out = self.forward(batch, self.whole, self.options.dropout, factor)
        loss = (out - self.y[batch]).square().mean() * len(self.trials)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def forward(
        self,
        nodes: Tensor,
        adjacency: Neighborhood,
        drop: float = 0.0,
        factor: Tensor | None = None,
    ) -> Tensor:
        """Outputs [R, K] of some nodes of the union of all graphs, those of a graph together.

        With `factor` [N], the diagonal of P^s, on A P^s.
        """
        layers: list[Neighborhood] = []
        reached = [nodes]
        for _ in range(3):
            rows = _scaled(adjacency.rows(reached[0]), factor)
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
    def errors(self, adjacencies: Sequence[Neighborhood], asked: Sequence[Tensor]) -> list[float]:
        """Mean squared error of each network on the nodes asked for, with the given adjacency.

        Infinite of a network that diverged: the others went on without it.

        Args:
            adjacencies: One of each network.
            asked: Bool [N] of each network.
        """
        whole = union(adjacencies)
        out = torch.cat(
            [self.forward(nodes, whole) for nodes in torch.arange(len(self.x)).split(4096)]
        )
        square = (out - self.y).square().mean(1)
        own = square.split(self.starts.diff().tolist())
        means = [error[nodes].mean() for error, nodes in zip(own, asked, strict=True)]
        return [float(e) if bool(e.isfinite()) else float("inf") for e in means]


class _Columns:
    """P^s of all graphs, drawn together where that is possible: nothing else of A^s is random.

    The degree groups of all graphs are groups of their union. FastGCN looks at the norms of the
    columns alone, and those of A are also those of a diagonal matrix.
    """

    def __init__(self, trials: Sequence[Trial]) -> None:
        start = torch.tensor([0, *(len(t.x) for t in trials)]).cumsum(0)
        self.nodes, self.parts = int(start[-1]), list[tuple[Pattern, Tensor, Neighborhood]]()
        grouped: list[tuple[DegreeGroups, Trial, Tensor]] = []
        for trial, first in zip(trials, start.tolist(), strict=False):
            own = torch.arange(first, first + len(trial.x))
            if isinstance(trial.sampler, FastGCN):
                norm = column_norms(trial.adjacency).sqrt()
                self.parts.append((trial.sampler, own, _diagonal(norm)))
            elif isinstance(trial.sampler, DegreeGroups) and not trial.sampler.symmetric:
                grouped.append((trial.sampler, trial, own))
            elif trial.sampler is not None:
                raise TypeError(
                    f"sampler: got {trial.sampler}, expected FastGCN, DegreeGroups that is not "
                    "symmetric, or None"
                )
        if grouped:
            self.parts.append(_together(grouped))

    def __call__(self, generator: torch.Generator) -> Tensor:
        """The diagonal [N] of one draw."""
        out = torch.ones(self.nodes)
        for sampler, nodes, diagonal in self.parts:
            drawn = sampler(diagonal, generator=generator)
            ratio = edge_weight(drawn) / edge_weight(diagonal)[drawn.indices]
            out[nodes] = torch.zeros(len(nodes)).index_copy(0, drawn.indices, ratio.float())
        return out


def _together(
    grouped: Sequence[tuple[DegreeGroups, Trial, Tensor]],
) -> tuple[Pattern, Tensor, Neighborhood]:
    """One sampler whose groups are the groups of all graphs."""
    groups = [sampler.groups_of(trial.adjacency) for sampler, trial, _ in grouped]
    first = torch.tensor([0, *(len(g.size) for g in groups)]).cumsum(0)
    every = DegreeGroups(
        count=tuple(torch.cat([g.drawn for g in groups]).tolist()),
        p_star=tuple(torch.cat([g.p_star for g in groups]).tolist()),
        assignment=torch.cat([g.group + f for g, f in zip(groups, first, strict=False)]),
    )
    nodes = torch.cat([own for *_, own in grouped])
    return every, nodes, _diagonal(torch.ones(len(nodes)))


def _diagonal(entries: Tensor) -> Neighborhood:
    """The diagonal matrix of these entries [N]."""
    nodes = len(entries)
    places = torch.arange(nodes + 1)
    return Neighborhood(places, places[:-1], nodes, weight=entries, validate=False)


def _scaled(rows: Neighborhood, factor: Tensor | None) -> Neighborhood:
    if factor is None:
        return rows
    scale = factor[rows.indices]
    return rows.replace(weight=edge_weight(rows) * scale).keep(scale != 0)


def _sum(value: Tensor, neighborhood: Neighborhood) -> Tensor:
    return ops.aggregate(None, value[:, None], neighborhood)[:, 0]
