"""Graphs that need no files: digits, the karate club, and synthetic ones."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import torch
from torch import Generator
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from graphtheory.lab.datasets.majority_at_distance import MajorityAtDistance
from graphtheory.lab.datasets.pattern_graph import CoreNeighborhoodGraph
from graphtheory.lab.datasets.power_law import PowerLawGraph

_NEIGHBORS = 8
_PIXEL_MAX = 16.0


def digits() -> Data:
    """scikit-learn's 1,797 images of digits, each linked to its 8 nearest, in both directions.

    x_n is the image, 8 x 8 gray values divided by 16. Distance is Euclidean, exact because the
    gray values are whole numbers; of equally near images the first ones count.

    Shapes:
        x [1797, 64]; y [1797] in 0..9.
    """
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images, y = torch.from_numpy(pixels), torch.from_numpy(labels).long()
    square = images.square().sum(1)
    distance = (square[:, None] + square - 2 * images @ images.t()).long()  # squared, [N, N]
    rank = distance * len(y) + torch.arange(len(y))  # no two alike in a row
    rank.fill_diagonal_(torch.iinfo(torch.int64).max)
    nearest = rank.topk(_NEIGHBORS, largest=False).indices  # [N, 8]
    pairs = torch.stack([torch.arange(len(y)).repeat_interleave(_NEIGHBORS), nearest.flatten()])
    return Data(
        x=(images / _PIXEL_MAX).float(), edge_index=to_undirected(pairs, num_nodes=len(y)), y=y
    )


def karate() -> Data:
    """Zachary's karate club: 34 members, 78 friendships, two clubs after the quarrel.

    Features are one-hot, a member's number; y is 0 for the instructor's club, 1 for the officer's.
    """
    graph = nx.karate_club_graph()
    clubs = [graph.nodes[node]["club"] for node in graph]
    return Data(
        x=torch.eye(len(clubs)),
        edge_index=to_undirected(torch.tensor(list(graph.edges)).t(), num_nodes=len(clubs)),
        y=torch.tensor([int(club == "Officer") for club in clubs]),
    )


def core_distance(generator: Generator) -> Data:
    """The graph of `digits` with labels that the nodes at two hops decide, of six patterns."""
    graph = digits()
    return MajorityAtDistance(z=2).sample(graph.edge_index, len(graph.y), generator)


MAKERS: dict[str, Callable[[Generator], Data]] = {
    "digits": lambda _: digits(),
    "karate": lambda _: karate(),
    "core-neighborhood": lambda generator: CoreNeighborhoodGraph().sample(generator),
    "core-distance": core_distance,
    "power-law": lambda generator: PowerLawGraph().sample(generator),
}
"""What makes each embedded graph, by its name in the catalogue."""
