"""Choose every option on validation, with one budget for all networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from graphtheory.bench.finished import Finished, Settings
from graphtheory.bench.spaces import space_of
from graphtheory.bench.trial import NodeTrial, load, run_trial
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
    trial: NodeTrial
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
        """All fields; the settings are among them."""
        return asdict(value)

    def read(self, line: dict[str, Any]) -> tuple[Settings, Judged]:
        """The inverse of `line`; options that an older log does not know have their defaults."""
        judged = Judged(**line | {"trial": NodeTrial.from_dict(line["trial"])})
        return {name: asdict(judged)[name] for name in _SETTINGS}, judged


_SETTINGS = ("dataset", "split", "trial", "seeds", "epochs", "patience")


@dataclass(frozen=True)
class Search:
    """Random search: `budget` candidates a network, each judged by its mean validation score.

    Attributes:
        dataset: Name of a graph.
        models: Names of networks.
        budget: Candidates a network.
        split: Kind of split; None is the data set's own.
        root: Folder with the raw files.
        log: File of a `SearchLog`; candidates that stand in it, with the same data set, kind and
            number of splits, epochs and patience, are not run again. None keeps none.

    Raises:
        ValueError: If the log has a line that is no candidate; the message says which.
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
        log = SearchLog(self.log)
        epochs = space.search_epochs or space.epochs
        length = (space.search_seeds, epochs, space.patience)
        todo = [t for m in self.models for t in space.candidates(m, self.budget)]
        out = []
        for done, trial in enumerate(todo):
            progress(trial.model, done, len(todo))
            asked = (key(self.dataset), self.split, trial.as_dict(), *length)
            settings = dict(zip(_SETTINGS, asked, strict=True))
            judged = log.find(settings)
            if judged is None:
                judged = self._judge(trial, *length)
                log.add(settings, judged)
            out.append(judged)
        return out

    def _judge(self, trial: NodeTrial, seeds: int, epochs: int, patience: int) -> Judged:
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
        return Judged(
            key(self.dataset), trial, mean(scores), parameters, seconds,
            seeds, epochs, patience, self.split,
        )  # fmt: skip


def best(log: list[Judged]) -> dict[str, Judged]:
    """The candidate of the highest validation score of each network, the earlier one on a tie."""
    out: dict[str, Judged] = {}
    for judged in log:
        model = judged.trial.model
        if model not in out or judged.val > out[model].val:
            out[model] = judged
    return out
