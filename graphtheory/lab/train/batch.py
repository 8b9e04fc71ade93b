"""What one step sees of a graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood


@dataclass(frozen=True)
class NodeBatch:
    """Features, who aggregates from whom, and the nodes whose labels count.

    Args:
        x: Features [num_src, F], dense or sparse CSR.
        neighborhood: Who aggregates from whom, num_dst rows.
        y: Class of each target, int64 [num_dst], or its labels, float [num_dst, T].
        mask: Bool [num_dst], the nodes that the loss or the score is computed on.
        test_mask: Bool [num_dst] or None; in evaluation the nodes of the test, scored in the same
            pass and never used to choose anything.
        layers: A neighborhood for each layer, which the model gets instead, or None.
    """

    x: Tensor
    neighborhood: Neighborhood
    y: Tensor
    mask: Tensor
    test_mask: Tensor | None = None
    layers: tuple[Neighborhood, ...] | None = None

    @property
    def count(self) -> int:
        """Nodes whose labels count."""
        return int(self.mask.sum())

    def to(self, device: torch.device | str) -> NodeBatch:
        """The batch on `device`; nothing is copied where it is there already."""
        test_mask = None if self.test_mask is None else self.test_mask.to(device)
        layers = None if self.layers is None else tuple(n.to(device) for n in self.layers)
        return replace(
            self,
            x=self.x.to(device),
            neighborhood=self.neighborhood.to(device),
            y=self.y.to(device),
            mask=self.mask.to(device),
            test_mask=test_mask,
            layers=layers,
        )
