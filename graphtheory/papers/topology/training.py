"""Tasks on graphs of degree groups, and networks that learn on samples of them, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch_geometric.utils import coalesce, remove_self_loops, to_undirected

from graphtheory import patterns
from graphtheory.graph import Neighborhood, union
from graphtheory.models import SampledGCN
from graphtheory.models.sampled_gcn import NUM_LAYERS, aggregate_rows, three_layers
from graphtheory.patterns import DegreeGroups, FastGCN
from graphtheory.patterns.draw import generator_of, scale_columns

Pair = tuple[float, float]
GROUPS, FASTGCN = "degree groups", "FastGCN"
SAMPLERS = (GROUPS, FASTGCN)
_DIM, _HIDDEN, _OUTPUTS = 10, 10, 2  # d, p, K
_SHARE = 0.9  # S_l / N_l, and S / N of FastGCN


class SampledTask(NamedTuple):
    """What one network learns, from samples of its graph."""

    x: Tensor  # features [N, d]
    y: Tensor  # targets [N, K]
    labeled: Tensor  # ids of the labeled nodes [S]
    adjacency: Neighborhood  # A, with weights
    # draws A^s = A P^s; without one A is used
    sampler: patterns.DegreeGroups | patterns.FastGCN | None = None


@dataclass(frozen=True)
class DegreeGroupTask:
    """A random graph of two degree groups, targets on it, and a sampler to learn them with."""

    name: str  # in tables and pictures
    sizes: tuple[int, int]  # N_1, N_2
    degrees: tuple[int, int]  # d_1, d_2
    p_star: Pair  # p* of the sampler; FastGCN has none
    p_hat: Pair  # p^ of the targets
    sampler: str = GROUPS  # one of `SAMPLERS`

    @property
    def learner(self) -> str:
        """The sampler with its p*."""
        return self.sampler if self.sampler == FASTGCN else f"p* = {pair(self.p_star)}"

    def draw(self, labels: int, seed: int) -> tuple[SampledTask, Neighborhood]:
        """The task of one seed, and the A* that predictions use.

        The seed fixes the graph, X, W*, C* and the order in which nodes are labeled, whatever
        else differs: p^ and the sampler are compared on the same draws.
        """
        generator = generator_of(seed)
        edges, group = degree_group_graph(self.sizes, self.degrees, generator)
        nodes = sum(self.sizes)
        graph = Neighborhood.from_edge_index(edges, nodes)
        adjacency = patterns.Compose(patterns.AddSelf(), patterns.SymmetricNormalize())(graph)

        def groups(p: Pair) -> patterns.DegreeGroups:
            return patterns.DegreeGroups(share=_SHARE, p_star=p, assignment=group)

        x, w, c = (
            torch.randn(shape, generator=generator)
            for shape in ((nodes, _DIM), (_DIM, _HIDDEN), (_HIDDEN, _OUTPUTS))
        )
        labeled = torch.randperm(nodes, generator=generator)[:labels]
        fast = patterns.FastGCN(share=_SHARE, replace=False)
        sampler = groups(self.p_star) if self.sampler == GROUPS else fast
        y = targets(patterns.Effective(groups(self.p_hat))(adjacency), x, w, c)
        star = patterns.Effective(sampler)(adjacency)
        return SampledTask(x, y, labeled, adjacency, sampler), star


def pair(p: Sequence[float]) -> str:
    """Two numbers in parentheses, as text."""
    return f"({p[0]:g}, {p[1]:g})"


def targets(adjacency: Neighborhood, x: Tensor, w: Tensor, c: Tensor) -> Tensor:
    """Y = (sin(A^ X W*) * tanh(A^ X W*)) C*, with an elementwise product, eq. (5.20)."""
    hidden = aggregate_rows(x, adjacency) @ w
    return (hidden.sin() * hidden.tanh()) @ c


def degree_group_graph(
    sizes: Sequence[int], degrees: Sequence[int], generator: Generator
) -> tuple[Tensor, Tensor]:
    """A random graph with given degrees, below the number of nodes: the configuration model.

    Each node is an endpoint of as many edges as its group's degree says, matched at random.
    Self-loops and repeated edges are left out, so a node's degree is at most its group's, and
    falls short of it more where degrees are large beside the number of nodes. Of an odd number of
    endpoints one is left over.

    Returns:
        edge_index int64 [2, E], both directions of each edge, and the group of each node, int64
        [N]; the nodes of a group are consecutive.

    Source: Li (2024), section 5.4, which says that edges are random and degrees about d_l.
    """
    if len(sizes) != len(degrees) or not sizes:
        raise ValueError(
            f"degrees: got {len(degrees)} for {len(sizes)} groups, expected one per group"
        )
    nodes = sum(sizes)
    for name, values, least in (("sizes", sizes, 1), ("degrees", degrees, 0)):
        bad = [v for v in values if not isinstance(v, int) or v < least]
        if bad:
            raise ValueError(f"{name}: got {bad[0]!r}, expected a whole number from {least} on")
    if max(degrees) >= nodes:
        raise ValueError(f"degrees: got {max(degrees)}, expected below the {nodes} nodes")
    group = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    ends = torch.arange(nodes).repeat_interleave(torch.tensor(degrees)[group])
    shuffled = ends[torch.randperm(len(ends), generator=generator)]
    pairs = shuffled[: len(ends) // 2 * 2].view(2, -1)
    edges, _ = remove_self_loops(to_undirected(pairs, num_nodes=nodes))
    return coalesce(edges, num_nodes=nodes), group


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
            rows = adjacency.rows(needed[0])
            rows = rows if factor is None else scale_columns(rows, factor)
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

    Source: Li (2024), eq. (5.4), section 5.4 and algorithm 2; the initial values of section 5.3.3.
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
        """Take all steps of training of each network."""
        for _ in range(self.options.steps):
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
