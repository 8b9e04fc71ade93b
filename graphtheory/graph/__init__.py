"""What a graph is: neighbourhoods, their builders, and bridges to other libraries."""

from graphtheory.graph.build import bipartite, cliques, star
from graphtheory.graph.interop import neighborhood_from
from graphtheory.graph.neighborhood import Neighborhood

__all__ = ["Neighborhood", "bipartite", "cliques", "neighborhood_from", "star"]
