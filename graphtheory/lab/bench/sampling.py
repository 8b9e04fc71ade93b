"""What a training step of a network that learns on samples sees of the graph."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from graphtheory.patterns import LADIES, DegreeGroups, FastGCN, GraphSAGE, Pattern, UniformNodes
from graphtheory.patterns.groups import group_by_degree

SAMPLERS = ("degree-groups", "fastgcn", "ladies", "graphsage", "uniform")
_GROUPS = 5


@dataclass(frozen=True)
class Sampling:
    """The labeled nodes of a step, and how the nodes that they aggregate from are drawn.

    Networks of `zoo.SAMPLED` draw by a sampler for each layer in every step, whose mean is the
    graph's own matrix A. Others see the whole graph, or with a `batch_size` the neighbors that
    PyG's NeighborLoader draws, `fanout` of each node and layer. Evaluation is on the whole graph.

    Args:
        sampler: degree-groups (of up to five groups of similar degree the same share of each),
            fastgcn and ladies (importance sampling of different nodes), graphsage (so many
            neighbors of each node), uniform (nodes).
        share: Of all nodes, those that a layer draws; of graphsage the neighbors that are drawn
            for a node, in units of the average number of neighbors, rounded to 1 or more. In
            (0, 1].
        batch_size: Labeled nodes of a step; None is all of them.
        fanout: Neighbors of a node and layer, of networks without a sampler of their own.

    Raises:
        ValueError: An unknown sampler, or a number out of its range.
    """

    sampler: str = "degree-groups"
    share: float = 0.1
    batch_size: int | None = None
    fanout: int = 10

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise ValueError(
                f"sampler: got {self.sampler!r}, expected one of {', '.join(SAMPLERS)}"
            )
        UniformNodes(share=self.share)  # which checks the share
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size: got {self.batch_size}, expected 1 or more, or None")
        if self.fanout < 1:
            raise ValueError(f"fanout: got {self.fanout}, expected 1 or more")

    def pattern(self, degree: Tensor) -> Pattern:
        """The sampler for a graph whose nodes have these degrees, int64 [N]."""
        if self.sampler == "graphsage":
            return GraphSAGE(max(1, round(self.share * float(degree.double().mean()))))
        if self.sampler == "degree-groups":
            # Groups that no node falls into are left out.
            _, group = group_by_degree(degree, _GROUPS).unique(return_inverse=True)
            return DegreeGroups(share=self.share, assignment=group)
        if self.sampler == "uniform":
            return UniformNodes(share=self.share)
        kind = FastGCN if self.sampler == "fastgcn" else LADIES
        return kind(share=self.share, replace=False)
