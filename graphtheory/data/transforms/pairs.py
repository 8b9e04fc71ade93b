"""Shortest-path distances between nodes that survive PyG's loaders, or refuse."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from graphtheory.data.transforms.of_graph import graph_of
from graphtheory.graph import Neighborhood
from graphtheory.graph.memory import require_memory
from graphtheory.structure import hop_ball, shortest_path_distance

_BYTES_A_PAIR = 17  # two int64 ids and one uint8


@functional_transform("add_shortest_path_distance")
class AddShortestPathDistance(BaseTransform):
    r"""Stores which nodes lie how many hops apart (functional name: `add_shortest_path_distance`).

    ==================  =========  ==============================================================
    attribute           shape      content
    ==================  =========  ==============================================================
    `spd_index`         [2, P]     pairs, the source in row 0 and the target in row 1; every
                                   node with itself included
    `spd_distance`      uint8 [P]  hops from source to target
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
        TypeError: The data is no `Data` of one node type, or a radius is no integer.
        ValueError: A radius or cutoff out of range, or data without edges.
        MemoryError: All pairs do not fit into the available memory.

    Source: the distances of equation (3.2).

    Example:
        >>> path = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        >>> path = AddShortestPathDistance(radius=1)(path)
        >>> path.spd_index.tolist(), path.spd_distance.tolist()
        ([[0, 0, 1, 1, 2], [0, 1, 1, 2, 2]], [0, 1, 0, 1, 0])
    """

    def __init__(self, radius: int | None = None, *, cutoff: int = 20) -> None:
        self.radius = radius
        self.cutoff = cutoff

    def forward(self, data: Data) -> Data:
        """Store the pairs."""
        graph = graph_of(data)
        index, distance = self._pairs(graph)
        data.spd_index = index
        data.spd_distance = distance
        data.spd_node_index = torch.arange(graph.num_dst, device=graph.device)
        data.spd_num_pairs = index.size(1)
        return data

    def _pairs(self, graph: Neighborhood) -> tuple[Tensor, Tensor]:
        if self.radius is not None:
            ball, distance = hop_ball(graph, self.radius)
            return ball.edge_index(), distance
        nodes = graph.num_dst
        require_memory(
            f"AddShortestPathDistance: all pairs of {nodes} nodes",
            _BYTES_A_PAIR * nodes**2,
            "give a radius",
        )
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
    """The ids of each graph of a batch moved out of the others' reach.

    A graph that nodes were taken out of has larger ids than nodes, and batching shifts by nodes.
    """
    pairs = torch.as_tensor(data.spd_num_pairs)
    if pairs.numel() == 1:
        return index, distance, nodes
    reach = int(torch.cat([index.flatten(), nodes]).max()) + 1
    graphs = torch.arange(pairs.numel(), device=nodes.device)
    of_pair = graphs.repeat_interleave(pairs.flatten().to(nodes.device))
    return index + reach * of_pair, distance, nodes + reach * data.batch


def _stored(data: Data) -> tuple[Tensor, Tensor, Tensor]:
    names = ("spd_index", "spd_distance", "spd_node_index", "spd_num_pairs")
    missing = [name for name in names if name not in data]
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
