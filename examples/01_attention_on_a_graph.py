"""Attention on a graph: who aggregates from whom is one object, how is one function."""

import torch

from graphtheory import Neighborhood, cliques
from graphtheory.ops import BucketedBias, aggregate, attention, edge_dot, edge_softmax
from graphtheory.structure import shortest_path_distance

# A path 0 - 1 - 2 - 3 and a lonely node 4, as PyG writes it: column e runs from row 0 to row 1.
edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
graph = Neighborhood.from_edge_index(edge_index, num_nodes=5)
print(graph)
for node in range(graph.num_dst):
    row = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
    print(f"  node {node} aggregates from {row.tolist()}")

# Queries, keys and values are [nodes, heads, head_dim].
torch.manual_seed(0)
query, key, value = torch.randn(3, 5, 2, 8)

local = attention(query, key, value, graph)
print("\nattention over the neighbors:", tuple(local.shape))
print("the lonely node gets zeros:", not local[4].any())

# The same in its three steps; no step builds [edges, heads, head_dim].
logits = edge_dot(query, key, graph) / 8**0.5  # [edges, heads]
weights = edge_softmax(logits, graph)  # [edges, heads], each row sums to 1
by_steps = aggregate(weights, value, graph)
print("in three steps the same:", torch.allclose(local, by_steps, atol=1e-6))

# Every node attends to every node, with a trained number for each distance and head.
everyone = cliques([5])
distance = shortest_path_distance(graph)  # uint8 [5, 5] in hops, 255 without a path
bucket = distance.clamp(max=3).flatten()  # 0, 1, 2, and 3 for everything farther
table = torch.zeros(4, 2, requires_grad=True)
out = attention(query, key, value, everyone, bias=BucketedBias(bucket, table))
out.square().sum().backward()
print("\nattention over everyone, by distance:", tuple(out.shape))
print("gradient of the table of distances:\n", table.grad)

# A large number for distance 0 turns attention into the identity.
only_self = torch.tensor([[50.0, 50.0], [0, 0], [0, 0], [0, 0]])
out = attention(query, key, value, everyone, bias=BucketedBias(bucket, only_self))
print("everyone looks at itself alone:", torch.allclose(out, value))
