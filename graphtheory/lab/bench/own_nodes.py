"""The user's own graph with a class for each node as a problem."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from functools import cached_property

import torch
from torch import Generator, Tensor

from graphtheory.lab.bench.facts import Facts
from graphtheory.lab.bench.finished import Settings
from graphtheory.lab.bench.measure import Measure, measure_of
from graphtheory.lab.bench.problem import NodeProblem
from graphtheory.lab.bench.trial import prepare
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.datasets.splits import by_fraction
from graphtheory.lab.train import FullGraph
from graphtheory.lab.train.contract import digest
from graphtheory.lab.train.full_graph import MASKS, check_masks

_RANDOM, _GIVEN = "random-60-20-20", "given"
SHOWN = 12  # letters of a digest in a name


class OwnNodes(NodeProblem):
    """One graph with a class for each node.

    Args:
        data: A PyG `Data` with x [N, F], numbers of any type, dense or sparse, which are read as
            float32; edge_index, as it is: directed edges stay directed; y whole numbers [N] or
            [N, 1], -1 for a node without a class; with train_mask, val_mask and test_mask Bool [N]
            or [N, S], of which seed s takes column s mod S, or with none of them for a random split
            of 60, 20 and 20 percent by seed. No network for nodes reads `edge_weight` or
            `edge_attr`: a warning says so.
        name: In reports.
        metric: "accuracy", or "rocauc" for two classes.

    Raises:
        TypeError: If x or a mask has another type.
        ValueError: If there are some of the masks and not the others, if x, y or a mask has another
            shape, if a feature is not finite, or if there are fewer than two classes.
    """

    def __init__(self, data: Data, name: str = "graph", metric: str = "accuracy") -> None:
        y, found = data.get("y"), [data.get(mask) is not None for mask in MASKS]
        for unread in ("edge_weight", "edge_attr"):
            if data.get(unread) is not None:
                warnings.warn(f"data.{unread}: no network for nodes reads it here", stacklevel=2)
        if isinstance(y, Tensor) and y.dim() == 2 and y.size(1) == 1:
            y = y[:, 0]
        if not isinstance(y, Tensor) or y.is_floating_point() or y.is_complex() or y.dim() != 1:
            shown = f"{y.dtype} {list(y.shape)}" if isinstance(y, Tensor) else repr(y)
            raise ValueError(f"data.y: got {shown}, expected whole numbers [N], a class for each")
        if not isinstance(data.x, Tensor) or not len(data.x) or len(y) != len(data.x):
            rows = f"{len(data.x)} rows" if isinstance(data.x, Tensor) else repr(data.x)
            raise ValueError(f"data.x: got {rows} beside {len(y)} labels, expected one for each")
        if data.x.dim() != 2 or data.x.is_complex():
            shown = f"{data.x.dtype} {list(data.x.shape)}"
            raise ValueError(f"data.x: got {shown}, expected real numbers [N, F]")
        largest, labeled = int(y.max()), int((y >= 0).sum())
        if not 1 <= largest < labeled:
            raise ValueError(
                f"data.y: the largest class is {largest} among {labeled} nodes with one, expected "
                "two classes or more, numbered from 0"
            )
        if any(found) and not all(found):
            lacking = ", ".join(m for m, is_there in zip(MASKS, found, strict=True) if not is_there)
            raise ValueError(f"data: {lacking} is missing, expected all three masks or none")
        if all(found):
            _check_splits(data)
        super().__init__(name, _GIVEN if all(found) else _RANDOM)
        self.metric, self.own = measure_of(metric).name, data.clone()
        self.own.x, self.own.y = _as_float32(data.x), y.long()
        try:
            FullGraph(self.data(0, row_scale=False))  # which checks it
        except IndexError as error:
            raise ValueError(str(error)) from error
        self.sha256 = digest(tensors_of([self.own]))

    @property
    def key(self) -> str:
        """Name and content."""
        return f"{super().key}-{self.sha256[:SHOWN]}"

    def settings(self) -> Settings:
        """What a run on this data has to agree in."""
        return super().settings() | {"sha256": self.sha256, "metric": self.metric}

    def data(self, seed: int, **inputs: bool) -> Data:
        """The graph with the split of that seed, its features prepared."""
        data = self.own.clone()
        if self.split == _GIVEN:
            data.update(_given_split(data, seed))
        else:
            generator = Generator().manual_seed(seed)
            parts = by_fraction(data.y, val=0.2, test=0.2, generator=generator)
            data.update(dict(zip(MASKS, parts, strict=True)))
        data.name, data.split, data.metric = self.name, self.split, self.metric
        data.num_classes = int(data.y.max()) + 1
        return prepare(data, **inputs)

    @property
    def measure(self) -> Measure:
        """How its scores are read."""
        return measure_of(self.metric)

    @cached_property
    def facts(self) -> Facts:
        """What its options follow from, by the split of seed 0."""
        return Facts.of(self.data(0))

    @property
    def num_edges(self) -> int:
        """All of them."""
        return int(self.own.num_edges)


def _as_float32(x: Tensor) -> Tensor:
    """Features as the networks read them: dense, or sparse by rows."""
    x = x.detach()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        x = x if x.layout in (torch.strided, torch.sparse_csr) else x.to_sparse_csr()
    return x.to(torch.float32)


def _given_split(data: Data, seed: int) -> dict[str, Tensor]:
    """The masks of a seed, Bool [N]: column s mod S of each."""
    columns = {name: data[name].view(len(data.x), -1).bool() for name in MASKS}
    return {name: of[:, seed % of.size(1)].contiguous() for name, of in columns.items()}


def _check_splits(data: Data) -> None:
    """Raise unless every column of the three masks is a split."""
    nodes = len(data.x)
    for name in MASKS:
        mask = data[name]
        fits = isinstance(mask, Tensor) and mask.dtype in (torch.bool, torch.uint8)
        if not fits or mask.dim() not in (1, 2) or len(mask) != nodes or not mask.numel():
            shown = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, Tensor) else repr(mask)
            raise ValueError(f"data.{name}: got {shown}, expected Bool [{nodes}] or [{nodes}, S]")
    for seed in range(max(data[name].numel() // nodes for name in MASKS)):
        try:
            check_masks(_given_split(data, seed), nodes)
        except ValueError as error:
            raise ValueError(f"{error}, in the split of seed {seed}") from error


def tensors_of(graphs: Sequence[Data]) -> Iterable[Tensor]:
    """All tensors of some graphs, in the order of their names, for a digest."""
    for graph in graphs:
        for _, value in sorted(graph.to_dict().items()):
            if isinstance(value, torch.Tensor) and value.layout in (
                torch.strided, torch.sparse_csr,
            ):  # fmt: skip
                yield value
