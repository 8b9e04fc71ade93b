from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood


@dataclass(frozen=True)
class Tiny:
    """A directed graph of 10 nodes with features and labels; node 9 has no edge at all."""

    x: Tensor
    y: Tensor
    graph: Neighborhood

    @property
    def edge_index(self) -> Tensor:
        return self.graph.edge_index()


@pytest.fixture
def tiny(generator: torch.Generator) -> Tiny:
    ring = torch.arange(9)
    chords = torch.tensor([[0, 5, 7], [4, 1, 2]])
    edges = torch.cat([torch.stack([ring, ring.roll(-1)]), chords], 1)
    x = torch.randn(10, 6, generator=generator)
    y = torch.randint(3, (10,), generator=generator)
    return Tiny(x, y, Neighborhood.from_edge_index(edges, 10))
