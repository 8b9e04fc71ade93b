"""Random neighborhoods of every shape that a user may bring, and tensors for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from battery.truth import Edges
from graphtheory import Neighborhood, bipartite, cliques

KINDS = (
    "any", "no nodes", "no edges", "hub", "to one target", "more sources", "more targets",
    "duplicates", "self-loops", "ragged cliques", "ragged blocks", "equal cliques", "32-bit ids",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A neighborhood, its edges by themselves, and the source of everything else.

    Attributes:
        kind: One of `KINDS`.
        neighborhood: As the library has it.
        edges: The same edges in the same order.
        rng: Draws of this case.
    """

    kind: str
    neighborhood: Neighborhood
    edges: Edges
    rng: np.random.Generator

    @classmethod
    def draw(cls, number: int, seed: int = 0) -> Case:
        """Case `number`: up to 40 nodes and 240 edges, seldom more."""
        rng = np.random.default_rng([seed, number])
        kind = KINDS[number % len(KINDS)]
        nb = _neighborhood(kind, rng)
        src, dst = (side.numpy().astype(np.int64) for side in nb.edge_index())
        return cls(kind, nb, Edges(src, dst, nb.num_src, nb.num_dst), rng)

    @classmethod
    def of_large_degree(cls, number: int, seed: int = 0) -> Case:
        """Case `number` of those with up to 86,000 edges to one of three targets."""
        rng = np.random.default_rng([seed, number])
        degree = int(rng.integers(65_505, 86_000))
        src, dst = rng.integers(0, 500, degree), np.full(degree, 1)
        nb = Neighborhood.from_edge_index(
            torch.from_numpy(np.stack([src, dst])), num_src=500, num_dst=3
        )
        return cls("large degree", nb, Edges(src, dst, 500, 3), rng)

    def normal(self, *shape: int) -> Tensor:
        """Normal numbers in float32, often with strides that are not those of a fresh tensor."""
        layout = self.rng.integers(4)
        if layout == 1 and len(shape) > 1:  # the first two axes lie the other way round
            turned = (shape[1], shape[0], *shape[2:])
            return torch.from_numpy(self.rng.standard_normal(turned)).float().transpose(0, 1)
        if layout == 2:  # every second row of a longer tensor
            longer = self.rng.standard_normal((2 * shape[0] + 1, *shape[1:]))
            return torch.from_numpy(longer).float()[1::2]
        return torch.from_numpy(self.rng.standard_normal(shape)).float()


def _neighborhood(kind: str, rng: np.random.Generator) -> Neighborhood:
    nodes = int(rng.integers(1, 41))
    count = int(rng.integers(0, 6 * nodes + 1))
    num_src = num_dst = nodes
    if kind == "no nodes":
        num_src = num_dst = count = 0
    elif kind == "more sources":
        num_src = nodes + int(rng.integers(1, 40))
    elif kind == "more targets":
        num_dst = nodes + int(rng.integers(1, 40))
    elif kind in ("ragged cliques", "equal cliques"):
        sizes = rng.integers(0, 12, size=int(rng.integers(1, 6)))
        return cliques(
            [int(sizes[0]) + 1] * len(sizes) if kind == "equal cliques" else sizes.tolist()
        )
    elif kind == "ragged blocks":
        groups = int(rng.integers(1, 5))
        sources, targets = (rng.integers(0, 9, size=groups).tolist() for _ in range(2))
        return bipartite(sources, targets)
    count = 0 if kind == "no edges" else count
    src, dst = rng.integers(0, max(1, num_src), count), rng.integers(0, max(1, num_dst), count)
    if kind == "hub":
        src[: count // 2] = 0
    elif kind == "to one target":
        dst[:] = nodes // 2
    elif kind == "duplicates" and count:
        take = rng.integers(0, max(1, count // 3), count)
        src, dst = src[take], dst[take]
    elif kind == "self-loops":
        src = dst.copy()
    ids = torch.from_numpy(np.stack([src, dst])).long()
    nb = Neighborhood.from_edge_index(ids, num_src=num_src, num_dst=num_dst)
    return nb.to_int32() if kind == "32-bit ids" else nb
