"""PyG transforms: distances and paths of all pairs, degrees, distances to the centroid.

Each reads the graph of `Data` of one node type, without weights; other data raise TypeError. PyG's
are `AddLaplacianEigenvectorPE`, which reads weights, and `AddRandomWalkPE`, which is wrong there.
`lab.datasets.graph_sets.with_transforms` applies any of them once to a whole set of graphs.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform
from torch_geometric.transforms.add_positional_encoding import add_node_attr

from graphtheory.graph import Neighborhood, neighborhood_from
from graphtheory.graph.memory import require_memory
from graphtheory.structure import (
    centroid_distance,
    degree_encoding,
    hop_ball,
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
    "AddShortestPathDistance",
    "pair_neighborhood",
]

SPD = ("spd_index", "spd_distance", "spd_node_index", "spd_num_pairs")
_BYTES_A_PAIR = 17  # two int64 ids and one uint8


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
    a few hundred nodes; for larger ones, `AddShortestPathDistance` with a radius.

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

    Args:
        width: Ohms of a bucket, where each edge is a resistor of 1 ohm, whatever its weight.

    Shapes:
        resistance uint8 [n * n]; 255 for pairs without a path.

    Raises:
        ValueError: If the width is not above 0.

    Source: Zhang et al. (2023), Graphormer-GD.

    Example:
        >>> pair = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> AddResistance()(pair).resistance.tolist()
        [0, 2, 2, 0]
    """

    width: float = 0.5

    def forward(self, data: Data) -> Data:
        ohms = resistance_distance(_graph_of(data))
        data.resistance = resistance_bucket(ohms, self.width).flatten()
        return data


@functional_transform("add_degree_encoding")
@dataclass(eq=False, repr=False)
class AddDegreeEncoding(BaseTransform):
    """Stores log(1 + number of edges) of every node (functional name: `add_degree_encoding`).

    Args:
        attr_name: Attribute to store float32 [N, 1] in; None joins it to `data.x`.
        direction: "in" counts the nodes that a node aggregates from, "out" those that
            aggregate from it.
        log: Take log(1 + degree); otherwise the degree itself.

    Raises:
        ValueError: An unknown direction.

    Example:
        >>> star = Data(edge_index=torch.tensor([[1, 2], [0, 0]]), num_nodes=3)
        >>> AddDegreeEncoding(log=False)(star).degree_encoding.tolist()
        [[2.0], [0.0], [0.0]]
    """

    attr_name: str | None = "degree_encoding"
    _: KW_ONLY
    direction: Literal["in", "out"] = "in"
    log: bool = True

    def forward(self, data: Data) -> Data:
        value = degree_encoding(_graph_of(data), direction=self.direction, log=self.log)
        return add_node_attr(data, value, self.attr_name)


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


@functional_transform("add_shortest_path_distance")
@dataclass(eq=False, repr=False)
class AddShortestPathDistance(BaseTransform):
    r"""Stores which nodes lie how many hops apart (functional name: `add_shortest_path_distance`).

    ==================  =========  ==============================================================
    attribute           shape      content
    ==================  =========  ==============================================================
    `spd_index`         [2, P]     pairs, the source in row 0 and the target in row 1; every
                                   node with itself included
    `spd_distance`      uint8 [P]  hops from source to target, whatever the weights
    `spd_node_index`    [N]        0..N-1, so that sampled nodes remember who they were
    `spd_num_pairs`     int        P
    ==================  =========  ==============================================================

    Read them with `pair_neighborhood`, which is right, or refuses, wherever the data has been.
    `DataLoader` shifts `spd_index` itself, so there the attributes may also be used directly.
    `NeighborLoader` and other samplers leave `spd_index` with ids of the whole graph:
    `pair_neighborhood` translates them. Distances are then those of the whole graph; as
    ``NeighborLoader(transform=AddShortestPathDistance(...))`` they are those of the sampled graph,
    and the pairs of the whole graph need not travel with every batch.

    Args:
        radius: Hops, 0..254; keep pairs at most so far apart. None keeps all N^2 pairs.
        cutoff: Hops, 1..254, with ``radius=None``: larger distances become `cutoff`, pairs without
            a path 255.

    Raises:
        TypeError: A radius is no integer.
        ValueError: A radius or cutoff out of range, or data without edges.
        MemoryError: All pairs do not fit into the available memory.

    Source: the distances of equation (3.2).

    Example:
        >>> path = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> path = AddShortestPathDistance(radius=1)(path)
        >>> path.spd_index.tolist(), path.spd_distance.tolist()
        ([[0, 0, 1, 1, 2], [0, 1, 1, 2, 2]], [0, 1, 0, 1, 0])
    """

    radius: int | None = None
    _: KW_ONLY
    cutoff: int = 20

    def forward(self, data: Data) -> Data:
        graph = _graph_of(data)
        data.spd_index, data.spd_distance = self._pairs(graph)
        data.spd_node_index = torch.arange(graph.num_dst, device=graph.device)
        data.spd_num_pairs = data.spd_index.size(1)
        return data

    def _pairs(self, graph: Neighborhood) -> tuple[Tensor, Tensor]:
        if self.radius is not None:
            ball, distance = hop_ball(graph, self.radius)
            return ball.edge_index(), distance
        nodes = graph.num_dst
        what = f"AddShortestPathDistance: all pairs of {nodes} nodes"
        require_memory(what, _BYTES_A_PAIR * nodes**2, "give a radius")
        table = shortest_path_distance(graph, cutoff=self.cutoff)
        everyone = torch.arange(nodes, device=graph.device)
        sources, targets = everyone.repeat(nodes), everyone.repeat_interleave(nodes)
        return torch.stack([sources, targets]), table.flatten()

    def __repr__(self) -> str:
        reach = f"cutoff={self.cutoff}" if self.radius is None else f"radius={self.radius}"
        return f"{type(self).__name__}({reach})"


def pair_neighborhood(data: Data) -> Neighborhood:
    """The pairs of `AddShortestPathDistance` as a neighborhood with distances.

    After batching: the pairs of every graph. After sampling nodes, by a loader or by
    `Data.subgraph`: the pairs of which both nodes were sampled, under their new numbers, at their
    distance in the whole graph.

    Args:
        data: Data or batch with the attributes of `AddShortestPathDistance`.

    Returns:
        Neighborhood with `.distance`, over the nodes of `data`.

    Raises:
        ValueError: The attributes are missing, were torn apart by a loader, or a node occurs twice.

    Example:
        >>> path = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> path = AddShortestPathDistance(radius=2)(path)
        >>> pair_neighborhood(path.subgraph(torch.tensor([0, 2]))).distance.tolist()
        [0, 2, 0]
    """
    index, distance, nodes = _apart(data, *_stored(data))
    size = int(torch.cat([index.flatten(), nodes]).max()) + 1 if len(nodes) else 0
    position = torch.arange(len(nodes), device=nodes.device)
    local = nodes.new_full((size,), -1)
    local[nodes] = position
    if not torch.equal(local[nodes], position):
        raise ValueError(
            "spd_node_index: a node occurs twice, as in disjoint sampling, so its pairs are "
            "ambiguous; compute them on the sampled graphs: "
            "transform=AddShortestPathDistance(...) on the loader"
        )
    here = local[index]  # [2, P], -1 for a node that was not sampled
    kept = (here >= 0).all(dim=0)
    pairs = Neighborhood.from_edge_index(here[:, kept], num_nodes=len(nodes))
    return pairs.replace(distance=distance[kept][pairs.perm])


def _apart(
    data: Data, index: Tensor, distance: Tensor, nodes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Ids of a batch's graphs out of each other's reach: subgraphs have ids above their size."""
    pairs = torch.as_tensor(data.spd_num_pairs)
    if pairs.numel() == 1:
        return index, distance, nodes
    reach = int(torch.cat([index.flatten(), nodes]).max()) + 1
    graphs = torch.arange(pairs.numel(), device=nodes.device)
    of_pair = graphs.repeat_interleave(pairs.flatten().to(nodes.device))
    return index + reach * of_pair, distance, nodes + reach * data.batch


def _stored(data: Data) -> tuple[Tensor, Tensor, Tensor]:
    missing = [name for name in SPD if name not in data]
    if missing:
        raise ValueError(f"data: no attribute {missing[0]}, apply AddShortestPathDistance first")
    index, distance, nodes = data.spd_index, data.spd_distance, data.spd_node_index
    pairs = int(torch.as_tensor(data.spd_num_pairs).sum())
    if index.size(1) != pairs or len(distance) != pairs:
        raise ValueError(
            f"spd_index: {index.size(1)} pairs and {len(distance)} distances are left of {pairs}: "
            "the loader took them for attributes of its nodes or edges, which are equally many; "
            "use another radius, or transform=AddShortestPathDistance(...) on the loader"
        )
    if len(nodes) != data.num_nodes:
        raise ValueError(
            f"spd_node_index: {len(nodes)} entries for {data.num_nodes} nodes, expected one each; "
            "the nodes changed without it, so apply AddShortestPathDistance after that"
        )
    return index, distance, nodes
