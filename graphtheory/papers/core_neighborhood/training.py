"""The network of chapter 3 on its synthetic graph: many trials drawn, trained, tested at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood, union
from graphtheory.lab.datasets.embedded import CoreNeighborhoodGraph
from graphtheory.lab.metrics import mass_on
from graphtheory.papers.hinge import Algorithm4, HingeTask, Outcome, train_hinge
from graphtheory.papers.shallow import ROOT, ShallowAttention, Watch, begun
from graphtheory.patterns import AddSelf, Compose, Pattern, Sample
from graphtheory.patterns.draw import generator_of
from graphtheory.structure import shortest_path_distance

GT, GCN = "GT", "GCN"
CORE = 1  # z_m of this graph, both variants


@dataclass(frozen=True)
class Learner:
    """A network and how it is trained, in the letters of section 3.5.1."""

    # "GT" attends to itself and the nodes at one and two hops, in training to 60 of these; "GCN"
    # has W_K = W_Q = 0 and b = 0 and takes the mean of the core neighborhood, in training of 60
    # nodes of it
    network: str = GT
    scale: str = ROOT  # size of the entries of `a`: "1/sqrt(m)", as printed, or "1/m"
    step_size: float = 0.1  # eta
    steps: int = 1000  # T
    batch_size: int = 40  # B
    width: int = 400  # m
    embedding: int = 20  # m_a = m_b
    buckets: int = 3  # Z
    sigma: float = 0.1  # error of the values at the start
    delta: float = 0.2  # error of keys and queries at the start
    xi: float = 0.01  # spread of W_O at the start
    samples: int = 60  # nodes of S^{n,t} besides n

    @property
    def name(self) -> str:
        """The name in tables and pictures."""
        return f"{self.network}, a = {self.scale}"


class Graph(NamedTuple):
    """The graph of one trial, with its labels."""

    x: Tensor  # features [N, d]
    y: Tensor  # labels +1 or -1 [N]
    pattern: Tensor  # 0 for mu_1, 1 for mu_2, higher otherwise [N]
    mu: Tensor  # patterns [M, d]
    labeled: Tensor  # ids [L]
    ball: Neighborhood  # T^n of the GT, all nodes within two hops

    def neighbors(self, network: str) -> Neighborhood:
        """The neighborhood T^n of every node."""
        if network == GT:
            return self.ball
        assert self.ball.distance is not None
        return self.ball.keep(self.ball.distance == CORE)

    def candidates(self, network: str) -> Neighborhood:
        """T^n without n, of the labeled nodes alone."""
        mine = self.labeled.sort().values
        rows = self.ball.rows(mine)
        assert rows.distance is not None
        rows = rows.keep(rows.distance == CORE if network == GCN else rows.distance > 0)
        degree = rows.indptr.new_zeros(len(self.y) + 1).index_copy(0, mine + 1, rows.degree())
        return Neighborhood(
            degree.cumsum(0), rows.indices, len(self.y), distance=rows.distance, validate=False
        )

    def rest(self) -> Tensor:
        """Bool [N], the nodes that are not labeled."""
        return torch.ones(len(self.y), dtype=torch.bool).index_fill(0, self.labeled, False)


def capped(graph: CoreNeighborhoodGraph, degree: int = 120) -> CoreNeighborhoodGraph:
    """The same of that degree, or of the largest that its pattern sizes can give.

    120 links ask for gamma_d of at least 0.24 (1 - eps_S).
    """
    return replace(graph, degree=min(degree, replace(graph, degree=0).max_degree))


def draw(graph: CoreNeighborhoodGraph, labels: int, seed: int) -> Graph:
    """The trial of one seed; its graph does not depend on the number of labels."""
    generator = generator_of(seed)
    data = graph.sample(generator)
    order = torch.randperm(graph.num_nodes, generator=generator)
    edges = Neighborhood.from_edge_index(data.edge_index, graph.num_nodes)
    y = 2.0 * data.y - 1
    return Graph(data.x, y, data.pattern, data.mu, order[:labels], _ball(edges))


def _ball(graph: Neighborhood) -> Neighborhood:
    """`hop_ball` of two hops; the table of all pairs is faster here, where most are that near."""
    hops = shortest_path_distance(graph, cutoff=3)
    near = (hops <= 2).numpy()
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.from_numpy(near.sum(1)).cumsum(0)])
    sources, distance = torch.from_numpy(near.nonzero()[1]), torch.from_numpy(hops.numpy()[near])
    return Neighborhood(indptr, sources, graph.num_src, distance=distance, validate=False)


def run(
    learner: Learner, graphs: Sequence[Graph], seed: int, watch: Watch = lambda step, model: False
) -> tuple[ShallowAttention, int]:
    """Train one network on each graph, all with as many labels; also how many steps that took."""
    generator = generator_of(seed, len(graphs))
    mu = torch.stack([g.mu for g in graphs])
    model = begun(learner, mu, generator, buckets=learner.buckets if learner.network == GT else 0)
    pattern: Pattern = Compose(Sample(learner.samples), AddSelf())
    trained = list(model.parameters())
    if learner.network == GCN:
        pattern, trained = Sample(learner.samples), [model.W_O, model.W_V]
        model.without_attention()
    sizes = torch.tensor([0, *(len(g.y) for g in graphs)]).cumsum(0)[:-1]
    task = HingeTask(
        torch.cat([g.x for g in graphs]),
        torch.cat([g.y for g in graphs]),
        torch.stack([g.labeled for g in graphs]) + sizes[:, None],
        union([g.candidates(learner.network) for g in graphs]),
    )
    steps = train_hinge(
        model, task, trained,
        Algorithm4(learner.step_size, learner.steps, learner.batch_size, pattern, quiet=100),
        generator, watch=lambda step: watch(step, model),
    )  # fmt: skip
    return model, steps


@torch.no_grad()
def evaluate(model: ShallowAttention, graphs: Sequence[Graph], network: str) -> list[Outcome]:
    """Of each trial's network on its unlabeled nodes, each with all of its T^n."""
    outputs = (model.trial(i)(g.x, g.neighbors(network))[0] for i, g in enumerate(graphs))
    return [Outcome.of((g.y * out)[g.rest()]) for g, out in zip(graphs, outputs, strict=True)]


@torch.no_grad()
def relevant_mass(model: ShallowAttention, graphs: Sequence[Graph]) -> list[dict[str, float]]:
    """Attention on class-relevant nodes, left side of (3.11), averaged over labeled nodes.

    Also of the labeled nodes with and without a discriminative pattern alone.
    """
    found = []
    for index, graph in enumerate(graphs):
        rows, ids = graph.ball.rows(graph.labeled), graph.labeled
        weights = model.trial(index).attention(graph.x, rows, ids)
        own = torch.where(graph.y > 0, 0, 1)[ids][rows.targets()]  # D_1 for +1, D_2 for -1
        relevant = graph.pattern[rows.indices] == own
        decisive = graph.pattern[ids] < 2
        masses = {"mass": mass_on(weights, rows, relevant)}
        for name, nodes in (("decisive", decisive), ("other", ~decisive)):
            if bool(nodes.any()):
                masses[name] = mass_on(weights, rows, relevant, nodes)
        found.append(masses)
    return found
