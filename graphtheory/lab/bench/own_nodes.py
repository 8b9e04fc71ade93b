"""The labeled nodes of one graph of the user's as a task of a benchmark, after all checks."""

import warnings
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Generator, Tensor

from graphtheory.lab.bench import node_config
from graphtheory.lab.bench.config import with_options
from graphtheory.lab.bench.linear import helpful_hops, hop_rows
from graphtheory.lab.bench.node_task import NodeBenchTask
from graphtheory.lab.bench.table import measure_of
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.datasets.node_readers import as_sparse_rows
from graphtheory.lab.datasets.splits import by_fraction
from graphtheory.lab.train import FullGraph
from graphtheory.lab.train.nodes import MASKS, check_masks
from graphtheory.lab.zoo import node_models as zoo

_RANDOM, _GIVEN = "random-60-20-20", "given"


class OwnNodes(NodeBenchTask):
    """One graph of the user's with a class for each node, -1 for none.

    Seed s takes column s mod S of masks [N, S]; without masks it draws 60, 20 and 20 percent.
    """

    def __init__(self, data: Data, name: str = "graph", metric: str = "accuracy") -> None:
        for unread in ("edge_weight", "edge_attr"):
            if data.get(unread) is not None:
                warnings.warn(f"data.{unread}: no network for nodes reads it here", stacklevel=2)
        y, given = _checked_labels(data), _has_masks(data)
        super().__init__(name, _GIVEN if given else _RANDOM)
        self.measure, self.own = measure_of(metric), data.clone()
        x = data.x.detach()  # as the networks read features: dense, or sparse by rows
        if x.layout not in (torch.strided, torch.sparse_csr):
            x = as_sparse_rows(x)
        self.own.x, self.own.y = x.to(torch.float32), y.long()
        _warn_of_scales(self.own.x)
        try:
            FullGraph(self.data(0, row_scale=False))  # which checks it
        except IndexError as error:
            raise ValueError(str(error)) from error
        self.sign([self.own])

    def data(self, seed: int, **inputs: bool) -> Data:
        data = self.own.clone()
        if self.split == _GIVEN:
            data.update(_given_split(data, seed))
        else:
            generator = Generator().manual_seed(seed)
            parts = by_fraction(data.y, val=0.2, test=0.2, generator=generator)
            data.update(dict(zip(MASKS, parts, strict=True)))
        data.name, data.split, data.metric = self.name, self.split, self.measure.name
        data.num_classes = int(data.y.max()) + 1
        return node_config.prepare(data, **inputs)

    @cached_property
    def sees_two_hops(self) -> bool:
        """Whether graph transformers begin with two hops: the second helps a linear classifier."""
        if self.facts.is_dense:
            return False
        return helpful_hops(hop_rows(self.data(0, row_scale=False), self.name)) > 1

    def default_of(self, model: str) -> tuple[node_config.NodeRunConfig, int, int]:
        config, epochs, patience = super().default_of(model)
        if model in zoo.ATTENDING and self.sees_two_hops:
            config = with_options(config, {"neighbors": "2"})
        return config, epochs, patience

    def remark(self, models: Sequence[str]) -> str:
        far = ", ".join(model for model in models if model in zoo.ATTENDING)
        return f"Two hops for {far}: see `diagnose`." if far and self.sees_two_hops else ""

    @property
    def num_edges(self) -> int:
        return int(self.own.num_edges)


def _checked_labels(data: Data) -> Tensor:
    x, y = data.x, data.get("y")
    if isinstance(y, Tensor) and y.dim() == 2 and y.size(1) == 1:
        y = y[:, 0]
    if not isinstance(y, Tensor) or y.is_floating_point() or y.is_complex() or y.dim() != 1:
        raise ValueError(f"data.y: got {_shape(y)}, expected whole numbers [N], a class for each")
    if not isinstance(x, Tensor) or not len(x) or len(y) != len(x):
        rows = f"{len(x)} rows" if isinstance(x, Tensor) else repr(x)
        raise ValueError(f"data.x: got {rows} beside {len(y)} labels, expected one for each")
    if x.dim() != 2 or x.is_complex():
        raise ValueError(f"data.x: got {_shape(x)}, expected real numbers [N, F]")
    largest, labeled = int(y.max()), int((y >= 0).sum())
    if not 1 <= largest < labeled:
        raise ValueError(
            f"data.y: the largest class is {largest} among {labeled} nodes with one, expected "
            "two classes or more, numbered from 0"
        )
    return y


def _warn_of_scales(x: Tensor) -> None:
    """Warn of columns that are far larger than others, and drown them."""
    sizes = x.abs().amax(0) if x.layout == torch.strided else torch.zeros(1)
    least = min(sizes[sizes > 0].tolist(), default=0.0)
    if large := (sizes > 100 * max(least, 1.0)).nonzero().flatten().tolist():
        warnings.warn(
            f"data.x: columns {large[:5]} of {x.size(1)} have values up to {sizes.max():,.4g}, "
            f"others up to {least:.4g}, which drown among them; standardize first: x = (x - "
            "x.mean(0)) / x.std(0).clamp(min=1e-6)", stacklevel=3,
        )  # fmt: skip


def _shape(value: object) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else repr(value)


def _given_split(data: Data, seed: int) -> dict[str, Tensor]:
    """The masks of a seed, Bool [N]: column s mod S of each."""
    columns = {name: data[name].view(len(data.x), -1).bool() for name in MASKS}
    return {name: of[:, seed % of.size(1)].contiguous() for name, of in columns.items()}


def _has_masks(data: Data) -> bool:
    """Whether there are masks, every column of which has to be a split."""
    lacking, nodes = [name for name in MASKS if data.get(name) is None], len(data.x)
    if len(lacking) == len(MASKS):
        return False
    if lacking:
        missing = ", ".join(lacking)
        raise ValueError(f"data: {missing} is missing, expected all three masks or none")
    for name in MASKS:
        mask = data[name]
        fits = isinstance(mask, Tensor) and mask.dtype in (torch.bool, torch.uint8)
        if not fits or mask.dim() not in (1, 2) or len(mask) != nodes or not mask.numel():
            raise ValueError(
                f"data.{name}: got {_shape(mask)}, expected Bool [{nodes}] or [{nodes}, S]"
            )
    for seed in range(max(data[name].numel() // nodes for name in MASKS)):
        try:
            check_masks(_given_split(data, seed), nodes)
        except ValueError as error:
            raise ValueError(f"{error}, in the split of seed {seed}") from error
    return True
