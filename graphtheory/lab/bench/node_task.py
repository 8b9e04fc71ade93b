"""The labeled nodes of one graph as a task of a benchmark: by name, or the user's own."""

from __future__ import annotations

import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from graphtheory.lab.bench.config import RunResult
from graphtheory.lab.bench.measure import Measure, measure_of
from graphtheory.lab.bench.node_config import (
    NodeRunConfig,
    constant_of_nodes,
    load,
    prepare,
    task_of,
    train_nodes,
)
from graphtheory.lab.bench.scaling import scales_rows
from graphtheory.lab.bench.spaces import GraphFacts, Space, node_space
from graphtheory.lab.bench.task import BenchTask, OwnData
from graphtheory.lab.bench.tuned import tuned_config
from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.catalogue import describe
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.datasets.splits import by_fraction
from graphtheory.lab.metrics import mass_by_distance
from graphtheory.lab.train import FullGraph, Source, Task
from graphtheory.lab.train.nodes import MASKS, check_masks
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.models import GraphTransformer
from graphtheory.nn import attention_maps

_RANDOM, _GIVEN = "random-60-20-20", "given"


class NodeBenchTask(BenchTask):
    """The labeled nodes of one graph.

    Args:
        name: Of the graph; of `datasets.graphs.names("node")` where it is loaded by name.
        split: Kind of split; None is the data set's own.
        root: Folder with the raw files.
    """

    models = zoo.NAMES
    compared = zoo.COMPARED
    reads = "the nodes of one graph"

    def data(self, seed: int, **inputs: bool) -> Data:
        """The graph with the split of that seed, its features prepared."""
        return load(self.name, self.root, self.split, seed, **inputs)

    @property
    def measure(self) -> Measure:
        return measure_of(describe(self.name).metric)

    def space(self, model: str) -> Space:
        space = node_space(self.facts).beginning_with(row_scale=self.scales_rows)
        size = NodeRunConfig("gcn").fitting(self.num_edges).sampling.batch_size
        return space if size is None else space.along("batch_size", size)

    @cached_property
    def facts(self) -> GraphFacts:
        """The statistics that its default options depend on, by the split of seed 0."""
        return GraphFacts.of(graphs.load(self.name, self.root, split=self.split))

    @cached_property
    def scales_rows(self) -> bool:
        """Whether default options scale rows of features: by the validation labels of seed 0.

        Where they do not tell, rows are scaled if few nodes are labeled, as is the custom.
        """
        return scales_rows(self.data(0, row_scale=False), otherwise=self.facts.few_labels)

    @property
    def num_edges(self) -> int:
        """The number of edges, 0 where it is not known before the graph is read."""
        return dict(describe(self.name).counts).get("edges", 0)

    def check_buildable(self, config: NodeRunConfig) -> None:
        with torch.random.fork_rng(devices=[]):
            zoo.build(config.model, config.network, num_features=1, num_classes=2)
        zoo.pattern_of(config.model, config.network)

    @property
    def num_nodes(self) -> int:
        return self.facts.nodes

    def config(self, model: str, epochs: int | None = None) -> tuple[NodeRunConfig, int, int]:
        if self.is_tuned(model):
            config, longest, patience = tuned_config(self.key, model)
        else:
            space = self.space(self.known_model(model))
            config, longest, patience = space.candidates(model, 1)[0], space.epochs, space.patience
        return config.fitting(self.num_edges), longest if epochs is None else epochs, patience

    def prepare(self, config: NodeRunConfig, seed: int) -> tuple[Task, Source]:
        return task_of(config, self.data(seed, **config.inputs), seed)

    def constant(self, task: Any, batches: Any) -> float | None:
        return constant_of_nodes(batches.data, task)

    def run(
        self, config: NodeRunConfig, *, seed: int, epochs: int, patience: int,
        out_dir: Path | None = None,
    ) -> RunResult:  # fmt: skip
        data = self.data(seed, **config.inputs)
        return train_nodes(config, data, seed=seed, epochs=epochs, patience=patience)

    def analysis(self, result: RunResult) -> dict[str, Any]:
        """The base's, attention of a graph transformer by distance, and its learned bias."""
        out = super().analysis(result)
        model = result.model
        if not isinstance(model, GraphTransformer):
            return out
        batch = result.batches.evaluation_batch()
        weights = [found.weights for found in attention_maps(model, batch.x, batch.neighborhood)]
        out["attention_mass"] = mass_by_distance(weights, batch.neighborhood)
        if model.attention_layers()[0].bucket_bias is not None:
            out["bias"] = model.bucket_bias_table().tolist()
        return out


class OwnNodes(OwnData, NodeBenchTask):
    """One graph of the user's with a class for each node.

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
        for unread in ("edge_weight", "edge_attr"):
            if data.get(unread) is not None:
                warnings.warn(f"data.{unread}: no network for nodes reads it here", stacklevel=2)
        y, given = _checked_labels(data), _has_masks(data)
        super().__init__(name, _GIVEN if given else _RANDOM)
        self._measure, self.own = measure_of(metric), data.clone()
        self.own.x, self.own.y = _as_float32(data.x), y.long()
        try:
            FullGraph(self.data(0, row_scale=False))  # which checks it
        except IndexError as error:
            raise ValueError(str(error)) from error
        self.sign([self.own])

    @property
    def measure(self) -> Measure:
        return self._measure

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
        return prepare(data, **inputs)

    @cached_property
    def facts(self) -> GraphFacts:
        return GraphFacts.of(self.data(0))

    @property
    def num_edges(self) -> int:
        return int(self.own.num_edges)


def _checked_labels(data: Data) -> Tensor:
    """The classes [N] of a graph whose features fit them."""
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


def _shape(value: object) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else repr(value)


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


def _has_masks(data: Data) -> bool:
    """Whether there are masks, every column of which has to be a split."""
    lacking = [name for name in MASKS if data.get(name) is None]
    if len(lacking) == len(MASKS):
        return False
    if lacking:
        missing = ", ".join(lacking)
        raise ValueError(f"data: {missing} is missing, expected all three masks or none")
    nodes = len(data.x)
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
