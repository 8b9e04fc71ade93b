"""One network for graphs with one set of options, trained on one split of one set of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from graphtheory.lab.bench.trial import Outcome, constant_score, trainable
from graphtheory.lab.datasets.graph_sets import GraphSet
from graphtheory.lab.train import AdamOptions, GraphSets, GraphTask, fit
from graphtheory.lab.zoo import graph_models as graph_zoo
from graphtheory.lab.zoo.graph_network import GraphNetwork


@dataclass(frozen=True)
class GraphTrial:
    """Everything that is chosen on validation.

    Attributes:
        model: One of `graph_zoo.NAMES`.
        network: Options of the network.
        optimizer: Options of Adam.
        nodes_per_batch: About so many nodes make a batch.
    """

    model: str
    network: graph_zoo.GraphConfig = field(default_factory=graph_zoo.GraphConfig)
    optimizer: AdamOptions = field(default_factory=lambda: AdamOptions(1e-3, 0.0))
    nodes_per_batch: int = 1024

    @property
    def precomputed(self) -> dict[str, int]:
        """What the graphs have to hold beside their features."""
        return graph_zoo.precomputed(self.model, self.network)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a log."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> GraphTrial:
        """The inverse of `as_dict`; options that are not named have their defaults."""
        return cls(
            values["model"],
            graph_zoo.GraphConfig(**values["network"]),
            AdamOptions(**values["optimizer"]),
            values["nodes_per_batch"],
        )


def graph_task_of(
    trial: GraphTrial, facts: GraphSet, graphs: Sequence[Any], seed: int
) -> tuple[GraphTask, GraphSets]:
    """The task of a trial and its batches; weights and order follow from `seed`.

    Args:
        trial: What is trained.
        facts: The set: its kind of labels, its split and its categories.
        graphs: Its graphs, with what `trial.precomputed` names.
        seed: Of everything random.
    """
    batches = GraphSets(
        graphs, facts.train_index, facts.val_index, facts.test_index,
        nodes_per_batch=trial.nodes_per_batch, name=facts.name, seed=seed,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):  # the caller's state comes back
        torch.manual_seed(seed)
        model = network_of(trial, facts)
    task = GraphTask(
        model, kind=facts.kind, num_outputs=facts.num_outputs, metric=facts.metric,
        evaluator=facts.evaluator, optimizer=trial.optimizer,
        statistics=batches.statistics() if facts.kind == "regression" else None,
    )  # fmt: skip
    return task, batches


def network_of(trial: GraphTrial, facts: GraphSet) -> GraphNetwork:
    """The untrained network of a trial.

    Raises:
        ValueError: An option that the network or the set does not allow.
    """
    first = facts[0]
    edges = first.get("edge_attr")
    return graph_zoo.build(
        trial.model, trial.network,
        node_in=_columns(first.x, facts.x_categories),
        edge_in=None if edges is None else _columns(edges, facts.edge_categories),
        num_outputs=facts.num_outputs, level=facts.level,
    )  # fmt: skip


def run_graph_trial(
    trial: GraphTrial,
    facts: GraphSet,
    graphs: Sequence[Any],
    *,
    seed: int,
    epochs: int,
    patience: int,
) -> Outcome:
    """Train once; everything random follows from `seed`."""
    task, batches = graph_task_of(trial, facts, graphs, seed)
    result = fit(task, batches, epochs=epochs, patience=patience, seed=seed, progress=False)
    constant = constant_of_graphs(task, batches)
    return Outcome(result, task.evaluated, batches, trainable(task.model), constant)


def constant_of_graphs(task: GraphTask, batches: GraphSets) -> float | None:
    """Test score of the best constant prediction for graphs; None where there is no test."""
    if not len(batches.test):
        return None
    train, test = (labels(batches.graphs, part) for part in (batches.train, batches.test))
    return constant_score(task.score, task.kind, train, test, task.num_classes)


def labels(graphs: Sequence[Any], positions: Tensor) -> Tensor:
    """The labels of these graphs, one after the other."""
    return torch.cat([graphs[i].y for i in positions.tolist()])


def _columns(values: Tensor, categories: tuple[int, ...] | None) -> graph_zoo.Columns:
    return values.size(1) if categories is None else tuple(categories)
