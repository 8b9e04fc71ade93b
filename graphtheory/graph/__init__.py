"""Graphs: neighborhoods, their constructors, and conversion from other libraries."""

from graphtheory.graph.build import (
    TOKEN,
    GraphTokens,
    bipartite,
    causal,
    cliques,
    neighbor_lists,
    query_stars,
    star,
    union,
)
from graphtheory.graph.grid import Grid, Windows, grid_neighbors, windows
from graphtheory.graph.interop import neighborhood_from
from graphtheory.graph.neighborhood import Neighborhood
from graphtheory.graph.sets import Sets

__all__ = [
    "TOKEN",
    "GraphTokens",
    "Grid",
    "Neighborhood",
    "Sets",
    "Windows",
    "bipartite",
    "causal",
    "cliques",
    "grid_neighbors",
    "neighbor_lists",
    "neighborhood_from",
    "query_stars",
    "star",
    "union",
    "windows",
]
