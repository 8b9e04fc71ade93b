"""What a benchmark and a search run on: labeled data, and the networks that learn them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from os import PathLike
from typing import Any, ClassVar

import torch

from graphtheory.lab.bench.facts import Facts
from graphtheory.lab.bench.finished import Settings
from graphtheory.lab.bench.measure import Measure, measure_of
from graphtheory.lab.bench.options import Options, checked_options, with_options
from graphtheory.lab.bench.scaling import scales_rows
from graphtheory.lab.bench.spaces import Space, node_space
from graphtheory.lab.bench.trial import (
    NodeTrial,
    Outcome,
    constant_of_nodes,
    load,
    run_trial,
    task_of,
)
from graphtheory.lab.bench.tuned import is_tuned, tuned_trial
from graphtheory.lab.datasets import graphs
from graphtheory.lab.datasets.catalogue import describe, key
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.metrics import mass_by_distance
from graphtheory.lab.train import Source, Task
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.models import GraphTransformer
from graphtheory.nn import attention_maps

Root = str | PathLike[str] | None
CONSTANT = "score of a constant prediction"  # among the findings of a run that is no better


class Problem(ABC):
    """Labeled data with its splits, and the networks that can be trained on it.

    Attributes:
        name: Of the data.
        split: Kind of split; None is the data's own.
        models: Names of the networks that fit.
        compared: Those that are compared where none are asked for.
        reads: What the networks read, in words.
        kept: Whether options that earlier searches chose for this data are taken.
    """

    models: ClassVar[tuple[str, ...]]
    compared: ClassVar[tuple[str, ...]]
    reads: ClassVar[str]
    kept = True

    def __init__(self, name: str, split: str | None = None, root: Root = None) -> None:
        self.name, self.split, self.root = name, split, root

    @property
    def key(self) -> str:
        """Under which name the search's winners are kept."""
        return key(self.name)

    def settings(self) -> Settings:
        """What a run on this data has to agree in."""
        return {"dataset": self.key, "split": self.split}

    def known_model(self, model: str) -> str:
        """The name itself.

        Raises:
            ValueError: If no network of that name fits.
        """
        if model not in self.models:
            raise ValueError(f"model: got {model!r}, expected one of {', '.join(self.models)}")
        return model

    def is_tuned(self, model: str) -> bool:
        """Whether a search has chosen this model's options on this data."""
        return self.kept and is_tuned(self.key, model)

    def checked_options(self, trials: Sequence[Any], given: Mapping[str, Any]) -> Options:
        """Options set by hand as these trials have them, after a look that they can be used here.

        Raises:
            ValueError: A name that none of the trials has, or a value that cannot be used.
        """
        found = checked_options(trials, given)
        for trial in trials if found else ():
            self.buildable(with_options(trial, found))
        return found

    @abstractmethod
    def buildable(self, trial: Any) -> Any:
        """The trial itself.

        Raises:
            ValueError: If its network cannot be built for this data.
        """

    @property
    @abstractmethod
    def measure(self) -> Measure:
        """How its scores are read."""

    @abstractmethod
    def space(self, model: str) -> Space:
        """What the search may choose from for a model."""

    @property
    @abstractmethod
    def num_nodes(self) -> int:
        """Nodes that are computed with at the same time."""

    @abstractmethod
    def trial(self, model: str) -> tuple[Any, int, int]:
        """The options to run for a model, tuned or default, with epochs and patience."""

    @abstractmethod
    def task(self, trial: Any, seed: int) -> tuple[Task, Source]:
        """The task of a trial and its batches, for `train.fit`."""

    @abstractmethod
    def run(self, trial: Any, *, seed: int, epochs: int, patience: int) -> Outcome:
        """Train once; split and everything random follow from `seed`."""

    @abstractmethod
    def constant(self, task: Task, batches: Source) -> float | None:
        """Test score of the best constant prediction; None where there is no test."""

    def learned_nothing(self, test: float | None, constant: float | None) -> bool:
        """Whether a test score is no better than that of a constant prediction."""
        if test is None or constant is None:
            return False
        return not self.measure.better(test, constant)

    def findings(self, outcome: Outcome) -> dict[str, Any]:
        """What is worth telling of a run; whether it is no better than a constant prediction."""
        nothing = self.learned_nothing(outcome.fit.test, outcome.constant)
        return {CONSTANT: outcome.constant} if nothing else {}


class NodeProblem(Problem):
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
        """How its scores are read."""
        return measure_of(describe(self.name).metric)

    def space(self, model: str) -> Space:
        """What the search may choose from, for every model."""
        space = node_space(self.facts).beginning_with(row_scale=self.scales_rows)
        size = NodeTrial("gcn").fitting(self.num_edges).sampling.batch_size
        return space if size is None else space.along("batch_size", size)

    @cached_property
    def facts(self) -> Facts:
        """What its options follow from, by the split of seed 0."""
        return Facts.of(graphs.load(self.name, self.root, split=self.split))

    @cached_property
    def scales_rows(self) -> bool:
        """Whether default options scale rows of features: by the validation labels of seed 0.

        Where they do not tell, rows are scaled if few nodes are labeled, as is the custom.
        """
        return scales_rows(self.data(0, row_scale=False), otherwise=self.facts.few_labels)

    @property
    def num_edges(self) -> int:
        """Its edges, 0 where they are not known before it is read."""
        return dict(describe(self.name).counts).get("edges", 0)

    def buildable(self, trial: NodeTrial) -> NodeTrial:
        """The trial itself, after a look that its network can be built."""
        with torch.random.fork_rng(devices=[]):
            zoo.build(trial.model, trial.network, num_features=1, num_classes=2)
        zoo.pattern_of(trial.model, trial.network)
        return trial

    @property
    def num_nodes(self) -> int:
        """All of them."""
        return self.facts.nodes

    def trial(self, model: str) -> tuple[NodeTrial, int, int]:
        """The options to run for a model, tuned or default, with epochs and patience."""
        if self.is_tuned(model):
            trial, epochs, patience = tuned_trial(self.key, model)
        else:
            space = self.space(self.known_model(model))
            trial, epochs, patience = space.candidates(model, 1)[0], space.epochs, space.patience
        return trial.fitting(self.num_edges), epochs, patience

    def task(self, trial: NodeTrial, seed: int) -> tuple[Task, Source]:
        """The task of a trial and its batches."""
        return task_of(trial, self.data(seed, **trial.inputs), seed)

    def constant(self, task: Any, batches: Any) -> float | None:
        """Test score of the best constant prediction."""
        return constant_of_nodes(batches.data, task)

    def run(self, trial: NodeTrial, *, seed: int, epochs: int, patience: int) -> Outcome:
        """Train once; split and everything random follow from `seed`."""
        data = self.data(seed, **trial.inputs)
        return run_trial(trial, data, seed=seed, epochs=epochs, patience=patience)

    def findings(self, outcome: Outcome) -> dict[str, Any]:
        """Attention of a graph transformer by distance, and its learned bias."""
        out = super().findings(outcome)
        model = outcome.model
        if not isinstance(model, GraphTransformer):
            return out
        batch = outcome.batches.evaluation_batch()
        weights = [found.weights for found in attention_maps(model, batch.x, batch.neighborhood)]
        out["attention_mass"] = mass_by_distance(weights, batch.neighborhood)
        if model.attention_layers()[0].bucket_bias is not None:
            out["bias"] = model.bucket_bias_table().tolist()
        return out
