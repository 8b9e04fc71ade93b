"""Node labels that only the nodes at one distance decide, on any graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch_geometric.data import Data

from graphtheory.graph import Neighborhood
from graphtheory.structure import count_by_distance


@dataclass(frozen=True)
class MajorityAtDistance:
    r"""Every node carries a noisy pattern; its label is the commonest one among nodes z hops away.

    .. math::
        x_n \sim N(e_{p_n}, \sigma^2 I), \qquad
        y_n = \arg\max_j |\{ s : \mathrm{hops}(s \to n) = z,\ p_s = j \}|

    with p_n drawn uniformly from the M patterns. A node's own pattern, and those at every other
    distance, say nothing about its label. The label is -1 where two patterns are equally common,
    and where no node lies at distance z; such nodes are in no split.

    Args:
        z: Distance, hops, 1..253.
        num_patterns: Patterns and classes, M, 2 or more.
        noise: Standard deviation of the feature noise.

    Raises:
        ValueError: If an argument is out of its range.

    Source:
        Ours, for the core distance of Li (2024), section 3.4.2: the distance whose nodes decide.

    Example:
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> data = MajorityAtDistance(z=2).sample(path, 3, Generator().manual_seed(0))
        >>> bool(data.y[0] == data.pattern[2]), data.y[1].item(), data.empty.tolist()
        (True, -1, [False, True, False])
    """

    z: int = 2
    num_patterns: int = 6
    noise: float = 0.1

    def __post_init__(self) -> None:
        for name, least in (("z", 1), ("num_patterns", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(
                    f"{name}: got {value!r}, expected a whole number, at least {least}"
                )
        if self.z > 253:
            raise ValueError(f"z: got {self.z}, expected 1..253 hops")
        if not 0 <= self.noise < float("inf"):
            raise ValueError(f"noise: got {self.noise!r}, expected 0 or more")

    def sample(self, edge_index: Tensor, num_nodes: int, generator: Generator) -> Data:
        """Draw patterns and noise on a graph; the same generator state gives the same data.

        Args:
            edge_index: The graph, which stays as it is; a path follows edges in their direction.
            num_nodes: Nodes, N.
            generator: Source of randomness.

        Shapes:
            edge_index [2, E]; x [N, M]; y [N] in -1..M-1; pattern [N] in 0..M-1; tie and empty [N]
            bool, why a node has no label.
        """
        pattern = torch.randint(self.num_patterns, (num_nodes,), generator=generator)
        noise = torch.randn(num_nodes, self.num_patterns, generator=generator)
        graph = Neighborhood.from_edge_index(edge_index, num_nodes)
        counts = count_by_distance(graph, pattern, self.num_patterns, max_distance=self.z)
        votes = counts.pattern[:, self.z]  # [N, M]
        most, y = votes.max(1)
        empty = most == 0
        tie = ((votes == most[:, None]).sum(1) > 1) & ~empty
        return Data(
            x=torch.nn.functional.one_hot(pattern, self.num_patterns) + self.noise * noise,
            edge_index=edge_index,
            y=y.masked_fill(tie | empty, -1),
            pattern=pattern,
            tie=tie,
            empty=empty,
        )
