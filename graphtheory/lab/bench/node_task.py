"""The labeled nodes of one graph of a data set, by its name, as a task of a benchmark."""

from functools import cached_property
from typing import Any

import torch

from graphtheory.lab.bench.config import Axes, RunConfig, axes_of
from graphtheory.lab.bench.linear import scales_rows
from graphtheory.lab.bench.node_config import GraphFacts, NodeRunConfig, load, node_default, task_of
from graphtheory.lab.bench.run_result import RunResult, trainable
from graphtheory.lab.bench.table import Measure, measure_of
from graphtheory.lab.bench.task import BenchTask
from graphtheory.lab.datasets.catalogue import describe
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.metrics import mass_by_distance
from graphtheory.lab.train import Source, Task
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
