"""Graph attention on one sparse message-passing core: tokens are nodes, attention aggregates."""

from graphtheory.graph import Neighborhood, bipartite, cliques, star

__version__ = "0.1.0"
__all__ = ["Neighborhood", "bipartite", "cliques", "star"]
