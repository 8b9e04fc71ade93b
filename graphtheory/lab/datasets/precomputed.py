"""Encodings that networks for graphs read in addition to the features, by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE, BaseTransform

from graphtheory.data.transforms import AddDistances, AddPaths, AddResistance
from graphtheory.lab.datasets.graph_sets import GraphSet
from graphtheory.lab.datasets.stored import with_transforms


class _Eigenvectors(BaseTransform):
    """PyG's Laplacian encoding, with zeros where a graph has fewer eigenvectors.

    Its signs and the start of the iteration on large graphs are the same for every call.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def forward(self, data: Data) -> Data:
        kept = min(self.count, data.num_nodes - 1)
        vectors = torch.zeros(data.num_nodes, self.count)
        if kept > 0:
            start = np.random.default_rng(0).uniform(-1, 1, data.num_nodes)
            add = AddLaplacianEigenvectorPE(kept, "found", v0=start)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                vectors[:, :kept] = add(data.clone()).found
        data.laplacian_eigenvector_pe = vectors
        return data


def precomputed(
    graphs: GraphSet,
    *,
    distance: int = 0,
    walk: int = 0,
    laplacian: int = 0,
    paths: int = 0,
    resistance: int = 0,
) -> GraphSet:
    """The set with these encodings on each graph, as `zoo.graph_models.precomputed` names them.

    Args:
        graphs: A whole set.
        distance: 1 adds `distance` by `AddDistances`.
        walk: Steps of PyG's `AddRandomWalkPE`; 0 is none.
        laplacian: Vectors of PyG's `AddLaplacianEigenvectorPE`, zeros where a graph has too few
            nodes; 0 is none.
        paths: Steps of `AddPaths`; 0 is none.
        resistance: 1 adds `resistance` by `AddResistance`.
    """
    steps: list[tuple[int, Callable[[], BaseTransform]]] = [
        (distance, AddDistances),
        (walk, lambda: AddRandomWalkPE(walk)),
        (laplacian, lambda: _Eigenvectors(laplacian)),
        (paths, lambda: AddPaths(paths)),
        (resistance, AddResistance),
    ]
    return with_transforms(graphs, [make() for wanted, make in steps if wanted])
