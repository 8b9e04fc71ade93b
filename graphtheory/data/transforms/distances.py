"""What every pair of nodes of a graph has, in one attribute that batches as `cliques` need it."""

from __future__ import annotations

from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from graphtheory.data.transforms.of_graph import graph_of
from graphtheory.structure import (
    resistance_bucket,
    resistance_distance,
    shortest_path_distance,
    shortest_path_edges,
)


@functional_transform("add_distances")
class AddDistances(BaseTransform):
    """Stores the table of all shortest-path distances (functional name: `add_distances`).

    `distance` is `shortest_path_distance(graph)` row by row: entry target * n + source holds the
    hops from source to target, 255 where there is no path. In a batch of graphs the tables
    follow each other, which is the order of the edges of `cliques` with the graphs' sizes. One
    byte a pair: for graphs of a few hundred nodes; for larger ones, `AddShortestPathDistance` with
    a radius.

    Args:
        cutoff: Hops, 1..254; larger distances become `cutoff`.

    Shapes:
        distance uint8 [n * n].

    Raises:
        TypeError: The data is no `Data` of one node type, or the cutoff is no whole number.
        ValueError: If the cutoff is out of range.
        MemoryError: All pairs do not fit into the available memory.

    Source: the distances of equation (3.2).

    Example:
        >>> import torch
        >>> path = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> AddDistances()(path).distance.tolist()
        [0, 255, 255, 1, 0, 255, 2, 1, 0]
    """

    def __init__(self, cutoff: int = 20) -> None:
        self.cutoff = cutoff

    def forward(self, data: Data) -> Data:
        """Store the table."""
        table = shortest_path_distance(graph_of(data), cutoff=self.cutoff)
        data.distance = table.flatten()
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}(cutoff={self.cutoff})"


@functional_transform("add_paths")
class AddPaths(BaseTransform):
    """Stores the edges along a shortest path of every pair (functional name: `add_paths`).

    What `nn.PathEncoding` reads, in the order of pairs of `AddDistances`.

    Args:
        steps: How many edges of a path are kept, from the target on, 1 or more.

    Shapes:
        paths, integers [n * n, steps]: columns of the graph's own edge_index, -1 for none.

    Raises:
        TypeError: The data is no `Data` of one node type.
        ValueError: If there is no step.

    Source: Ying et al. (2021), eq. (7).

    Example:
        >>> import torch
        >>> path = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> AddPaths(steps=2)(path).paths[6].tolist()  # from node 0 to node 2
        [1, 0]
    """

    def __init__(self, steps: int = 5) -> None:
        self.steps = steps

    def forward(self, data: Data) -> Data:
        """Store the edges."""
        data.paths = shortest_path_edges(graph_of(data), self.steps).flatten(0, 1)
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}(steps={self.steps})"


@functional_transform("add_resistance")
class AddResistance(BaseTransform):
    """Stores buckets of the resistance distance of every pair (functional name: `add_resistance`).

    What a `nn.BucketBias` reads, in the order of pairs of `AddDistances`.

    Args:
        width: Ohms of a bucket, where each edge is a resistor of 1 ohm.

    Shapes:
        resistance uint8 [n * n]; 255 for pairs without a path.

    Raises:
        TypeError: The data is no `Data` of one node type.
        ValueError: If the width is not above 0.

    Source: Zhang et al. (2023), Graphormer-GD.

    Example:
        >>> import torch
        >>> pair = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> AddResistance()(pair).resistance.tolist()
        [0, 2, 2, 0]
    """

    def __init__(self, width: float = 0.5) -> None:
        self.width = width

    def forward(self, data: Data) -> Data:
        """Store the buckets."""
        ohms = resistance_distance(graph_of(data))
        data.resistance = resistance_bucket(ohms, self.width).flatten()
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}(width={self.width})"
