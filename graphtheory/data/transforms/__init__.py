"""PyG transforms: distances and paths of all pairs, degrees, distances to the centroid.

Laplacian eigenvectors and random walks come with PyG: `AddLaplacianEigenvectorPE` and
`AddRandomWalkPE`. `lab.datasets.graph_sets.with_transforms` applies
any of them once to a whole set of graphs.
"""

from graphtheory.data.transforms.columns import AddCentroidDistance, AddDegreeEncoding
from graphtheory.data.transforms.distances import AddDistances, AddPaths, AddResistance
from graphtheory.data.transforms.pairs import AddShortestPathDistance, pair_neighborhood

__all__ = [
    "AddCentroidDistance",
    "AddDegreeEncoding",
    "AddDistances",
    "AddPaths",
    "AddResistance",
    "AddShortestPathDistance",
    "pair_neighborhood",
]
