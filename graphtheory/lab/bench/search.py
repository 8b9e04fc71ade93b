"""Choose the options of models on validation scores, by Optuna, with the same budget for each."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from statistics import fmean, median
from typing import Any

import optuna
from optuna.samplers import RandomSampler, TPESampler
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import TrialState

from graphtheory.lab.bench.benchmark import Benchmark, named_task, thread_limit
from graphtheory.lab.bench.config import Budget, RunConfig, replaced
from graphtheory.lab.bench.finished import signed, verified, whole_text
from graphtheory.lab.bench.graph_task import GraphRunConfig, TreesRunConfig
from graphtheory.lab.bench.node_config import NodeRunConfig
from graphtheory.lab.bench.own_model import OwnRunConfig
from graphtheory.lab.bench.rows import ACCURACY, Measure
from graphtheory.lab.bench.task import BenchTask
from graphtheory.lab.train.fit import quiet
from graphtheory.lab.train.score import SCORES
from graphtheory.lab.zoo.node_models import COMPARED

SLOW, POOR = "stopped: slow", "stopped: poor"
_FINALISTS, _SPLITS = 3, 3  # the best candidates, and on how many splits each is judged
_RANDOM = 5  # candidates before the sampler learns from them, the defaults among them
_DRAWS = 200  # in a row that are known or too large: the axes have hardly another one
_FIRST = 3  # epochs that show how long one takes
_PART = 4  # of a model's time that a candidate may need
_SLOWER = 10  # epochs of the defaults that one of a candidate may take
_REPORTS = 20  # scores of a candidate that the pruner sees

Told = dict[str, Any]  # options of a candidate, why it was stopped, and what each split gave


@dataclass(frozen=True)
class SearchResult:
    """A candidate and its validation score."""

    dataset: str
    config: Any  # what was tried; "trial" in plain values
    val: float  # mean over the splits; of one that diverged 0, or infinity where lower is better
    parameters: int  # trainable ones; 0 of a candidate without a whole run
    seconds: float  # of all its runs
    seeds: int  # on how many splits it was tried
    epochs: int  # upper bound
    patience: int  # epochs without a better validation score
    stopped: str = ""  # SLOW or POOR of one that is not chosen

    def as_dict(self) -> dict[str, Any]:
        """The result as plain values."""
        values = {"trial" if name == "config" else name: of for name, of in vars(self).items()}
        return values | {"trial": self.config.as_dict()}


def config_from(values: Mapping[str, Any]) -> RunConfig:
    """The configuration of plain values: of nodes, graphs, fingerprints, or the user's own."""
    if "bits" in values:
        return TreesRunConfig.from_dict(values)
    if "source" in values:
        return OwnRunConfig.from_dict(values)
    return (GraphRunConfig if "nodes_per_batch" in values else NodeRunConfig).from_dict(values)


def search(
    data: str | BenchTask,
    models: Sequence[str] = COMPARED,
    budget: Budget | int | str = 8,
    *,
    log: Path | None = None,
    epochs: int | None = None,
    patience: int | None = None,
    threads: int | None = None,
    progress: Callable[[str, int, int | None], None] = lambda *_: None,
) -> list[SearchResult]:
    """Try candidates of each model: its default options, then what Optuna draws.

    One that does worse than the median of those before is stopped, and one that takes too long:
    more than a quarter of its model's time or, without a limit of time, ten times as long an epoch
    as the defaults. The three best are judged on two more splits, as far as there is time.

    Args:
        data: A task, or the name of a data set, with its own split.
        models: Names of models that fit the data.
        budget: Candidates for each model, or the time for all models together, such as "30m".
        log: File that keeps what was tried, from which a search goes on; None keeps nothing.
        epochs: At most this many a run; None is the number of the default options.
        patience: Epochs without a better score after which a run ends; None is theirs.
        threads: That compute; None follows from the size of the graph.
        progress: Told before each run what it is, how many candidates there were, and of how many.

    Returns:
        All candidates, model by model, in the order in which they were tried.

    Raises:
        ValueError: If the budget is none, a model does not fit the data, or the log is damaged.
    """
    task = named_task(data) if isinstance(data, str) else data
    budget = budget if isinstance(budget, Budget) else Budget.of(budget)
    count, time_each = budget.candidates, budget.seconds and budget.seconds / max(1, len(models))
    total, found = count and count * len(models), list[SearchResult]()
    with quiet("optuna"), thread_limit(threads, task.num_nodes):
        storage = _storage(log)
        for study in [_Study(task, model, storage, epochs, patience) for model in models]:
            study.run(count, time_each, lambda text, done: progress(text, len(found) + done, total))
            found.extend(results_of(study.study))
    return found


def choose(
    bench: Benchmark,
    budget: Budget,
    log: Path | None,
    showing: AbstractContextManager[Callable[[str, int, int | None], None]],
) -> tuple[Benchmark, list[SearchResult]]:
    """Search the options of the models for which no search has chosen any, and take the best."""
    if not (models := bench.not_tuned()):
        return bench, []
    with showing as tell:
        tried = search(
            bench.task, models, budget, log=log, epochs=bench.epochs, patience=bench.patience,
            threads=bench.threads, progress=tell,
        )  # fmt: skip
    chosen = {model: one.config for model, one in best(tried, bench.task.measure).items()}
    return replace(bench, chosen=chosen, budget=budget), tried


def best(log: Sequence[SearchResult], measure: Measure = ACCURACY) -> dict[str, SearchResult]:
    """The best finalist of each model by mean validation score, the earlier one on a tie."""
    out: dict[str, SearchResult] = {}
    for found in log:
        if not found.stopped:
            there = out.setdefault(found.config.model, found)
            if (found.seeds - there.seeds, measure.gain(found.val, there.val)) > (0, 0.0):
                out[found.config.model] = found
    return out


def read_log(path: Path) -> list[SearchResult]:
    """What searches with this log have tried; nothing where there is no file.

    Raises:
        ValueError: If a line is damaged, or there is a log of an earlier version.
    """
    storage = _storage(path, reading=True)
    names = optuna.get_all_study_names(storage)
    studies = [optuna.load_study(study_name=name, storage=storage) for name in names]
    return [found for study in studies for found in results_of(study)]


def results_of(study: optuna.Study) -> list[SearchResult]:
    """The candidates of a study in the order in which they were tried."""
    return [
        SearchResult(
            config=config_from(one["options"]), stopped=one["stopped"],
            val=fmean(run["val"] for run in one["runs"]), seeds=len(one["runs"]),
            seconds=sum(run["seconds"] for run in one["runs"]),
            parameters=one["runs"][0]["parameters"], **study.user_attrs["about"],
        )
        for one in _tried(study).values()
    ]  # fmt: skip


def _tried(study: optuna.Study) -> dict[str, Told]:
    """The number of each candidate -> what is known of it."""
    return {name: told for name, told in study.user_attrs.items() if name != "about"}


class _StoppedError(Exception):
    """A candidate is not worth its remaining epochs."""


class _Study:
    """The candidates of one model: how they are drawn, trained and judged."""

    def __init__(
        self, task: BenchTask, model: str, storage: BaseStorage, epochs: int | None,
        patience: int | None,
    ) -> None:  # fmt: skip
        self.task, self.model, self.measure = task, model, task.measure
        self.default, own_epochs, own_patience = task.default(task.known_model(model))
        self.epochs, self.patience = epochs or own_epochs, patience or own_patience
        self.axes = task.axes(self.default)
        # All that decides what a candidate gives; under other settings it is another study.
        settings = task.run_settings(self.default, self.epochs, self.patience)
        digest = hashlib.sha256(repr([settings, self.axes]).encode()).hexdigest()[:12]
        self.study = optuna.create_study(
            storage=storage, study_name=f"{model} on {task.key}, {digest}", load_if_exists=True,
            direction="maximize" if self.measure.higher_is_better else "minimize",
            pruner=optuna.pruners.MedianPruner(_RANDOM - 1, self.epochs // 5),
        )  # fmt: skip
        if not self.study.user_attrs:
            about = {"dataset": task.key, "epochs": self.epochs, "patience": self.patience}
            self.study.set_user_attr("about", about)
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self.study.tell(trial.number, state=TrialState.FAIL)  # it was killed

    def run(
        self, count: int | None, seconds: float | None, tell: Callable[[str, int], None]
    ) -> None:
        """Try candidates, `count` of them or within that time, and judge the best again."""
        while self._wants(count, seconds) and (drawn := self._drawn()):
            tell(self._best(), len(_tried(self.study)))
            self._try(*drawn, seconds)
        for split in range(1, _SPLITS):
            finalists = self._finalists()
            left = {name: one for name, one in finalists.items() if len(one["runs"]) == split}
            late = seconds is not None and self._spent() + _first_runs(left) > seconds
            if len(finalists) < 2 or late:
                return
            for name, one in left.items():
                tell(f"{self._best()}, finalists on split {split}", len(_tried(self.study)) - 1)
                run = self._run(config_from(one["options"]), split)
                self.study.set_user_attr(name, one | {"runs": [*one["runs"], run]})

    def _wants(self, count: int | None, seconds: float | None) -> bool:
        """Whether to try another candidate; finalists need a part of the time."""
        tried = _tried(self.study)
        if seconds is None or not tried:
            return len(tried) < (count or 1)
        finals = (_SPLITS - 1) * _first_runs(self._finalists())
        return self._spent() + _first_runs(tried) / len(tried) + finals <= seconds

    def _spent(self) -> float:
        return sum(found.seconds for found in results_of(self.study))

    def _finalists(self) -> dict[str, Told]:
        """The candidates that did best on the first split."""
        whole = [item for item in _tried(self.study).items() if not item[1]["stopped"]]
        whole.sort(key=lambda item: self.measure.gain(0.0, item[1]["runs"][0]["val"]))
        return dict(whole[:_FINALISTS])

    def _best(self) -> str:
        """The model with the best score until now."""
        known = best(results_of(self.study), self.measure).get(self.model)
        return self.model + (f", best {self.measure.short(known.val)}" if known else "")

    def _drawn(self) -> tuple[optuna.Trial, Any] | None:
        """The next candidate, which follows from those before; None where there is no other."""
        known = [one["options"] for one in _tried(self.study).values()]
        if not known:
            like = self.default
            self.study.enqueue_trial({
                name: next(choice for choice, of in axis.items() if replaced(like, of) == like)
                for name, axis in self.axes.items()
            })  # fmt: skip
        for seed in range(_DRAWS * len(known), _DRAWS * (len(known) + 1)):
            again = seed % _DRAWS  # at random, as the sampler would insist
            self.study.sampler = (
                RandomSampler(seed) if again else TPESampler(n_startup_trials=_RANDOM, seed=seed)
            )
            trial, options = self.study.ask(), dict[str, Any]()
            for name, axis in self.axes.items():
                options |= axis[trial.suggest_categorical(name, list(axis))]
            config = replaced(self.default, options)
            if not known or (config.as_dict() not in known and self.task.fits(config)):
                return trial, config
            self.study.tell(trial, state=TrialState.FAIL)
        return None

    def _try(self, trial: optuna.Trial, config: Any, seconds: float | None) -> None:
        """Train a candidate on the first split, unless it turns out to be slow or poor."""
        defaults = next(iter(_tried(self.study).values()), None)
        if seconds is not None:  # all of which the defaults may need
            longest = seconds / (_PART if defaults else 1) / self.epochs
        else:
            longest = _SLOWER * defaults["runs"][0]["seconds_per_epoch"] if defaults else inf
        rows: list[Mapping[str, float]] = []

        def listen(row: Mapping[str, float]) -> None:
            rows.append(row)
            took = [one["seconds"] for one in rows]
            slow = len(rows) >= _FIRST and min(took) > longest  # the first may compile
            if slow or sum(took) > longest * self.epochs:
                raise _StoppedError(SLOW)
            if len(rows) % max(1, self.epochs // _REPORTS) == 0:
                trial.report(self._best_of(rows), len(rows))
                if trial.should_prune():
                    raise _StoppedError(POOR)

        began, stopped = time.perf_counter(), ""
        try:
            run = self._run(config, 0, listen)
        except _StoppedError as stop:
            stopped, spent = str(stop), time.perf_counter() - began
            run = {"val": self._best_of(rows), "parameters": 0, "seconds": spent}
        run["seconds_per_epoch"] = median(one["seconds"] for one in rows) if rows else inf
        told = {"options": config.as_dict(), "stopped": stopped, "runs": [run]}
        self.study.set_user_attr(str(trial.number), told)
        if stopped:
            self.study.tell(trial, state=TrialState.PRUNED)
        else:
            self.study.tell(trial, run["val"])

    def _best_of(self, rows: Sequence[Mapping[str, float]]) -> float:
        return max((row["val"] for row in rows), key=lambda val: self.measure.gain(val, 0.0))

    def _run(self, config: Any, split: int, listen: Any = False) -> Told:
        """Validation score, parameters and seconds of a run; one that diverges is the worst."""
        how: dict[str, Any] = {"epochs": self.epochs, "patience": self.patience}
        began = time.perf_counter()
        try:
            result = self.task.run(config, seed=split, progress=listen, **how)
            val, parameters = result.fit.val, result.parameters
        except FloatingPointError:
            val, parameters = SCORES[self.measure.name].worst, 0
        return {"val": val, "parameters": parameters, "seconds": time.perf_counter() - began}


def _first_runs(tried: Mapping[str, Told]) -> float:
    """The seconds that the first runs of candidates took."""
    return sum(one["runs"][0]["seconds"] for one in tried.values())


class _Journal(JournalFileBackend):
    """Optuna's log, with a digest in each line."""

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        super().append_logs([signed(log) for log in logs])


def _storage(log: Path | None, reading: bool = False) -> BaseStorage:
    """The studies of a file, all lines of which are verified; without a file those in memory."""
    if log is None or (reading and not log.exists() and not log.with_suffix(".jsonl").exists()):
        return InMemoryStorage()
    if (earlier := log.with_suffix(".jsonl")).exists():
        raise ValueError(
            f"{earlier} is the log of a search by an earlier version, which this one cannot go on "
            "with; rename or delete it, or take another folder"
        )
    for number, text in enumerate(whole_text(log).splitlines(), 1):
        try:
            verified(json.loads(text), always=True)
        except ValueError as error:
            raise ValueError(
                f"line {number} of {log} is no line of a search ({error!r}); delete the file, or "
                "take another folder"
            ) from error
    log.parent.mkdir(parents=True, exist_ok=True)
    return JournalStorage(_Journal(str(log), JournalFileOpenLock(str(log))))
