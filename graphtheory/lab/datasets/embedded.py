"""Graphs and sets of graphs that need no files: digits, the karate club, and synthetic ones."""

from collections.abc import Callable, Iterator
from functools import partial

import networkx as nx
import torch
from torch import Generator, Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import InfectionDataset
from torch_geometric.datasets.graph_generator import ERGraph
from torch_geometric.utils import to_undirected

from graphtheory.lab.datasets.core_graphs import (
    CoreNeighborhoodGraph,
    MajorityAtDistance,
    PowerLawGraph,
)
from graphtheory.lab.datasets.graph_sets import Stored, packed

_NEIGHBORS = 8
_SKIPS = (2, 3, 4, 5, 6, 9, 11, 12, 13, 16)  # of the classes of csl
_COPIES, _CSL_NODES = 15, 41
_SEED = 0  # of the sets of graphs, which are the same for every split


def digits() -> Data:
    """scikit-learn's 1,797 images of digits, each linked to its 8 nearest, in both directions."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images, y = torch.from_numpy(pixels), torch.from_numpy(labels).long()
    square = images.square().sum(1)
    distance = (square[:, None] + square - 2 * images @ images.t()).long()  # squared, [N, N]
    rank = distance * len(y) + torch.arange(len(y))  # no two alike in a row
    rank.fill_diagonal_(torch.iinfo(torch.int64).max)
    nearest = rank.topk(_NEIGHBORS, largest=False).indices  # [N, 8]
    pairs = torch.stack([torch.arange(len(y)).repeat_interleave(_NEIGHBORS), nearest.flatten()])
    return Data(x=(images / 16).float(), edge_index=to_undirected(pairs, num_nodes=len(y)), y=y)


def karate() -> Data:
    """Zachary's karate club, x one-hot; y is 0 for the instructor's club, 1 for the officer's."""
    graph = nx.karate_club_graph()
    y = torch.tensor([int(graph.nodes[node]["club"] == "Officer") for node in graph])
    edges = to_undirected(torch.tensor(list(graph.edges)).t(), num_nodes=len(y))
    return Data(x=torch.eye(len(y)), edge_index=edges, y=y)


def core_distance(generator: Generator) -> Data:
    """The graph of `digits` with labels that the nodes at two hops decide, of six patterns."""
    graph = digits()
    return MajorityAtDistance(z=2).sample(graph.edge_index, len(graph.y), generator)


def infection() -> Stored:
    """100 random graphs with 50 of 500 nodes infected; a class is the hops to them, at most 4."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)  # PyG draws from the global state
        made = InfectionDataset(ERGraph(500, 0.004), 50, 3, num_graphs=100)
    return packed([Data(x=one.x, edge_index=one.edge_index, y=one.y) for one in made])


def ring_transfer() -> Stored:
    """Rings on which the target must tell the class of the node opposite: Di Giovanni, ICML 2023.

    x of node 0, the source, is one-hot, that of the target zero, that of the others one.
    """
    nodes, classes, graphs = 10, 5, 2000
    ring = to_undirected(torch.stack([torch.arange(nodes), (torch.arange(nodes) + 1) % nodes]))
    drawn = torch.randint(classes, (graphs,), generator=Generator().manual_seed(_SEED))
    made = []
    for label in drawn.tolist():
        x = torch.ones(nodes, classes)
        x[0], x[nodes // 2] = torch.eye(classes)[label], 0
        made.append(_with_one_label(x, ring, nodes // 2, label))
    return packed(made)


def _with_one_label(x: Tensor, edge_index: Tensor, node: int, label: int) -> Data:
    y = torch.full((len(x),), -1)
    y[node] = label
    return Data(x=x, edge_index=edge_index, y=y)


def neighbors_match(depth: int, graphs: int = 6000) -> Stored:
    """Binary trees whose root must find the leaf of its own key and tell that leaf's value.

    x has two categories, a key and a value, 0 where there is none: Alon and Yahav, ICLR 2021, 4.1.
    """
    leaves, generator = 2**depth, Generator().manual_seed(_SEED)
    child = torch.arange(1, 2 * leaves - 1)
    tree = to_undirected(torch.stack([child, (child - 1) // 2]))
    made = []
    for _ in range(graphs):
        keys, values = (torch.randperm(leaves, generator=generator) + 1 for _ in range(2))
        wanted = int(torch.randint(leaves, (1,), generator=generator))
        x = torch.zeros(2 * leaves - 1, 2, dtype=torch.int64)
        x[leaves - 1 :] = torch.stack([keys, values], dim=1)
        x[0, 0] = keys[wanted]
        made.append(_with_one_label(x, tree, 0, int(values[wanted]) - 1))
    return packed(made, categories={"x": [leaves + 1, leaves + 1]})


def skip_rings(copies: int = _COPIES) -> Iterator[Data]:
    """The graphs of CSL, rings with skip links: renumbered copies of each of 10 lengths of skip."""
    generator = Generator().manual_seed(_SEED)
    for label, skip in enumerate(_SKIPS):
        edges = torch.tensor(list(nx.circulant_graph(_CSL_NODES, [1, skip]).edges)).t()
        for copy in range(_COPIES):
            order = torch.randperm(_CSL_NODES, generator=generator)
            if copy < copies:
                index = to_undirected(order[edges], num_nodes=_CSL_NODES)
                x, y = torch.ones(_CSL_NODES, 1), torch.tensor([label])
                yield Data(x=x, edge_index=index, y=y)


# What makes each embedded graph and each set of graphs, by its name in the catalogue.
GRAPHS: dict[str, Callable[[Generator], Data]] = {
    "digits": lambda _: digits(),
    "karate": lambda _: karate(),
    "core-neighborhood": lambda generator: CoreNeighborhoodGraph().sample(generator),
    "core-distance": core_distance,
    "power-law": lambda generator: PowerLawGraph().sample(generator),
}
SETS: dict[str, Callable[[], Stored]] = {
    "infection": infection,
    "ring-transfer": ring_transfer,
    **{f"neighbors-match-{depth}": partial(neighbors_match, depth) for depth in (2, 3, 4, 5)},
    "csl": lambda: packed(list(skip_rings())),
}
