"""A whole graph as one batch an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from lightning import LightningDataModule
from torch_geometric.data import Data

from graphtheory.graph import Neighborhood
from graphtheory.patterns import Pattern
from graphtheory.train.batch import NodeBatch
from graphtheory.train.check import check_data
from graphtheory.train.seeds import derive

_EVALUATION, _TRAINING = 0, 1  # streams of randomness


class Batches:
    """`length` batches, made when they are asked for."""

    def __init__(self, length: int, make: Callable[[], Iterator[NodeBatch]]) -> None:
        self.length, self.make = length, make

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[NodeBatch]:
        return self.make()


class FullGraph(LightningDataModule):
    """Train and evaluate on all nodes at once.

    A deterministic pattern is applied once. A random one is drawn afresh in every training step, as
    a function of (seed, epoch); evaluation always sees the same draw.

    Args:
        data: A graph with x [N, F], y int64 [N], edge_index [2, E] (row 0 sends), train_mask and
            val_mask, and where there is a test test_mask, Bool [N] and disjoint. Nodes outside the
            masks may have any label.
        pattern: Who aggregates from whom, given the graph; None is the graph itself.
        seed: Of the random pattern.

    Raises:
        TypeError: A tensor is missing or of the wrong dtype.
        ValueError: Features that are not finite, labels out of range, masks that are empty,
            overlap or have the wrong shape.
        IndexError: An edge to a node that does not exist.

    Example:
        >>> import torch
        >>> mask = torch.tensor([1, 0, 0, 1], dtype=torch.bool)
        >>> data = Data(x=torch.eye(4), y=torch.tensor([0, 0, 1, 1]), train_mask=mask,
        ...     val_mask=~mask, edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> FullGraph(data).train_batch(epoch=0).neighborhood
        Neighborhood(num_dst=4, num_src=4, num_edges=3)
    """

    def __init__(self, data: Data, pattern: Pattern | None = None, *, seed: int = 0) -> None:
        super().__init__()
        check_data(data, data.get("num_classes"))
        self.graph = Neighborhood.from_edge_index(data.edge_index, data.x.size(0))
        self.data, self.pattern, self.seed = data, pattern, seed
        self.name = str(data.get("name") or "graph")
        self._evaluation: NodeBatch | None = None

    def train_batch(self, epoch: int) -> NodeBatch:
        """The batch of one epoch; the same for the same epoch."""
        if self.pattern is None or not self.pattern.is_random:
            neighborhood = self.evaluation_batch().neighborhood
        else:
            neighborhood = self._apply(_TRAINING, epoch)
        x, y = self.evaluation_batch().x, self.evaluation_batch().y
        return NodeBatch(x, neighborhood, y, self.data.train_mask)

    def evaluation_batch(self) -> NodeBatch:
        """All nodes, with the validation nodes as mask, and the test nodes."""
        if self._evaluation is None:
            data, neighborhood = self.data, self._apply(_EVALUATION)
            self._evaluation = NodeBatch(
                data.x, neighborhood, data.y, data.val_mask, data.get("test_mask")
            )
        return self._evaluation

    def _apply(self, *position: int) -> Neighborhood:
        if self.pattern is None:
            return self.graph
        generator = torch.Generator().manual_seed(derive(self.seed, *position))
        return self.pattern(self.graph, generator=generator)

    def train_dataloader(self) -> Batches:
        """One batch."""
        return Batches(1, lambda: iter([self.train_batch(self._epoch())]))

    def val_dataloader(self) -> Batches:
        """One batch of all nodes."""
        return Batches(1, lambda: iter([self.evaluation_batch()]))

    test_dataloader = val_dataloader

    def _epoch(self) -> int:
        return 0 if self.trainer is None else self.trainer.current_epoch

    def transfer_batch_to_device(
        self, batch: NodeBatch, device: torch.device, dataloader_idx: int
    ) -> NodeBatch:
        """Lightning's hook."""
        return batch.to(device)
