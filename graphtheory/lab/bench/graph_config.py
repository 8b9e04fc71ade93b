"""One network for graphs: its options and its training on one split of one set of graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphtheory.lab.bench.config import RunConfig, RunResult, constant_score, trainable
from graphtheory.lab.datasets.graph_sets import GraphSet
from graphtheory.lab.train import AdamOptions, GraphSets, GraphTask, fit
from graphtheory.lab.zoo import graph_models as graph_zoo
from graphtheory.lab.zoo.graph_models import GraphNetwork

_ATTENTION = (*graph_zoo.ATTENDING, "gatv2")
_ENCODED = ("num_buckets", "value_encoding", "paths", "resistance", "bias_lr")


@dataclass(frozen=True)
class GraphRunConfig(RunConfig):
    """A network for graphs with its options.

    Attributes:
        model: One of `graph_zoo.NAMES`.
        network: Options of the network.
        optimizer: Options of Adam.
        nodes_per_batch: About how many nodes make a batch.
    """

    network: graph_zoo.GraphConfig = field(default_factory=graph_zoo.GraphConfig)
    optimizer: AdamOptions = field(default_factory=lambda: AdamOptions(1e-3, 0.0))
    nodes_per_batch: int = 1024
    readers: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "heads": _ATTENTION, "attention_dropout": _ATTENTION,
        "neighbors": graph_zoo.ATTENDING, "local": graph_zoo.ATTENDING,
    } | dict.fromkeys(_ENCODED, ("gt",))  # fmt: skip

    @property
    def precomputed(self) -> dict[str, int]:
        """What the graphs have to hold beside their features."""
        return graph_zoo.precomputed(self.model, self.network)


def graph_task_of(
    config: GraphRunConfig, facts: GraphSet, graphs: Sequence[Any], seed: int
) -> tuple[GraphTask, GraphSets]:
    """The task of a configuration and its batches; weights and order follow from `seed`.

    Args:
        config: What is trained.
        facts: The set: its kind of labels, its split and its categories.
        graphs: Its graphs, with what `config.precomputed` names.
        seed: Of everything random.
    """
    batches = GraphSets(
        graphs, facts.train_index, facts.val_index, facts.test_index,
        nodes_per_batch=config.nodes_per_batch, name=facts.name, seed=seed,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):  # the caller's state comes back
        torch.manual_seed(seed)
        model = network_of(config, facts)
    task = GraphTask(
        model, kind=facts.kind, num_outputs=facts.num_outputs, metric=facts.metric,
        evaluator=facts.evaluator, optimizer=config.optimizer,
        statistics=batches.statistics() if facts.kind == "regression" else None,
    )  # fmt: skip
    return task, batches


def network_of(config: GraphRunConfig, facts: GraphSet) -> GraphNetwork:
    """Build the untrained network of a configuration.

    Raises:
        ValueError: An option that the network or the set does not allow.
    """
    first = facts[0]
    edges = first.get("edge_attr")
    return graph_zoo.build(
        config.model, config.network,
        node_in=_columns(first.x, facts.x_categories),
        edge_in=None if edges is None else _columns(edges, facts.edge_categories),
        num_outputs=facts.num_outputs, level=facts.level,
    )  # fmt: skip


def train_graphs(
    config: GraphRunConfig, facts: GraphSet, graphs: Sequence[Any], *, seed: int, epochs: int,
    patience: int,
) -> RunResult:  # fmt: skip
    """Train once on a set of graphs; everything random follows from `seed`."""
    task, batches = graph_task_of(config, facts, graphs, seed)
    result = fit(task, batches, epochs=epochs, patience=patience, seed=seed, progress=False)
    constant = constant_of_graphs(task, batches)
    return RunResult(result, task.evaluated, batches, trainable(task.model), constant)


def constant_of_graphs(task: GraphTask, batches: GraphSets) -> float | None:
    """Test score of the best constant prediction for graphs; None where there is no test."""
    if not len(batches.test):
        return None
    train, test = (
        torch.cat([batches.graphs[i].y for i in part.tolist()])
        for part in (batches.train, batches.test)
    )
    return constant_score(task.score, task.kind, train, test, task.num_classes)


def _columns(values: Tensor, categories: tuple[int, ...] | None) -> graph_zoo.Columns:
    return values.size(1) if categories is None else tuple(categories)
