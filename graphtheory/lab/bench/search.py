"""Choose every option on validation, with one budget for all networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from statistics import mean
from typing import Any

from graphtheory.lab.bench.fingerprints import FingerprintTrial
from graphtheory.lab.bench.finished import Finished, Settings
from graphtheory.lab.bench.graph_problem import named_problem
from graphtheory.lab.bench.graph_trial import GraphTrial
from graphtheory.lab.bench.measure import ACCURACY, Measure
from graphtheory.lab.bench.problem import Problem
from graphtheory.lab.bench.trial import NodeTrial
from graphtheory.lab.zoo.node_models import COMPARED


@dataclass(frozen=True)
class Judged:
    """One line of the search log.

    Attributes:
        dataset: Name of the graph.
        trial: What was tried.
        val: Mean validation score over the search's seeds, 0..1 or in the unit of the target; for
            one that diverged 0, or infinity where lower is better. Test scores are not looked at.
        parameters: Trainable numbers.
        seconds: Training time of all its seeds.
        seeds: How many splits it was judged on.
        epochs: Upper bound.
        patience: Epochs without a better validation score.
        split: Kind of split; lines of older logs have None for the data set's own.
    """

    dataset: str
    trial: Any
    val: float
    parameters: int
    seconds: float
    seeds: int
    epochs: int
    patience: int
    split: str | None = None


class SearchLog(Finished[Judged]):
    """The candidates that searches judged, a line each with the fields of `Judged`."""

    def line(self, settings: Settings, value: Judged) -> dict[str, Any]:
        """All fields, the settings among them; JSON has no infinity, which stands as null."""
        found = asdict(value)
        return found | {"val": found["val"] if found["val"] != inf else None}

    def read(self, line: dict[str, Any]) -> tuple[Settings, Judged]:
        """The inverse of `line`; options that an older log does not know have their defaults."""
        val = inf if line["val"] is None else line["val"]
        judged = Judged(**line | {"trial": trial_from(line["trial"]), "val": val})
        return {name: asdict(judged)[name] for name in _SETTINGS}, judged


def trial_from(values: dict[str, Any]) -> Any:
    """The trial of plain values: of nodes, of graphs, or of fingerprints."""
    if "bits" in values:
        return FingerprintTrial(**values)
    return (GraphTrial if "nodes_per_batch" in values else NodeTrial).from_dict(values)


_SETTINGS = ("dataset", "split", "trial", "seeds", "epochs", "patience")


@dataclass(frozen=True)
class Search:
    """Random search: `budget` candidates a network, each judged by its mean validation score.

    Attributes:
        dataset: Name of a graph or of a set of graphs, or your own data as a `Problem`.
        models: Names of networks.
        budget: Candidates a network.
        split: Kind of split; None is the data set's own.
        root: Folder with the raw files.
        log: File of a `SearchLog`; candidates that stand in it, with the same data set, kind and
            number of splits, epochs and patience, are not run again. None keeps none.
        epochs: At most so many for a candidate; None is what the space says.

    Raises:
        ValueError: No budget, or a log with a line that is no candidate; the message says which.
    """

    dataset: str | Problem
    models: tuple[str, ...] = COMPARED
    budget: int = 8
    split: str | None = None
    root: Path | None = None
    log: Path | None = None
    epochs: int | None = None

    def __post_init__(self) -> None:
        """Check."""
        if self.budget < 1:
            raise ValueError(f"budget: got {self.budget}, expected 1 or more candidates")

    @property
    def tried(self) -> SearchLog:
        """The log as it is in the file now.

        Raises:
            ValueError: A line that is no candidate; the message says which.
        """
        return SearchLog(self.log)

    def run(self, progress: Callable[[str, int, int], None] = lambda *_: None) -> list[Judged]:
        """The whole log of these networks and candidates, in the order tried."""
        given, log = self.dataset, self.tried
        problem = named_problem(given, self.split, self.root) if isinstance(given, str) else given
        spaces = {model: problem.space(problem.known_model(model)) for model in self.models}
        todo = [t for m, space in spaces.items() for t in space.candidates(m, self.budget)]
        out = []
        for done, trial in enumerate(todo):
            progress(trial.model, done, len(todo))
            space = spaces[trial.model]
            patience = space.search_patience or space.patience
            epochs = space.search_epochs or space.epochs
            length = (space.search_seeds, min(epochs, self.epochs or epochs), patience)
            asked = (problem.key, problem.split, trial.as_dict(), *length)
            settings = dict(zip(_SETTINGS, asked, strict=True))
            judged = log.find(settings)
            if judged is None:
                judged = self._judge(problem, trial, *length)
                log.add(settings, judged)
            out.append(judged)
        return out

    def _judge(
        self, problem: Problem, trial: Any, seeds: int, epochs: int, patience: int
    ) -> Judged:
        scores, seconds, parameters = [], 0.0, 0
        for seed in range(seeds):
            try:
                outcome = problem.run(trial, seed=seed, epochs=epochs, patience=patience)
            except FloatingPointError:
                scores.append(problem.measure.worst)  # it diverged
                continue
            scores.append(outcome.fit.val)
            seconds += outcome.fit.seconds_per_epoch * outcome.fit.epochs
            parameters = outcome.parameters
        return Judged(
            problem.key, trial, mean(scores), parameters, seconds,
            seeds, epochs, patience, problem.split,
        )  # fmt: skip


def best(log: list[Judged], measure: Measure = ACCURACY) -> dict[str, Judged]:
    """The candidate of the best validation score of each network, the earlier one on a tie."""
    out: dict[str, Judged] = {}
    for judged in log:
        model = judged.trial.model
        if model not in out or measure.better(judged.val, out[model].val):
            out[model] = judged
    return out
