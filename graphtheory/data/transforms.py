"""PyG transforms: distances and paths of all pairs, degrees, distances to the centroid.

Each reads the graph of `Data` of one node type, without weights; other data raise TypeError. PyG's
are `AddLaplacianEigenvectorPE`, which reads weights, and `AddRandomWalkPE`, which is wrong there.
`lab.datasets.graph_sets.with_transforms` applies any of them once to a whole set of graphs.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any

from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform
from torch_geometric.transforms.add_positional_encoding import add_node_attr

from graphtheory.graph import Neighborhood, neighborhood_from
from graphtheory.structure import (
    centroid_distance,
    degree_encoding,
    resistance_bucket,
    resistance_distance,
    shortest_path_distance,
    shortest_path_edges,
)

__all__ = [
    "AddCentroidDistance",
    "AddDegreeEncoding",
    "AddDistances",
    "AddPaths",
    "AddResistance",
]


def _graph_of(data: Any) -> Neighborhood:
    if not isinstance(data, Data):
        raise TypeError(f"data: got {type(data).__name__}, expected Data of one node type")
    return neighborhood_from(data)


@functional_transform("add_distances")
@dataclass(eq=False)
class AddDistances(BaseTransform):
    """Stores the table of all shortest-path distances (functional name: `add_distances`).

    `distance` is `shortest_path_distance(graph)` row by row: entry target * n + source holds the
    hops from source to target, whatever the weights, 255 where there is no path. In a batch the
    tables follow each other in the order of the edges of `cliques`. One byte a pair: for graphs of
    a few hundred nodes; for larger ones `patterns.KHop`, whose result carries its distances.

    Args:
        cutoff: Hops, 1..254; larger distances become `cutoff`.

    Shapes:
        distance uint8 [n * n].

    Raises:
        TypeError: If the cutoff is no whole number.
        ValueError: If the cutoff is out of range.
        MemoryError: All pairs do not fit into the available memory.

    Source: the distances of equation (3.2).

    Example:
        >>> import torch
        >>> path = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> AddDistances()(path).distance.tolist()
        [0, 255, 255, 1, 0, 255, 2, 1, 0]
    """

    cutoff: int = 20

    def forward(self, data: Data) -> Data:
        data.distance = shortest_path_distance(_graph_of(data), cutoff=self.cutoff).flatten()
        return data


@functional_transform("add_paths")
@dataclass(eq=False)
class AddPaths(BaseTransform):
    """Stores the edges along a shortest path of every pair (functional name: `add_paths`).

    What `nn.PathEncoding` reads, in the order of pairs of `AddDistances`. Weights are ignored.

    Args:
        steps: How many edges of a path are kept, from the target on, 1 or more.

    Shapes:
        paths, integers [n * n, steps]: columns of the graph's own edge_index, -1 for none.

    Raises:
        ValueError: If there is no step.

    Source: Ying et al. (2021), eq. (7).

    Example:
        >>> import torch
        >>> path = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> AddPaths(steps=2)(path).paths[6].tolist()  # from node 0 to node 2
        [1, 0]
    """

    steps: int = 5

    def forward(self, data: Data) -> Data:
        data.paths = shortest_path_edges(_graph_of(data), self.steps).flatten(0, 1)
        return data


@functional_transform("add_resistance")
@dataclass(eq=False)
class AddResistance(BaseTransform):
    """Stores buckets of the resistance distance of every pair (functional name: `add_resistance`).

    What a `nn.BucketBias` reads, in the order of pairs of `AddDistances`.

    A bucket is half an ohm wide, where each edge is a resistor of 1 ohm, whatever its weight.

    Shapes:
        resistance uint8 [n * n]; 255 for pairs without a path.

    Source: Zhang et al. (2023), Graphormer-GD.

    Example:
        >>> import torch
        >>> pair = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> AddResistance()(pair).resistance.tolist()
        [0, 2, 2, 0]
    """

    def forward(self, data: Data) -> Data:
        data.resistance = resistance_bucket(resistance_distance(_graph_of(data))).flatten()
        return data


@functional_transform("add_degree_encoding")
@dataclass(eq=False, repr=False)
class AddDegreeEncoding(BaseTransform):
    """Stores log(1 + number of edges) of every node (functional name: `add_degree_encoding`).

    Args:
        attr_name: Attribute to store float32 [N, 1] in; None joins it to `data.x`.

    Example:
        >>> import torch
        >>> star = Data(edge_index=torch.tensor([[1, 2], [0, 0]]), num_nodes=3)
        >>> AddDegreeEncoding()(star).degree_encoding.expm1().round().tolist()
        [[2.0], [0.0], [0.0]]
    """

    attr_name: str | None = "degree_encoding"

    def forward(self, data: Data) -> Data:
        return add_node_attr(data, degree_encoding(_graph_of(data)), self.attr_name)


@functional_transform("add_centroid_distance")
@dataclass(eq=False, repr=False)
class AddCentroidDistance(BaseTransform):
    """Stores every node's hops to the centroid (functional name: `add_centroid_distance`).

    Args:
        attr_name: Attribute to store float32 [N, 1] in; None joins it to `data.x`.
        cutoff: Hops, whatever the weights, 1..254; larger distances become `cutoff`.

    Raises:
        ValueError: A cutoff out of range.

    Example:
        >>> import torch
        >>> path = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> AddCentroidDistance()(path).centroid_distance.tolist()
        [[1.0], [0.0], [1.0]]
    """

    attr_name: str | None = "centroid_distance"
    _: KW_ONLY
    cutoff: int = 20

    def forward(self, data: Data) -> Data:
        hops = centroid_distance(_graph_of(data), cutoff=self.cutoff)
        return add_node_attr(data, hops.float()[:, None], self.attr_name)
