"""Batches of labeled nodes of a large graph: sampled neighborhoods, or a draw for each layer."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import take_rows
from graphtheory.lab.train.contract import check_at_least
from graphtheory.lab.train.nodes import FullGraph, NodeBatch, apply
from graphtheory.patterns import Pattern
from graphtheory.patterns.base import layers_on_rows
from graphtheory.patterns.draw import derive, generator_of

_SAMPLE, _PATTERN, _LAYERS = 3, 4, 5  # streams of randomness; 0 to 2 are FullGraph's


class SampledGraph(FullGraph):
    """Train on batches of labeled nodes with sampled neighbors, evaluate with all neighbors.

    PyG's NeighborLoader draws `num_neighbors[k]` sources for each node that the k-th hop reached;
    the pattern, distances included, is computed on what was drawn, and the loss on the first rows,
    the nodes that it began with. A batch is a function of (seed, epoch, step).

    Args:
        data: As for `FullGraph`.
        pattern: Who aggregates from whom, given the sampled graph; None is the sampled graph.
        num_neighbors: Sources for each hop, -1 for all; one entry for each layer of the model.
        batch_size: Labeled nodes in a batch; the last batch may be smaller.
        seed: Of order, sampling and pattern, 0 or more.
        evaluation_rows: Evaluate a layer at a time and this number of nodes, at least 2, which the
            devices of `fit` share; data and graph stay on the CPU. None is all nodes at once on
            each device. `predict` does the same. It asks for a model whose layers alone read the
            graph, and refuses another.

    Raises:
        ImportError: Neither torch-sparse nor pyg-lib is installed.
        TypeError, ValueError, IndexError: As for `FullGraph`, or a count out of range.
    """

    def __init__(
        self,
        data: Data,
        pattern: Pattern | None = None,
        *,
        num_neighbors: Sequence[int],
        batch_size: int = 1024,
        seed: int = 0,
        evaluation_rows: int | None = None,
    ) -> None:
        super().__init__(data, pattern, seed=seed)
        check_at_least(2, evaluation_rows=evaluation_rows)
        self.evaluation_rows = evaluation_rows
        known = torch_geometric.typing
        if not (known.WITH_PYG_LIB or known.WITH_TORCH_SPARSE):
            needs = "needs torch-sparse or pyg-lib, found neither; install pyg-graphtheory[scatter]"
            raise ImportError(f"SampledGraph: PyG's neighbor sampling {needs}")
        check_at_least(1, batch_size=batch_size)
        self.num_neighbors, self.batch_size = list(num_neighbors), batch_size
        if not num_neighbors or any(n < -1 or n == 0 for n in num_neighbors):
            expected = "at least one count of 1 or more, or -1 for all"
            raise ValueError(f"num_neighbors: got {self.num_neighbors}, expected {expected}")
        bare = Data(edge_index=data.edge_index, num_nodes=data.x.size(0))
        with warnings.catch_warnings():
            # PyG prefers pyg-lib, whose wheels are not on the package index; torch-sparse will do.
            warnings.filterwarnings("ignore", message=".*without a 'pyg-lib' installation")
            self._sampler = NeighborLoader(bare, num_neighbors)

    def describe(self) -> dict[str, Any]:
        sampling = {"num_neighbors": str(self.num_neighbors), "batch_size": self.batch_size}
        return super().describe() | sampling

    def sample(self, nodes: Tensor, epoch: int, step: int) -> NodeBatch:
        """Draw one batch; `nodes` come first in it."""
        with torch.random.fork_rng(devices=[]):  # the sampler draws from global state
            torch.manual_seed(derive(self.seed, _SAMPLE, epoch, step))
            drawn = self._sampler(nodes)
        graph = Neighborhood.from_edge_index(drawn.edge_index, drawn.num_nodes)
        graph = apply(self.pattern, graph, self.seed, _PATTERN, epoch, step)
        mask = torch.arange(drawn.num_nodes) < len(nodes)
        x, y = take_rows(self.data.x, drawn.n_id), self.data.y[drawn.n_id]
        return NodeBatch(x, graph, y, mask)

    def train_batch(self, epoch: int, step: int = 0) -> NodeBatch:
        return self.sample(self.order(epoch)[step], epoch, step)


class SampledLayers(FullGraph):
    """Train on labeled nodes and what each layer draws for them, evaluate on all nodes.

    A batch has a neighborhood for each layer, which the model takes as a sequence, as
    `models.SampledGCN` does, and the features of their nodes alone. It is a function of (seed,
    epoch, step).

    Args:
        data: As for `FullGraph`.
        pattern: A sampler, perhaps at the end of a `Compose`.
        num_layers: Of the model, at least 1.
        evaluation: What evaluation sees: A, or `patterns.Effective` of the pattern for A*.
        batch_size: Labeled nodes of a step, at least 1, the last of an epoch perhaps fewer; None
            is all of them.
        seed: Of order and draws, 0 or more.
        evaluation_rows: As of `SampledGraph`.

    Raises:
        TypeError, ValueError, IndexError: As for `FullGraph`, a pattern without randomness, or a
            number out of range.

    Source:
        Li (2024), section 5.3.2, footnote 23: a draw of its own for each layer.

    Example:
        >>> from graphtheory.lab.datasets import graphs
        >>> from graphtheory.patterns import Compose, UniformNodes
        >>> sampled = SampledLayers(graphs.load("karate"), UniformNodes(8), 2, evaluation=Compose())
        >>> [(layer.num_dst, layer.num_src) for layer in sampled.train_batch(epoch=0).layers]
        [(24, 28), (20, 24)]
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
        evaluation_rows: int | None = None,
    ) -> None:
        super().__init__(data, pattern, seed=seed, evaluation=evaluation)
        check_at_least(2, evaluation_rows=evaluation_rows)
        self.evaluation_rows = evaluation_rows
        check_at_least(1, num_layers=num_layers, batch_size=batch_size)
        self.num_layers, self.batch_size = num_layers, batch_size

    def describe(self) -> dict[str, Any]:
        found = {"num_layers": self.num_layers, "batch_size": str(self.batch_size)}
        return super().describe() | found

    def train_batch(self, epoch: int, step: int = 0) -> NodeBatch:
        graph, sampler = self.begun
        assert sampler is not None
        seeds = self.order(epoch)[step]
        generator = generator_of(self.seed, _LAYERS, epoch, step)
        nodes, layers = layers_on_rows(sampler, graph, seeds, self.num_layers, generator=generator)
        everyone = torch.ones(len(seeds), dtype=torch.bool)
        x, y = take_rows(self.data.x, nodes), self.data.y[seeds]
        batch = NodeBatch(x, layers[-1], y, everyone, layers=tuple(layers))
        return batch.to(self.device)
