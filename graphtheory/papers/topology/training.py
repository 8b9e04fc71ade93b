"""Networks that learn on samples of their graphs, as in algorithm 2, all of them side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood, union
from graphtheory.models import SampledGCN
from graphtheory.models.sampled_gcn import NUM_LAYERS, aggregate_rows, three_layers
from graphtheory.papers.topology.data import SampledTask
from graphtheory.patterns import DegreeGroups, FastGCN
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
    the sample A^s, which is drawn again in every step. All tasks have the same numbers of features,
    outputs and labeled nodes.

    Source:
        Li (2024), eq. (5.4), section 5.4 and algorithm 2; the initial values of section 5.3.3.
        Differs from algorithm 2: none of the perturbations and penalties of eq. (5.11), which the
        analysis needs and the experiments do not have.
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
        learned = [value for network in self.model.networks for value in network.parameters()]
        self.optimizer = kind(learned, lr=reading.step_size, fused=True)
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
