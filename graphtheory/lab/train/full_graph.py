"""A whole graph as one batch an epoch, and refusals of graphs that cannot be learned from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphtheory.graph import Neighborhood
from graphtheory.lab.train.contract import Source, check_at_least, digest
from graphtheory.patterns import Compose, Pattern
from graphtheory.patterns.compose import apply_fixed
from graphtheory.patterns.draw import derive

MASKS = ("train_mask", "val_mask", "test_mask")
_EVALUATION, _TRAINING = 0, 1  # streams of randomness


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
        """The number of nodes whose labels count."""
        return int(self.mask.sum())

    def to(self, device: torch.device | str) -> NodeBatch:
        """Move the batch to `device`; nothing is copied where it is there already."""
        parts = {name: value for name, value in vars(self).items() if value is not None}
        layers = tuple(layer.to(device) for layer in parts.pop("layers", ()))
        moved = {name: value.to(device) for name, value in parts.items()}
        return replace(self, layers=layers or None, **moved)


def apply(pattern: Pattern | None, graph: Neighborhood, seed: int) -> Neighborhood:
    """Apply the pattern to `graph`, its draws from `seed`; None leaves the graph as it is."""
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
            edge_index [2, E] (sources first), train_mask and val_mask, and where there is a test
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
        check_at_least(0, seed=seed)
        self.graph = Neighborhood.from_edge_index(data.edge_index, data.x.size(0))
        self.data, self.pattern, self.seed = data, pattern, seed
        self.evaluation = evaluation
        self.device = torch.device("cpu")
        self._begun: tuple[Neighborhood, Pattern | None] | None = None
        self._evaluation: NodeBatch | None = None

    def check_classes(self, num_classes: int) -> None:
        check_classes(self.data, num_classes)

    def describe(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": str(self.data.get("name") or "unnamed"),
            "sha256": fingerprint(self.data),
            "pattern": repr(self.pattern),
            "seed": self.seed,
        }
        return found if self.evaluation is None else found | {"evaluation": repr(self.evaluation)}

    def setup(self, stage: str) -> None:
        if self.trainer is not None and self.trainer.strategy.root_device != self.device:
            self.device, self._evaluation = self.trainer.strategy.root_device, None

    def train_batch(self, epoch: int) -> NodeBatch:
        """Make the batch of one epoch; the same for the same epoch."""
        whole, mask = self.evaluation_batch(), self.data.train_mask.to(self.device)
        neighborhood = whole.neighborhood
        if self.pattern is not None and self.pattern.is_random:
            neighborhood = self._draw(_TRAINING, epoch).to(self.device)
        return replace(whole, neighborhood=neighborhood, mask=mask, test_mask=None)

    def train_batches(self, epoch: int) -> Iterator[NodeBatch]:
        yield self.train_batch(epoch)

    def num_batches(self) -> int:
        return 1

    def evaluation_batch(self) -> NodeBatch:
        """Make a batch of all nodes once, with the validation nodes as mask, and the test nodes."""
        if self._evaluation is None:
            data = self.data
            with torch.inference_mode(False):  # training may follow an evaluation under Lightning
                other = self.evaluation
                seen = self._draw(_EVALUATION) if other is None else other(self.graph)
                batch = NodeBatch(data.x, seen, data.y, data.val_mask, data.get("test_mask"))
                self._evaluation = batch.to(self.device)
        return self._evaluation

    def _draw(self, *position: int) -> Neighborhood:
        """Apply the pattern; what it draws follows from the position."""
        base, sampler = self.begun()
        return apply(sampler, base, derive(self.seed, *position))

    def begun(self) -> tuple[Neighborhood, Pattern | None]:
        """Apply the parts before the first random one (once); the graph, and the other parts."""
        if self._begun is None:
            self._begun = apply_fixed(self.pattern or Compose(), self.graph)
        return self._begun


def check_data(data: Data) -> None:
    """Refuse features that are not finite, labels out of range and masks that overlap.

    Labels are a class of each node, int64 [N], or several of each, float [N, T] of 0, 1 or NaN. A
    message says how many are wrong, and where.
    """
    if not isinstance(data, Data):
        raise TypeError(f"data: got {type(data).__name__}, expected a Data of PyG")
    for name in ("x", "y", "edge_index", "train_mask", "val_mask"):
        if not isinstance(getattr(data, name, None), Tensor):
            kind = type(getattr(data, name, None)).__name__
            raise TypeError(f"data.{name}: got {kind}, expected a tensor")
    if not data.x.is_floating_point():
        raise TypeError(f"data.x: dtype {data.x.dtype}, expected a floating type")
    _check_finite(data.x)
    masks = {name: data[name] for name in MASKS if data.get(name) is not None}
    check_masks(masks, data.x.size(0))
    several = data.y.is_floating_point() and data.y.dim() == 2
    one = data.y.dtype == torch.int64 and data.y.dim() == 1
    if not (one or several) or len(data.y) != len(data.train_mask):
        raise ValueError(
            f"data.y: {data.y.dtype} of shape {tuple(data.y.shape)}, expected int64 "
            f"[{data.x.size(0)}], or float [{data.x.size(0)}, T] of several labels"
        )
    check_classes(data, None)


def check_masks(masks: dict[str, Tensor], nodes: int) -> None:
    """Refuse masks that are not Bool [nodes] or have no node, and nodes in two of them."""
    for name, mask in masks.items():
        if mask.dtype != torch.bool or mask.shape != (nodes,):
            raise ValueError(
                f"data.{name}: {mask.dtype} of shape {tuple(mask.shape)}, expected bool [{nodes}]; "
                "of several splits give one column"
            )
        if not bool(mask.any()):
            raise ValueError(f"data.{name}: no node, expected at least one")
    total = torch.stack(list(masks.values())).sum(0)
    if bool((total > 1).any()):
        twice = (total > 1).nonzero().flatten()
        raise ValueError(
            f"data: {len(twice)} nodes are in more than one of {', '.join(masks)}, the first is "
            f"node {int(twice[0])}; expected disjoint masks"
        )


def check_classes(data: Data, num_classes: int | None) -> None:
    """Refuse labels of masked nodes outside 0..num_classes-1; None is without upper limit.

    Of several labels there are `num_classes`, each 0, 1 or NaN.
    """
    if data.y.dim() == 2:
        _check_labels(data.y, num_classes)
        return
    used = torch.stack([data[name] for name in MASKS if data.get(name) is not None]).any(0)
    bad = used & (data.y < 0)
    if num_classes is not None:
        bad |= used & (data.y >= num_classes)
    if bool(bad.any()):
        node = int(bad.nonzero()[0])
        limit = "0 or more" if num_classes is None else f"0..{num_classes - 1}"
        raise ValueError(
            f"data.y: {int(bad.sum())} nodes of the masks have a label out of range, the first is "
            f"node {node} with {int(data.y[node])}; expected {limit}"
        )


def _check_labels(y: Tensor, num_labels: int | None) -> None:
    if num_labels not in (None, y.size(1)):
        raise ValueError(f"data.y: {y.size(1)} labels of each node, expected {num_labels}")
    bad = ~((y == 0) | (y == 1) | y.isnan())
    if bool(bad.any()):
        first = bad.nonzero()[0]
        raise ValueError(
            f"data.y: {int(bad.sum())} labels are neither 0, 1 nor NaN, the first at "
            f"{first.tolist()} with {float(y[tuple(first)]):g}"
        )


def fingerprint(data: Data) -> str:
    """Hash everything that is trained on, by SHA-256."""
    masks = (data[name] for name in MASKS if data.get(name) is not None)
    return digest([data.x, data.y, data.edge_index, *masks])


def _check_finite(x: Tensor) -> None:
    sparse = x.layout == torch.sparse_csr
    bad = ~torch.isfinite(x.values() if sparse else x)
    if bool(bad.any()):
        at = bad.nonzero()[0]
        first = x.to_sparse_coo().indices()[:, at[0]] if sparse else at
        raise ValueError(
            f"data.x: {int(bad.sum())} entries are NaN or infinite, the first at "
            f"{first.tolist()}; expected finite features"
        )
