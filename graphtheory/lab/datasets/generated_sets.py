"""Sets of graphs that need no files: infections, transfer along a ring, trees, skip links."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import networkx as nx
import torch
from torch import Generator, Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import InfectionDataset
from torch_geometric.datasets.graph_generator import ERGraph
from torch_geometric.utils import to_undirected

from graphtheory.lab.datasets.graph_store import packed, with_categories

CSL_NODES, CSL_SKIPS, CSL_COPIES = 41, (2, 3, 4, 5, 6, 9, 11, 12, 13, 16), 15
_SEED = 0  # of the graphs, which are the same for every split


def infection(graphs: int = 100) -> dict[str, Tensor]:
    """Random graphs with infected nodes; a node's class is its hops to them, 4 for more than 3.

    Args:
        graphs: How many, each of 500 nodes with edges of probability 0.004 and 50 infected.

    Source: PyG's `InfectionDataset` with the numbers of its example; Baldassarre and Azizpour,
        "Explainability techniques for graph convolutional networks", 2019.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)  # PyG draws from the global state
        made = InfectionDataset(ERGraph(500, 0.004), 50, 3, num_graphs=graphs)
    return packed([Data(x=one.x, edge_index=one.edge_index, y=one.y) for one in made])


def ring_transfer(nodes: int = 10, classes: int = 5, graphs: int = 2000) -> dict[str, Tensor]:
    """Rings on which one node, the target, must tell what the node opposite to it holds.

    x of node 0, the source, is one-hot, that of the target zero, that of the others one. Only the
    target has a class, y = -1 for the other nodes.

    Args:
        nodes: Nodes of the ring; the target is nodes // 2 hops away.
        classes: How many classes.
        graphs: How many rings.

    Source: Di Giovanni et al., "On over-squashing in message passing neural networks", ICML 2023,
        the task RingTransfer.
    """
    ring = to_undirected(torch.stack([torch.arange(nodes), (torch.arange(nodes) + 1) % nodes]))
    drawn = torch.randint(classes, (graphs,), generator=Generator().manual_seed(_SEED))
    made = []
    for label in drawn.tolist():
        x = torch.ones(nodes, classes)
        x[0] = torch.eye(classes)[label]
        x[nodes // 2] = 0
        y = torch.full((nodes,), -1)
        y[nodes // 2] = label
        made.append(Data(x=x, edge_index=ring.clone(), y=y))
    return packed(made)


def neighbors_match(depth: int, graphs: int = 6000) -> dict[str, Tensor]:
    """Binary trees whose root must find the leaf of its own key and tell that leaf's value.

    x has two categories: a key of the root and of the leaves, a value of the leaves, 0 where there
    is none. Only the root, node 0, has a class, y = -1 for the other nodes.

    Args:
        depth: Hops from the root to the leaves; 2^depth leaves, keys and values.
        graphs: How many trees.

    Source: Alon and Yahav, "On the bottleneck of graph neural networks", ICLR 2021, section 4.1;
        edges run both ways here.
    """
    leaves, generator = 2**depth, Generator().manual_seed(_SEED)
    nodes = 2 * leaves - 1
    child = torch.arange(1, nodes)
    tree = to_undirected(torch.stack([child, (child - 1) // 2]))
    made = []
    for _ in range(graphs):
        keys, values = (torch.randperm(leaves, generator=generator) + 1 for _ in range(2))
        asked = int(torch.randint(leaves, (1,), generator=generator))
        x = torch.zeros(nodes, 2, dtype=torch.int64)
        x[leaves - 1 :] = torch.stack([keys, values], dim=1)
        x[0, 0] = keys[asked]
        y = torch.full((nodes,), -1)
        y[0] = values[asked] - 1
        made.append(Data(x=x, edge_index=tree.clone(), y=y))
    return packed(made) | with_categories(x=(leaves + 1, leaves + 1))


def csl() -> dict[str, Tensor]:
    """Rings of 41 nodes with skip links, 15 renumbered copies of each of 10 lengths of skip.

    All nodes have four neighbors and the same features, so that no message passing on neighbors
    alone tells the classes apart.

    Source: Murphy et al., "Relational pooling for graph representations", ICML 2019.
    """
    generator = Generator().manual_seed(_SEED)
    made = []
    for label, skip in enumerate(CSL_SKIPS):
        for _ in range(CSL_COPIES):
            order = torch.randperm(CSL_NODES, generator=generator)
            edges = torch.tensor(list(nx.circulant_graph(CSL_NODES, [1, skip]).edges)).t()
            index = to_undirected(order[edges], num_nodes=CSL_NODES)
            x, y = torch.ones(CSL_NODES, 1), torch.tensor([label])
            made.append(Data(x=x, edge_index=index, y=y))
    return packed(made)


MAKERS: dict[str, Callable[[], dict[str, Tensor]]] = {
    "infection": infection,
    "ring-transfer": ring_transfer,
    **{f"neighbors-match-{depth}": partial(neighbors_match, depth) for depth in (2, 3, 4, 5)},
    "csl": csl,
}
"""What makes each generated set, by its name in the catalogue."""
