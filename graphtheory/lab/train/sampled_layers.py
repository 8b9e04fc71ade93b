"""Batches of labeled nodes, with a fresh sample of the whole graph for each layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphtheory.graph.csr import take_rows
from graphtheory.lab.train.batch import NodeBatch
from graphtheory.lab.train.contract import Batches
from graphtheory.lab.train.full_graph import FullGraph
from graphtheory.lab.train.seeds import derive
from graphtheory.patterns import Pattern
from graphtheory.patterns.rows import layers_on_rows

_ORDER, _LAYERS = 2, 5  # streams of randomness; the others are FullGraph's and SampledGraph's


class SampledLayers(FullGraph):
    """Train on labeled nodes and what each layer draws for them, evaluate on all nodes at once.

    A batch has a neighborhood for each layer, as of `data.loaders.NodeSetLoader`, and the features
    of the nodes in it alone. It is a function of (seed, epoch, step). The model takes a sequence of
    neighborhoods, as `models.SampledGCN` and a classic stack of GCN layers do. Evaluation sees
    what `evaluation` makes of the graph: A, or `patterns.Effective` of the pattern for A*.

    Args:
        data: As for `FullGraph`.
        pattern: A sampler, perhaps at the end of a `Compose`.
        num_layers: Of the model, at least 1.
        evaluation: What evaluation sees.
        batch_size: Labeled nodes of a step, at least 1, the last of an epoch perhaps fewer; None
            is all of them.
        seed: Of order and draws, 0 or more.

    Raises:
        TypeError, ValueError, IndexError: As for `FullGraph`, a pattern without randomness, or a
            number out of range.

    Source:
        Li (2024), section 5.3.2, footnote 23: a draw of its own for each layer.

    Example:
        >>> from graphtheory.patterns import AddSelf, Compose, UniformNodes
        >>> mask = torch.tensor([1, 0, 0, 1], dtype=torch.bool)
        >>> data = Data(x=torch.eye(4), y=torch.tensor([0, 0, 1, 1]), train_mask=mask,
        ...     val_mask=~mask, edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> sampled = SampledLayers(data, Compose(AddSelf(), UniformNodes(4)), 2,
        ...     evaluation=AddSelf())
        >>> [(layer.num_dst, layer.num_src) for layer in sampled.train_batch(epoch=0).layers]
        [(3, 4), (2, 3)]
    """

    def __init__(
        self,
        data: Data,
        pattern: Pattern,
        num_layers: int,
        *,
        evaluation: Pattern,
        batch_size: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(data, pattern, seed=seed, evaluation=evaluation)
        for name, value in (("num_layers", num_layers), ("batch_size", batch_size)):
            if value is not None and value < 1:
                raise ValueError(f"{name}: got {value}, expected at least 1")
        self.num_layers, self.batch_size = num_layers, batch_size

    def describe(self) -> dict[str, Any]:
        """What a resumed run must find unchanged."""
        found = {"num_layers": self.num_layers, "batch_size": str(self.batch_size)}
        return super().describe() | found

    def order(self, epoch: int) -> list[Tensor]:
        """The labeled nodes of each batch of an epoch."""
        nodes = self.data.train_mask.nonzero().flatten()
        if self.batch_size is None:
            return [nodes]
        generator = torch.Generator().manual_seed(derive(self.seed, _ORDER, epoch))
        return list(nodes[torch.randperm(len(nodes), generator=generator)].split(self.batch_size))

    def train_batch(self, epoch: int, step: int = 0) -> NodeBatch:
        """One batch of an epoch; its labeled nodes come first."""
        base, sampler = self.begun()
        assert sampler is not None
        seeds = self.order(epoch)[step]
        generator = torch.Generator().manual_seed(derive(self.seed, _LAYERS, epoch, step))
        nodes, layers = layers_on_rows(sampler, base, seeds, self.num_layers, generator=generator)
        everyone = torch.ones(len(seeds), dtype=torch.bool)
        x, y = take_rows(self.data.x, nodes), self.data.y[seeds]
        batch = NodeBatch(x, layers[-1], y, everyone, layers=tuple(layers))
        return batch.to(self.device)

    def train_dataloader(self) -> Batches:
        """One epoch of batches."""
        return Batches(len(self.order(0)), self._iterate)

    def _iterate(self) -> Iterator[NodeBatch]:
        epoch = self.epoch
        for step in range(len(self.order(epoch))):
            yield self.train_batch(epoch, step)
