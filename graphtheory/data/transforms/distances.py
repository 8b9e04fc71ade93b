"""All distances of a graph in one attribute, which batches as complete graphs need it."""

from __future__ import annotations

from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from graphtheory.data.transforms.of_graph import graph_of
from graphtheory.structure import shortest_path_distance


@functional_transform("add_distances")
class AddDistances(BaseTransform):
    """Stores the table of all shortest-path distances (functional name: `add_distances`).

    `distance` is `shortest_path_distance(graph)` row by row: entry receiver * n + sender holds the
    hops from sender to receiver, 255 where there is no path. In a batch of graphs the tables
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
