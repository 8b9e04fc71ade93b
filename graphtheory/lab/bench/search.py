"""Choose every option on validation, with one budget for all networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import mean
from typing import Any

from graphtheory.lab.bench.benchmark import named_task, thread_limit
from graphtheory.lab.bench.config import RunConfig
from graphtheory.lab.bench.finished import Finished, Settings
from graphtheory.lab.bench.graph_task import GraphRunConfig, TreesRunConfig
from graphtheory.lab.bench.node_config import NodeRunConfig
from graphtheory.lab.bench.own_model import OwnRunConfig
from graphtheory.lab.bench.table import ACCURACY, Measure
from graphtheory.lab.bench.task import BenchTask
from graphtheory.lab.train.score import SCORES
from graphtheory.lab.zoo.node_models import COMPARED

_SETTINGS = ("dataset", "split", "trial", "seeds", "epochs", "patience")


@dataclass(frozen=True)
class SearchResult:
    """One line of the search log: a candidate and its validation score."""

    dataset: str
    config: Any  # what was tried; "trial" in the log
    val: float  # mean over the seeds; of one that diverged 0, or infinity where lower is better
    parameters: int  # trainable ones
    seconds: float  # training time of all its seeds
    seeds: int  # on how many splits it was tried
    epochs: int  # upper bound
    patience: int  # epochs without a better validation score
    split: str | None = None  # lines of older logs have None for the data set's own

    def as_dict(self) -> dict[str, Any]:
        """The result as plain values under the names of a log's line."""
        values = {"trial" if name == "config" else name: of for name, of in vars(self).items()}
        return values | {"trial": self.config.as_dict()}


class SearchLog(Finished[SearchResult]):
    """The candidates that searches tried, a line each with the fields of `SearchResult`."""

    def line(self, settings: Settings, value: SearchResult) -> dict[str, Any]:
        """All fields, the settings among them; JSON has no infinity, which is written as null."""
        return value.as_dict() | {"val": value.val if value.val != inf else None}

    def read(self, line: dict[str, Any]) -> tuple[Settings, SearchResult]:
        """The inverse of `line`; options that an older log does not know have their defaults."""
        rest = {name: value for name, value in line.items() if name not in ("trial", "val")}
        val = inf if line["val"] is None else line["val"]
        found = SearchResult(config=config_from(line["trial"]), val=val, **rest)
        return {name: found.as_dict()[name] for name in _SETTINGS}, found


def config_from(values: dict[str, Any]) -> RunConfig:
    """The configuration of plain values: of nodes, graphs, fingerprints, or the user's own."""
    if "bits" in values:
        return TreesRunConfig.from_dict(values)
    if "source" in values:
        return OwnRunConfig.from_dict(values)
    return (GraphRunConfig if "nodes_per_batch" in values else NodeRunConfig).from_dict(values)


@dataclass(frozen=True)
class Search:
    """Random search: `budget` candidates a network; those that are in the log are not run again."""

    dataset: str | BenchTask
    models: tuple[str, ...] = COMPARED
    budget: int = 8
    split: str | None = None  # None is the data set's own
    root: Path | None = None
    log: Path | None = None  # file of a `SearchLog`; None keeps none
    epochs: int | None = None  # at most, for a candidate; None is what the space says
    threads: int | None = None  # that compute; None follows from the size of the graph

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"budget: got {self.budget}, expected 1 or more candidates")

    @property
    def tried(self) -> SearchLog:
        """The log as it is in the file now."""
        return SearchLog(self.log)

    def run(
        self, progress: Callable[[str, int, int], None] = lambda *_: None
    ) -> list[SearchResult]:
        """Try all candidates of these networks, and return them in the order tried."""
        given, log = self.dataset, self.tried
        task = named_task(given, self.split, self.root) if isinstance(given, str) else given
        spaces = {model: task.space(task.known_model(model)) for model in self.models}
        todo = [c for m, space in spaces.items() for c in space.candidates(m, self.budget)]
        out = []
        for done, config in enumerate(todo):
            progress(config.model, done, len(todo))
            space = spaces[config.model]
            epochs = space.search_epochs or space.epochs
            epochs, patience = min(epochs, self.epochs or epochs), space.search_patience
            length = (space.search_seeds, epochs, patience or space.patience)
            asked = (task.key, task.split, config.as_dict(), *length)
            settings = dict(zip(_SETTINGS, asked, strict=True))
            if (found := log.find(settings)) is None:
                with thread_limit(self.threads, task.num_nodes):
                    found = _try(task, config, *length)
                log.add(settings, found)
            out.append(found)
        return out


def _try(task: BenchTask, config: Any, seeds: int, epochs: int, patience: int) -> SearchResult:
    scores, seconds, parameters = [], 0.0, 0
    for seed in range(seeds):
        try:
            result = task.run(config, seed=seed, epochs=epochs, patience=patience)
        except FloatingPointError:
            scores.append(SCORES[task.measure.name].worst)  # it diverged
            continue
        scores.append(result.fit.val)
        seconds += result.fit.seconds_per_epoch * result.fit.epochs
        parameters = result.parameters
    trained = (mean(scores), parameters, seconds, seeds, epochs, patience)
    return SearchResult(task.key, config, *trained, task.split)


def best(log: list[SearchResult], measure: Measure = ACCURACY) -> dict[str, SearchResult]:
    """The candidate of the best validation score of each network, the earlier one on a tie."""
    out: dict[str, SearchResult] = {}
    for found in log:
        model = found.config.model
        if model not in out or measure.gain(found.val, out[model].val) > 0:
            out[model] = found
    return out
