"""Shortest-path distances in hops: for all pairs, from some nodes, for given pairs."""

import torch
from torch_geometric.utils import grid

from graphtheory import Neighborhood
from graphtheory.lab.datasets import graphs
from graphtheory.structure import hop_ball, shortest_path_distance

# A directed path 0 -> 1 -> 2: row n is the target, column s the source.
path = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
print("a directed path; 255 means that there is no way")
print(shortest_path_distance(path))

data = graphs.load("karate")
club = Neighborhood.from_edge_index(data.edge_index, data.num_nodes)

# 1. All pairs: one byte each.
table = shortest_path_distance(club)
print("\nkarate club, all pairs:", table.dtype, tuple(table.shape))
for hops, count in enumerate(table.flatten().bincount()):
    print(f"  {int(count):4} pairs at {hops} hops")

# 2. From some nodes: columns of that table.
sources = torch.tensor([0, 33])
columns = shortest_path_distance(club, sources=sources)
print("from", sources.tolist(), tuple(columns.shape), torch.equal(columns, table[:, sources]))

# 3. For given pairs, sources over targets: a search from both ends, no table.
pairs = torch.tensor([[0, 16, 5], [33, 26, 5]])
print("pairs", pairs.t().tolist(), shortest_path_distance(club, pairs=pairs).tolist())

# `cutoff` says how far to count; farther is `cutoff`, unreachable stays 255.
print("counted to two hops:", shortest_path_distance(club, cutoff=2).unique().tolist())

# Larger: a grid of 100 x 100 has 10^8 pairs. Its balls of 3 hops need no table.
edge_index, _ = grid(100, 100)
with_diagonals = Neighborhood.from_edge_index(edge_index, num_nodes=10_000)
ball, hops = hop_ball(with_diagonals, 3)
print("\n100 x 100 grid, corner to corner:", end=" ")
print(shortest_path_distance(with_diagonals, pairs=torch.tensor([[0], [9_999]]), cutoff=254).item())
print("balls of 3 hops:", ball)
print("nodes of each distance in the middle:", hops[ball.targets() == 5_050].bincount().tolist())
