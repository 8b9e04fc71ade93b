"""Choose every option on validation, with one budget for all networks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from graphtheory.bench.lines import add_line, whole_text
from graphtheory.bench.spaces import space_of
from graphtheory.bench.trial import Trial, load, run_trial
from graphtheory.data.catalogue import key
from graphtheory.models.zoo import COMPARED


@dataclass(frozen=True)
class Judged:
    """One line of the search log.

    Attributes:
        dataset: Name of the graph.
        trial: What was tried.
        val: Mean validation score over the search's seeds, 0..1, 0 for one that diverged. Test
            scores are not looked at.
        parameters: Trainable numbers.
        seconds: Training time of all its seeds.
        seeds: How many splits it was judged on.
        epochs: Upper bound.
        patience: Epochs without a better validation score.
        split: Kind of split; None is the data set's own.
    """

    dataset: str
    trial: Trial
    val: float
    parameters: int
    seconds: float
    seeds: int
    epochs: int
    patience: int
    split: str | None = None

    @property
    def question(self) -> tuple[Any, ...]:
        """All that decides the score: what a search need not ask twice."""
        return self.dataset, self.split, self.trial, self.seeds, self.epochs, self.patience

    @classmethod
    def from_json(cls, line: str) -> Judged:
        """What a line of the log says."""
        values = json.loads(line)
        return cls(**values | {"trial": Trial.from_dict(values["trial"])})


@dataclass(frozen=True)
class Search:
    """Random search: `budget` candidates a network, each judged by its mean validation score.

    Attributes:
        dataset: Name of a graph.
        models: Names of networks.
        budget: Candidates a network.
        split: Kind of split; None is the data set's own.
        root: Folder with the raw files.
        log: File of JSON lines; candidates that stand in it, with the same data set, kind and
            number of splits, epochs and patience, are not run again.

    Raises:
        ValueError: The log has a line that is no candidate; the message says which.
    """

    dataset: str
    models: tuple[str, ...] = COMPARED
    budget: int = 8
    split: str | None = None
    root: Path | None = None
    log: Path | None = None

    def run(self, progress: Callable[[str, int, int], None] = lambda *_: None) -> list[Judged]:
        """The whole log of these networks and candidates, in the order tried."""
        space = space_of(self.dataset)
        known = {j.question: j for j in read_log(self.log)}
        epochs = space.search_epochs or space.epochs
        length = (space.search_seeds, epochs, space.patience)
        todo = [t for m in self.models for t in space.candidates(m, self.budget)]
        out = []
        for done, trial in enumerate(todo):
            progress(trial.model, done, len(todo))
            judged = known.get((key(self.dataset), self.split, trial, *length))
            out.append(judged or self._judge(trial, *length))
        return out

    def _judge(self, trial: Trial, seeds: int, epochs: int, patience: int) -> Judged:
        scores, seconds, parameters = [], 0.0, 0
        for seed in range(seeds):
            data = load(self.dataset, self.root, self.split, seed, **trial.inputs)
            try:
                outcome = run_trial(trial, data, seed=seed, epochs=epochs, patience=patience)
            except FloatingPointError:
                scores.append(0.0)  # it diverged
                continue
            scores.append(outcome.fit.val)
            seconds += outcome.fit.seconds_per_epoch * outcome.fit.epochs
            parameters = outcome.parameters
        judged = Judged(
            key(self.dataset), trial, mean(scores), parameters, seconds,
            seeds, epochs, patience, self.split,
        )  # fmt: skip
        if self.log is not None:
            add_line(self.log, asdict(judged))
        return judged


def read_log(path: Path | None) -> list[Judged]:
    """The lines of a search log, less a last one that was cut short; none when there is no file.

    Raises:
        ValueError: A line that is no candidate.
    """
    if path is None:
        return []
    out = []
    for number, line in enumerate(whole_text(path).splitlines(), 1):
        try:
            out.append(Judged.from_json(line))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"log: line {number} of {path} is no candidate of a search ({error!r}); mend or "
                "delete that line"
            ) from error
    return out


def best(log: list[Judged]) -> dict[str, Judged]:
    """The candidate of the highest validation score of each network, the earlier one on a tie."""
    out: dict[str, Judged] = {}
    for judged in log:
        model = judged.trial.model
        if model not in out or judged.val > out[model].val:
            out[model] = judged
    return out
