"""A task on a graph of degree groups: features, targets, labels, and a sampler to learn them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch_geometric.utils import coalesce, remove_self_loops, to_undirected

from graphtheory import patterns
from graphtheory.graph import Neighborhood
from graphtheory.models.sampled_gcn import aggregate_rows
from graphtheory.patterns.draw import derive

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
        generator = Generator().manual_seed(derive(seed))
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
