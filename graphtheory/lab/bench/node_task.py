"""The labeled nodes of one graph, of a data set by its name or the user's own, as a task."""

import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor

from graphtheory.lab.bench import node_config
from graphtheory.lab.bench.config import Axes, RunConfig, axes_of, with_options
from graphtheory.lab.bench.linear import helpful_hops, hop_rows, scales_rows
from graphtheory.lab.bench.node_config import GraphFacts, NodeRunConfig, load, node_default, task_of
from graphtheory.lab.bench.table import Measure, measure_of
from graphtheory.lab.bench.task import BenchTask, RunResult, trainable
from graphtheory.lab.datasets.catalogue import describe
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.datasets.node_readers import as_sparse_rows
from graphtheory.lab.datasets.splits import by_fraction
from graphtheory.lab.metrics import mass_by_distance
from graphtheory.lab.train import FullGraph, Source, Task
from graphtheory.lab.train.nodes import MASKS, check_masks
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.nn import attention_maps


class NodeBenchTask(BenchTask):
    """The labeled nodes of one graph."""

    models = zoo.NAMES
    compared = zoo.COMPARED
    reads = "the nodes of one graph"

    def data(self, seed: int, **inputs: bool) -> Data:
        """The graph with the split of that seed, its features prepared."""
        return load(self.name, self.root, self.split, self.split_of(seed), **inputs)

    @cached_property
    def measure(self) -> Measure:
        return measure_of(describe(self.name).metric)

    def default_of(self, model: str) -> tuple[NodeRunConfig, int, int]:
        config, epochs, patience = node_default(self.facts, model, self.scales_rows)
        return config.fitting(self.num_edges), epochs, patience

    def axes(self, config: Any) -> Axes:
        """The same for every graph, but that two hops are left out where they reach too many."""
        found = axes_of("node", config)
        return {n: axis for n, axis in found.items() if n != "neighbors" or not self.facts.is_dense}

    def fits(self, config: Any) -> bool:
        """Whether a network has no more trainable parameters than its graph can teach.

        50,000, or where these are more, ten for each edge and each feature of a node. It keeps
        candidates small on a tiny graph, where wide and deep networks are as fast as others.
        """
        if config.model in self.own_models:
            return True
        facts, network = self.facts, config.network
        with torch.random.fork_rng(devices=[]):
            built = zoo.build(config.model, network, num_features=facts.features, num_classes=2)
        return trainable(built) <= max(50_000, 10 * (facts.edges + facts.nodes * facts.features))

    @cached_property
    def scales_rows(self) -> bool:
        """Whether default options scale rows: by validation labels, else where labels are few."""
        return scales_rows(self.data(0, row_scale=False), otherwise=self.facts.few_labels)

    @cached_property
    def facts(self) -> GraphFacts:
        """The statistics that its default options depend on, by the split of seed 0."""
        return GraphFacts.of(self.data(0, row_scale=False, undirected=False))

    @property
    def num_edges(self) -> int:
        """The number of edges, 0 where it is not known before the graph is read."""
        return dict(describe(self.name).counts).get("edges", 0)

    def check_buildable(self, config: NodeRunConfig) -> None:
        with torch.random.fork_rng(devices=[]):
            zoo.build(config.model, config.network, num_features=1, num_classes=2)
        zoo.pattern_of(config.model, config.network)

    @cached_property
    def num_nodes(self) -> int:
        return self.facts.nodes

    def config_kind(self, model: str) -> type[RunConfig]:
        return NodeRunConfig

    def config(self, model: str, epochs: int | None = None) -> tuple[NodeRunConfig, int, int]:
        config, longest, patience = super().config(model, epochs)
        if model in self.own_models:
            return config, longest, patience
        return config.fitting(self.num_edges), longest, patience

    def prepare(self, config: NodeRunConfig, seed: int) -> tuple[Task, Source]:
        own = self.own_models.get(config.model)
        inputs = {"row_scale": config.row_scale} if own else config.inputs
        return task_of(config, self.data(seed, **inputs), seed, own.network if own else None)

    def attention_mass(self, result: RunResult) -> list[dict[str, float | int]]:
        batch = result.batches.evaluation_batch()
        maps = attention_maps(result.model, batch.x, batch.neighborhood)
        return mass_by_distance([found.weights for found in maps], batch.neighborhood)


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
