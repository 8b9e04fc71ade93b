"""A whole graph as one batch an epoch, with a fresh sample of it for each layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch_geometric.data import Data

from graphtheory.patterns import Pattern, per_layer
from graphtheory.train.batch import NodeBatch
from graphtheory.train.full_graph import FullGraph
from graphtheory.train.seeds import derive

_LAYERS = 5  # a stream of randomness; those below are FullGraph's and SampledGraph's


class SampledLayers(FullGraph):
    """Train on all labelled nodes at once, each layer on its own draw of a sampler.

    Every epoch is one step, with draws of its own that are a function of (seed, epoch); `LADIES`
    draws for the labelled nodes, from the top layer down. The model takes a sequence of
    neighbourhoods, as `models.SampledGCN` and a classic stack do. Evaluation sees what `evaluation`
    makes of the graph: A, or `patterns.Effective` of the pattern for A*.

    Args:
        data: As for `FullGraph`.
        pattern: A sampler, perhaps at the end of a `Compose`.
        num_layers: Of the model, at least 1.
        evaluation: What evaluation sees.
        seed: Of the draws, 0 or more.

    Raises:
        TypeError, ValueError, IndexError: As for `FullGraph`, or a pattern without randomness.

    Source:
        Li (2024), section 5.3.2, footnote 23: a draw of its own for each layer.

    Example:
        >>> from graphtheory.patterns import AddSelf, Compose, UniformNodes
        >>> mask = torch.tensor([1, 0, 0, 1], dtype=torch.bool)
        >>> data = Data(x=torch.eye(4), y=torch.tensor([0, 0, 1, 1]), train_mask=mask,
        ...     val_mask=~mask, edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> sampled = SampledLayers(data, Compose(AddSelf(), UniformNodes(2)), 3,
        ...     evaluation=AddSelf())
        >>> len(sampled.train_batch(epoch=0).layers), sampled.evaluation_batch().layers
        (3, None)
    """

    def __init__(
        self, data: Data, pattern: Pattern, num_layers: int, *, evaluation: Pattern, seed: int = 0
    ) -> None:
        super().__init__(data, pattern, seed=seed, evaluation=evaluation)
        if num_layers < 1:
            raise ValueError(f"num_layers: got {num_layers}, expected at least 1")
        self.num_layers = num_layers

    def describe(self) -> dict[str, Any]:
        """What a resumed run must find unchanged."""
        return super().describe() | {"num_layers": self.num_layers}

    def train_batch(self, epoch: int) -> NodeBatch:
        """The batch of one epoch; the same for the same epoch."""
        whole, mask = self.evaluation_batch(), self.data.train_mask
        base, sampler = self.begun()
        assert sampler is not None
        drawn = per_layer(
            sampler, base, self.num_layers, receivers=mask.nonzero().flatten(),
            generator=torch.Generator().manual_seed(derive(self.seed, _LAYERS, epoch)),
        )  # fmt: skip
        layers = tuple(one.to(self.device) for one in drawn)
        return replace(
            whole, neighborhood=layers[-1], layers=layers, mask=mask.to(self.device), test_mask=None
        )
