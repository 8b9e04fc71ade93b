"""A large graph as mini-batches of sampled neighborhoods."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch_geometric.typing
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

from graphtheory.graph import Neighborhood
from graphtheory.graph.csr import take_rows
from graphtheory.lab.signals import leave_signals_to_parent
from graphtheory.lab.train.batch import NodeBatch
from graphtheory.lab.train.contract import Batches
from graphtheory.lab.train.full_graph import FullGraph, apply
from graphtheory.lab.train.seeds import derive
from graphtheory.patterns import Pattern

_ORDER, _SAMPLE, _PATTERN = 2, 3, 4  # streams of randomness; 0 and 1 are FullGraph's
Key = tuple[Tensor, int, int]  # seed nodes, epoch, step


class SampledGraph(FullGraph):
    """Train on batches of labeled nodes with sampled neighbors, evaluate on all nodes at once.

    PyG's NeighborLoader draws `num_neighbors[k]` sources for each node that the k-th hop reached;
    the pattern, distances included, is computed on what was drawn, and the loss on the nodes that
    the drawing began with, which are the first rows. Every batch is a function of (seed, epoch,
    step), whatever the number of workers.

    Args:
        data: As for `FullGraph`.
        pattern: Who aggregates from whom, given the sampled graph; None is the sampled graph.
        num_neighbors: Sources for each hop, -1 for all; one entry for each layer of the model.
        batch_size: Labeled nodes in a batch; the last batch may be smaller.
        num_workers: Processes that sample; 0 samples in this one.
        seed: Of order, sampling and pattern, 0 or more.

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
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(data, pattern, seed=seed)
        _check_sampler()
        for name, value, least in (("batch_size", batch_size, 1), ("num_workers", num_workers, 0)):
            if value < least:
                raise ValueError(f"{name}: got {value}, expected {least} or more")
        if not num_neighbors or any(n < -1 or n == 0 for n in num_neighbors):
            raise ValueError(
                f"num_neighbors: got {list(num_neighbors)}, expected at least one count of 1 or "
                "more, or -1 for all"
            )
        self.num_neighbors, self.batch_size = list(num_neighbors), batch_size
        self.num_workers = num_workers
        self._drawn = _Drawn(data, pattern, self.num_neighbors, seed)
        self._loader: DataLoader[NodeBatch] | None = None

    def describe(self) -> dict[str, Any]:
        """What a resumed run must find unchanged."""
        sampling = {"num_neighbors": str(self.num_neighbors), "batch_size": self.batch_size}
        return super().describe() | sampling

    def order(self, epoch: int) -> list[Tensor]:
        """The labeled nodes of each batch of an epoch."""
        generator = torch.Generator().manual_seed(derive(self.seed, _ORDER, epoch))
        nodes = self.data.train_mask.nonzero().flatten()
        shuffled = nodes[torch.randperm(len(nodes), generator=generator)]
        return list(shuffled.split(self.batch_size))

    def sample(self, nodes: Tensor, epoch: int, step: int) -> NodeBatch:
        """One batch; `nodes` come first in it."""
        return self._drawn[nodes, epoch, step]

    def train_dataloader(self) -> Batches:
        """One epoch of batches."""
        labeled = int(self.data.train_mask.sum())
        return Batches(math.ceil(labeled / self.batch_size), self._iterate)

    def _iterate(self) -> Iterator[NodeBatch]:
        # A generator, because Lightning asks for an iterator before it knows the epoch.
        if self._loader is None:
            self._loader = DataLoader(
                self._drawn,
                sampler=_Order(self),
                batch_size=None,
                collate_fn=_unchanged,
                num_workers=self.num_workers,
                persistent_workers=self.num_workers > 0,
                worker_init_fn=leave_signals_to_parent,
                generator=torch.Generator(),  # otherwise it draws from global state
            )
        yield from self._loader

    def teardown(self, stage: str) -> None:
        """Lightning's hook: let the workers go."""
        self._loader = None


class _Order(Sampler[Key]):
    def __init__(self, data: SampledGraph) -> None:
        self.data = data

    def __iter__(self) -> Iterator[Key]:
        epoch = self.data.epoch
        return ((nodes, epoch, step) for step, nodes in enumerate(self.data.order(epoch)))


class _Drawn(Dataset[NodeBatch]):
    """Batches by key; this is all that a worker gets."""

    def __init__(
        self, data: Data, pattern: Pattern | None, num_neighbors: list[int], seed: int
    ) -> None:
        self.x, self.y, self.pattern, self.seed = data.x, data.y, pattern, seed
        bare = Data(edge_index=data.edge_index, num_nodes=data.x.size(0))
        with warnings.catch_warnings():
            # PyG prefers pyg-lib, whose wheels are not on the package index; torch-sparse will do.
            warnings.filterwarnings("ignore", message=".*without a 'pyg-lib' installation")
            self.sampler = NeighborLoader(bare, num_neighbors)

    def __getitem__(self, key: Key) -> NodeBatch:
        nodes, *position = key
        with torch.random.fork_rng(devices=[]):  # the sampler draws from global state
            torch.manual_seed(derive(self.seed, _SAMPLE, *position))
            drawn = self.sampler(nodes)
        graph = Neighborhood.from_edge_index(drawn.edge_index, drawn.num_nodes)
        graph = apply(self.pattern, graph, derive(self.seed, _PATTERN, *position))
        mask = torch.arange(drawn.num_nodes) < len(nodes)
        return NodeBatch(take_rows(self.x, drawn.n_id), graph, self.y[drawn.n_id], mask)


def _unchanged(batch: Any) -> Any:
    return batch


def _check_sampler() -> None:
    known = torch_geometric.typing
    if not (known.WITH_PYG_LIB or known.WITH_TORCH_SPARSE):
        raise ImportError(
            "SampledGraph: PyG's neighbor sampling needs torch-sparse or pyg-lib, found neither; "
            "install graphtheory[scatter]"
        )
