"""A whole graph as one batch an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch_geometric.data import Data

from graphtheory.graph import Neighborhood
from graphtheory.lab.train.batch import NodeBatch
from graphtheory.lab.train.check import check_classes, check_data, fingerprint
from graphtheory.lab.train.contract import Batches, Source
from graphtheory.lab.train.seeds import derive
from graphtheory.patterns import Compose, Pattern
from graphtheory.patterns.compose import apply_fixed

_EVALUATION, _TRAINING = 0, 1  # streams of randomness


def apply(pattern: Pattern | None, graph: Neighborhood, seed: int) -> Neighborhood:
    """The pattern on `graph`, its draws from `seed`; without a pattern the graph itself."""
    if pattern is None:
        return graph
    return pattern(graph, generator=torch.Generator().manual_seed(seed))


class FullGraph(Source):
    """Train and evaluate on all nodes at once.

    A deterministic pattern, or the deterministic beginning of one, is applied once. A random one is
    drawn afresh in every training step, as a function of (seed, epoch); evaluation always sees the
    same draw, or what `evaluation` makes of the graph, such as `patterns.Effective` of the pattern.

    Args:
        data: A graph with x [N, F], y int64 [N] (of several labels float [N, T]: 0, 1 or NaN),
            edge_index [2, E] (row 0 sends), train_mask and val_mask, and where there is a test
            test_mask, Bool [N] and disjoint. Nodes outside the masks may be of any class.
        pattern: Who aggregates from whom, given the graph; None is the graph itself.
        seed: Of the random pattern, 0 or more.
        evaluation: What evaluation sees in place of a random pattern; None is the same pattern.

    Raises:
        TypeError: A tensor is missing or of the wrong dtype.
        ValueError: Features that are not finite, labels out of range, masks that are empty,
            overlap or have the wrong shape.
        IndexError: An edge to a node that does not exist.

    Example:
        >>> mask = torch.tensor([1, 0, 0, 1], dtype=torch.bool)
        >>> data = Data(x=torch.eye(4), y=torch.tensor([0, 0, 1, 1]), train_mask=mask,
        ...     val_mask=~mask, edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> FullGraph(data).train_batch(epoch=0).neighborhood
        Neighborhood(num_dst=4, num_src=4, num_edges=3)
    """

    def __init__(
        self,
        data: Data,
        pattern: Pattern | None = None,
        *,
        seed: int = 0,
        evaluation: Pattern | None = None,
    ) -> None:
        super().__init__()
        check_data(data)
        for name, given in (("pattern", pattern), ("evaluation", evaluation)):
            if not isinstance(given, Pattern | None):
                raise TypeError(f"{name}: got {given!r}, expected a Pattern or None")
        if evaluation is not None and (pattern is None or not pattern.is_random):
            raise ValueError(f"evaluation: got {evaluation}, expected None beside {pattern}")
        if seed < 0:
            raise ValueError(f"seed: got {seed}, expected 0 or more")
        self.graph = Neighborhood.from_edge_index(data.edge_index, data.x.size(0))
        self.data, self.pattern, self.seed = data, pattern, seed
        self.evaluation = evaluation
        self.device = torch.device("cpu")
        self._begun: tuple[Neighborhood, Pattern | None] | None = None
        self._evaluation: NodeBatch | None = None

    def check_classes(self, num_classes: int) -> None:
        """Refuse labels of masked nodes outside 0..num_classes-1."""
        check_classes(self.data, num_classes)

    def describe(self) -> dict[str, Any]:
        """What a resumed run must find unchanged."""
        found: dict[str, Any] = {
            "name": str(self.data.get("name") or "unnamed"),
            "sha256": fingerprint(self.data),
            "pattern": repr(self.pattern),
            "seed": self.seed,
        }
        return found if self.evaluation is None else found | {"evaluation": repr(self.evaluation)}

    def setup(self, stage: str) -> None:
        """Lightning's hook: keep what does not change on the device of the trainer."""
        if self.trainer is not None and self.trainer.strategy.root_device != self.device:
            self.device, self._evaluation = self.trainer.strategy.root_device, None

    def train_batch(self, epoch: int) -> NodeBatch:
        """The batch of one epoch; the same for the same epoch."""
        whole, mask = self.evaluation_batch(), self.data.train_mask.to(self.device)
        neighborhood = whole.neighborhood
        if self.pattern is not None and self.pattern.is_random:
            neighborhood = self._draw(_TRAINING, epoch).to(self.device)
        return replace(whole, neighborhood=neighborhood, mask=mask, test_mask=None)

    def evaluation_batch(self) -> NodeBatch:
        """All nodes, with the validation nodes as mask, and the test nodes (made once)."""
        if self._evaluation is None:
            data = self.data
            with torch.inference_mode(False):  # training may follow an evaluation under Lightning
                other = self.evaluation
                seen = self._draw(_EVALUATION) if other is None else other(self.graph)
                batch = NodeBatch(data.x, seen, data.y, data.val_mask, data.get("test_mask"))
                self._evaluation = batch.to(self.device)
        return self._evaluation

    def _draw(self, *position: int) -> Neighborhood:
        """The pattern's neighborhood; what it draws follows from the position."""
        base, sampler = self.begun()
        return apply(sampler, base, derive(self.seed, *position))

    def begun(self) -> tuple[Neighborhood, Pattern | None]:
        """What the parts before the first random one make of the graph (once), and the others."""
        if self._begun is None:
            self._begun = apply_fixed(self.pattern or Compose(), self.graph)
        return self._begun

    def train_dataloader(self) -> Batches:
        """One batch."""
        return Batches(1, self._iterate)

    def _iterate(self) -> Iterator[NodeBatch]:
        # A generator, because Lightning asks for an iterator before it knows the epoch.
        yield self.train_batch(self.epoch)

    def val_dataloader(self) -> Batches:
        """One batch of all nodes."""
        return Batches(1, lambda: iter([self.evaluation_batch()]))

    test_dataloader = val_dataloader
