"""Patterns: rules for who aggregates from whom, and how they compose."""

import torch

from graphtheory import Neighborhood
from graphtheory.patterns import AddSelf, AtDistance, Compose, KHop, Sample, SymmetricNormalize


def show(title: str, neighborhood: Neighborhood) -> None:
    """Each row as `source(hops)`."""
    print(f"\n{title}")
    for node in range(neighborhood.num_dst):
        edges = slice(int(neighborhood.indptr[node]), int(neighborhood.indptr[node + 1]))
        sources = neighborhood.indices[edges].tolist()
        if neighborhood.distance is None:
            print(f"  {node}: {sources}")
            continue
        hops = neighborhood.distance[edges].tolist()
        print(f"  {node}:", *(f"{s}({h})" for s, h in zip(sources, hops, strict=True)))


# A ring of six nodes, both ways.
ring = torch.arange(6)
edge_index = torch.stack([torch.cat([ring, ring.roll(-1)]), torch.cat([ring.roll(-1), ring])])
graph = Neighborhood.from_edge_index(edge_index, num_nodes=6)

show("the graph", graph)
show("KHop(2): everything within two hops", KHop(2)(graph))
show("AtDistance(3): the opposite node", AtDistance(3)(graph))
show("Compose(KHop(1), AddSelf()): the neighborhood of a GAT", Compose(KHop(1), AddSelf())(graph))

# Two nodes of the two-hop ball and the node itself, drawn afresh on every call.
sampled = Compose(KHop(2), Sample(2), AddSelf())
generator = torch.Generator().manual_seed(0)
show(f"{sampled}", sampled(graph, generator=generator))
show("the same pattern, drawn again", sampled(graph, generator=generator))

# Nodes from the whole graph, which know their distances all the same.
anywhere = Sample(3, whole_graph=True)
show(f"{anywhere}", anywhere(graph, generator=generator))

# The weights of a GCN are a pattern, too.
gcn = Compose(AddSelf(), SymmetricNormalize())(graph)
print("\nfirst row of a GCN's matrix:", [round(w, 3) for w in gcn.to_dense()[0].tolist()])

# Each pattern has a slow definition on a dense matrix; tests compare the two.
mask = KHop(2).mask(graph.to_dense() > 0)
print("KHop(2) equals its mask:", torch.equal(KHop(2)(graph).to_dense() > 0, mask))
