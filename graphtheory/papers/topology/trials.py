"""Many three-layer GCNs on sampled graphs, trained side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood, union
from graphtheory.papers.topology.data import SampledGCNs, SampledTask
from graphtheory.patterns import DegreeGroups, FastGCN


@dataclass(frozen=True)
class Reading:
    """How "the learning rate is 1e-3" is read."""

    name: str = "SGD"  # in tables and pictures
    adam: bool = False  # steps of Adam instead of SGD
    step_size: float = 1e-3  # eta (thesis: 1e-3)
    # biases, from 0, and C are trained too: the model of practice, not that of the theory
    everything: bool = False


class TrainingOptions(NamedTuple):
    """How all networks are trained."""

    width: int  # m_1 = m_2
    steps: int  # how many
    batch_size: int = 5  # labeled nodes per step
    dropout: float = 0.4  # on both hidden layers
    reading: Reading = Reading()  # optimizer, step size and what is trained


class SampledTrials:
    r"""T networks F of eq. (5.4), each with a graph, targets and samples of its own.

    .. math:: \min_{W, V}\; \frac{1}{|B| K} \|F_{A^s}(B) - y_B\|_F^2

    by SGD or Adam, also over the biases and C where everything is trained. All three layers share
    the sample A^s, which is drawn again in every step. `training.train_on_samples` is the same for
    one network, with all rows and all options of algorithm 2. All tasks have the same numbers of
    features, outputs and labeled nodes.

    Source: Li (2024), eq. (5.4) and section 5.4; the initial values of section 5.3.3.
    """

    def __init__(
        self, tasks: Sequence[SampledTask], options: TrainingOptions, generator: torch.Generator
    ) -> None:
        self.tasks, self.options, self.generator = tasks, options, generator
        reading = options.reading
        self.model = SampledGCNs(
            tasks, options.width, fixed=not reading.everything, generator=generator
        )
        self.y = torch.cat([task.y for task in tasks])
        starts = self.model.starts[:-1, None]
        self.labeled = torch.stack([task.labeled for task in tasks]) + starts
        kind = torch.optim.Adam if reading.adam else torch.optim.SGD
        self.optimizer = kind(self.model.trained(), lr=reading.step_size, fused=True)
        self.whole = union([task.adjacency for task in tasks])
        self.columns = _Columns(tasks)

    def train(self) -> None:
        """Take all steps of training."""
        for _ in range(self.options.steps):
            self.step()

    def step(self) -> None:
        """One step of each network."""
        key = torch.rand(self.labeled.shape, generator=self.generator)
        places = key.topk(min(self.options.batch_size, key.size(1)), dim=1).indices
        batch = self.labeled.gather(1, places).flatten()
        factor = self.columns(self.generator)
        out = self.model(batch, self.whole, factor, self.options.dropout, self.generator)
        loss = (out - self.y[batch]).square().mean() * len(self.tasks)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    @torch.no_grad()
    def errors(self, adjacencies: Sequence[Neighborhood], asked: Sequence[Tensor]) -> list[float]:
        """Mean squared error of each network on the nodes asked for, bool [N], with its adjacency.

        Infinite for a network that diverged, which does not affect the others.
        """
        whole = union(adjacencies)
        parts = torch.arange(len(self.y)).split(4096)
        out = torch.cat([self.model(nodes, whole) for nodes in parts])
        square = (out - self.y).square().mean(1)
        own = square.split(self.model.starts.diff().tolist())
        means = [error[nodes].mean() for error, nodes in zip(own, asked, strict=True)]
        return [float(e) if bool(e.isfinite()) else float("inf") for e in means]


class _Columns:
    """The diagonal of P^s for all graphs, which is all that is random in A^s = A P^s."""

    def __init__(self, tasks: Sequence[SampledTask]) -> None:
        self.nodes = sum(len(task.x) for task in tasks)
        self.parts = list[tuple[FastGCN | DegreeGroups, Neighborhood, Tensor]]()
        grouped: list[tuple[DegreeGroups, Neighborhood, Tensor]] = []
        places = torch.arange(self.nodes).split([len(task.x) for task in tasks])
        for (*_, adjacency, sampler), own in zip(tasks, places, strict=True):
            if isinstance(sampler, FastGCN):
                self.parts.append((sampler, adjacency, own))
            elif isinstance(sampler, DegreeGroups) and not sampler.symmetric:
                grouped.append((sampler, adjacency, own))
            elif sampler is not None:
                raise TypeError(
                    f"sampler: got {sampler}, expected FastGCN, DegreeGroups that is not "
                    "symmetric, or None"
                )
        if grouped:
            self.parts.append(_together(grouped))

    def __call__(self, generator: torch.Generator) -> Tensor:
        """The diagonal [N] of one draw."""
        out = torch.ones(self.nodes)
        for sampler, adjacency, nodes in self.parts:
            out[nodes] = sampler.factor(adjacency, generator).float()
        return out


def _together(
    grouped: Sequence[tuple[DegreeGroups, Neighborhood, Tensor]],
) -> tuple[DegreeGroups, Neighborhood, Tensor]:
    """One sampler whose groups are the groups of all graphs, their union, and its nodes."""
    samplers, graphs, nodes = zip(*grouped, strict=True)
    groups = [sampler.groups_of(graph) for sampler, graph in zip(samplers, graphs, strict=True)]
    first = torch.tensor([0, *(len(g.size) for g in groups)]).cumsum(0)
    every = DegreeGroups(
        count=tuple(torch.cat([g.drawn for g in groups]).tolist()),
        p_star=tuple(torch.cat([g.p_star for g in groups]).tolist()),
        assignment=torch.cat([g.group + f for g, f in zip(groups, first, strict=False)]),
    )
    return every, union(graphs), torch.cat(nodes)
