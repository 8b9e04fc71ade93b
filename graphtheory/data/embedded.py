"""Graphs that come with the installed packages: digits and the karate club."""

from __future__ import annotations

import networkx as nx
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

_NEIGHBOURS = 8
_PIXEL_MAX = 16.0


def digits() -> Data:
    """scikit-learn's 1,797 images of digits, each linked to its 8 nearest, in both directions.

    x_n is the image, 8 x 8 grey values divided by 16; distance is Euclidean.

    Shapes:
        x [1797, 64]; y [1797] in 0..9.
    """
    from sklearn.datasets import load_digits
    from sklearn.neighbors import kneighbors_graph

    images, y = load_digits(return_X_y=True)
    nearest = kneighbors_graph(images, _NEIGHBOURS).tocoo()
    pairs = torch.stack([torch.from_numpy(nearest.row), torch.from_numpy(nearest.col)]).long()
    return Data(
        x=torch.from_numpy(images / _PIXEL_MAX).float(),
        edge_index=to_undirected(pairs, num_nodes=len(y)),
        y=torch.from_numpy(y).long(),
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
