"""Networks for nodes side by side on one graph: the same splits, seeds, features and training."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from graphtheory.bench.finished import Finished, Settings
from graphtheory.bench.trial import NodeOutcome, NodeTrial, load, run_trial
from graphtheory.bench.tuned import is_tuned, tuned_trial
from graphtheory.data.catalogue import key
from graphtheory.metrics.attention_mass import mass_by_distance
from graphtheory.models import GraphTransformer
from graphtheory.models.zoo import COMPARED
from graphtheory.nn import attention_maps


@dataclass(frozen=True)
class Run:
    """One row of a benchmark: a model on one seed.

    Attributes:
        model: Name of the network.
        seed: Number of the split and of everything random.
        test: Score at the epoch of best validation (0..1).
        val: That validation score.
        parameters: Trainable numbers.
        seconds_per_epoch: Median, evaluation included.
        peak_mb: Growth of memory during training.
        epochs: Epochs trained.
        history: Epoch by epoch: epoch, train_loss, val_loss, val, test.
        extra: Findings on a graph transformer: "attention_mass", rows (layer, distance, mass,
            uniform), and with encoding "bias" [layers][Z][heads].
    """

    model: str
    seed: int
    test: float
    val: float
    parameters: int
    seconds_per_epoch: float
    peak_mb: float
    epochs: int
    history: list[dict[str, float]]
    extra: dict[str, Any]


class FinishedRuns(Finished[Run]):
    """The runs of a benchmark by model and seed: lines ``{"settings": ..., "run": ...}``."""

    named_by = ("model", "seed")

    def line(self, settings: Settings, value: Run) -> dict[str, Any]:
        """The seed stands in the run alone."""
        shared = {name: value for name, value in settings.items() if name != "seed"}
        return {"settings": shared, "run": asdict(value)}

    def read(self, line: dict[str, Any]) -> tuple[Settings, Run]:
        """The inverse of `line`."""
        run = Run(**line["run"])
        return line["settings"] | {"model": run.model, "seed": run.seed}, run


Progress = Callable[[str, int, int], None]
"""(model, runs done, runs in all), called before each run."""


@dataclass(frozen=True)
class Benchmark:
    """Train models side by side.

    Attributes:
        dataset: Name of a graph; `graphtheory.data.graphs.names()` lists them.
        models: Names of networks, in the order of the table.
        seeds: Number of seeds; seed s uses published split s.
        split: Kind of split; None is the data set's own.
        root: Folder with the raw files; not needed for embedded sets.
        epochs: Upper bound; None is the data set's own.
        patience: Epochs without a better validation score before stopping; None is the data set's
            own.
        record: Where finished runs are kept and taken from; None keeps none.
        finished: Called with each run that was trained now.
    """

    dataset: str = "digits"
    models: tuple[str, ...] = COMPARED
    seeds: int = 10
    split: str | None = None
    root: Path | None = None
    epochs: int | None = None
    patience: int | None = None
    record: FinishedRuns | None = field(default=None, kw_only=True)
    finished: Callable[[Run], None] = field(default=lambda _: None, kw_only=True)

    @property
    def total(self) -> int:
        """How many runs there are."""
        return self.seeds * len(self.models)

    def trial(self, model: str) -> tuple[NodeTrial, int, int]:
        """The tuned trial of a model here, with epochs and patience."""
        trial, epochs, patience = tuned_trial(self.dataset, model, self.split)
        epochs = epochs if self.epochs is None else self.epochs
        return trial, epochs, patience if self.patience is None else self.patience

    def not_tuned(self) -> tuple[str, ...]:
        """The models whose options no search has chosen on this data set."""
        return tuple(model for model in self.models if not is_tuned(self.dataset, model))

    def run(self, progress: Progress = lambda *_: None) -> list[Run]:
        """Every model on every seed, seed by seed so that an interrupted run is comparable."""
        rows: list[Run] = []
        for model, seed in self._pairs():
            progress(model, len(rows), self.total)
            run = self._known(model, seed)
            if run is None:
                _give_memory_back()
                run = self._trained(model, seed)
                if self.record is not None:
                    self.record.add(self.settings(model) | {"seed": seed}, run)
                self.finished(run)
            rows.append(run)
        return rows

    def count_known(self) -> int:
        """How many of the runs the record holds already.

        Raises:
            ValueError: If it holds some of them, made under other settings.
        """
        return sum(self._known(model, seed) is not None for model, seed in self._pairs())

    def settings(self, model: str) -> Settings:
        """What a run of this model has to agree in."""
        trial, epochs, patience = self.trial(model)
        return {
            "dataset": key(self.dataset), "split": self.split,
            "epochs": epochs, "patience": patience, **trial.as_dict(),
        }  # fmt: skip

    def _pairs(self) -> list[tuple[str, int]]:
        return [(model, seed) for seed in range(self.seeds) for model in self.models]

    def _known(self, model: str, seed: int) -> Run | None:
        if self.record is None:
            return None
        return self.record.find(self.settings(model) | {"seed": seed})

    def _trained(self, model: str, seed: int) -> Run:
        trial, epochs, patience = self.trial(model)
        data = load(self.dataset, self.root, self.split, seed, **trial.inputs)
        outcome = run_trial(trial, data, seed=seed, epochs=epochs, patience=patience)
        fit = outcome.fit
        assert fit.test is not None
        return Run(
            model, seed, fit.test, fit.val, outcome.parameters, fit.seconds_per_epoch, fit.peak_mb,
            fit.epochs, fit.history, _findings(outcome),
        )  # fmt: skip


def _findings(outcome: NodeOutcome) -> dict[str, Any]:
    model, batch = outcome.model, outcome.batches.evaluation_batch()
    if not isinstance(model, GraphTransformer):
        return {}
    weights = [found.weights for found in attention_maps(model, batch.x, batch.neighborhood)]
    out: dict[str, Any] = {"attention_mass": mass_by_distance(weights, batch.neighborhood)}
    if model.attention_layers()[0].bucket_bias is not None:
        out["bias"] = model.bucket_bias_table().tolist()
    return out


def _give_memory_back() -> None:
    """Hand freed memory to the system: what a run reuses of it would be missing from its peak."""
    gc.collect(1)  # a full one would take longer than a small run
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:  # glibc has it
        trim(0)
