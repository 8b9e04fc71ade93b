"""Networks side by side on one task: the same splits, seeds, features and training."""

import ctypes
import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import KW_ONLY, asdict, dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from graphtheory.lab.bench.config import Budget, describe_options, ignores, with_options
from graphtheory.lab.bench.finished import Finished, Settings
from graphtheory.lab.bench.graph_task import GraphBenchTask, OwnGraphs
from graphtheory.lab.bench.node_task import NodeBenchTask, OwnNodes
from graphtheory.lab.bench.task import BenchTask, Root, RunResult
from graphtheory.lab.datasets.catalogue import describe
from graphtheory.lab.datasets.graph_sets import GraphSet
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.datasets.own_graphs import read_graph_file
from graphtheory.lab.progress import Steps
from graphtheory.lab.zoo.node_models import COMPARED

NODE, GRAPH = "node", "graph"
KINDS = ("multiclass", "multilabel", "regression")
TABLES = (".csv", ".tsv", ".txt", ".parquet", ".feather", ".json", ".xlsx")


def named_task(name: str, split: str | None = None, root: Root = None) -> BenchTask:
    """The task of a data set by its own name and with its own kind of split."""
    info = describe(name, root)
    kind = GraphBenchTask if info.task == "graph" else NodeBenchTask
    return kind(info.name, info.known_split(split), root)


def bench_task(
    data: Any,
    *,
    kind: str | None = None,
    metric: str | None = None,
    split: Any = None,
    root: Root = None,
    name: str | None = None,
) -> BenchTask:
    """The task of anything that can be benchmarked, as `graphtheory.bench` takes it."""
    if kind is not None and kind not in (NODE, GRAPH, *KINDS):
        raise ValueError(f"kind: got {kind!r}, expected node, graph or {', '.join(KINDS)}")
    file = str(data) if isinstance(data, (str, PathLike)) else ""
    if file.endswith(TABLES) or hasattr(data, "iloc"):  # which a DataFrame has
        got, page = file or f"a {type(data).__name__}", "docs/howto/own-data.md (Your own data)"
        raise ValueError(f"data: got {got}, expected a PyG Data; {page} makes one of CSV or pandas")
    if file.endswith((".pt", ".pth")) or isinstance(data, PathLike):
        name = name or Path(data).stem
        data = read_graph_file(data)
    if isinstance(data, str):
        try:
            info = describe(data, root)
        except ValueError as error:
            raise ValueError(f"data{str(error).removeprefix('name')}, or a file .pt") from None
        named = named_task(data, split, root)
        _fits(kind, GRAPH if info.task == GRAPH else NODE, data)
        if kind in KINDS and kind != info.kind:
            raise ValueError(f"kind: got {kind!r}, expected {info.kind!r}, that of {data}")
        if metric is not None and metric != (its := named.measure.name):
            raise ValueError(f"metric: got {metric!r}, expected {its!r}, that of {data}")
        return named
    if isinstance(data, BenchTask):
        for argument, value in (("kind", kind), ("metric", metric), ("split", split)):
            if value is not None:
                raise ValueError(f"{argument}: got {value!r}, expected None: a task has its own")
        return data
    if isinstance(data, GraphSet):  # it knows its task and its split
        _fits(kind, GRAPH, data.name)
        if split is None and data._indices is not None:
            raise ValueError(
                f"data: {len(data)} indexed graphs of {data.name}, whose split is of the whole "
                "set; expected that, or a split of these"
            )
        metric, name = metric or data.metric, name or data.name
        kind = kind if kind in KINDS else data.kind
        split = split or (data.train_index, data.val_index, data.test_index)
        smiles, places = data.smiles or (), data.indices()
        data = [data.get(i) for i in places]
        for graph, i in zip(data, places, strict=True) if smiles else ():
            graph.smiles = smiles[i]
    if isinstance(data, Data):
        if kind in KINDS:
            raise ValueError(
                f"kind: got {kind!r}, expected 'node' for one graph, or a list of them"
            )
        data = [data] if kind == GRAPH else data
    elif isinstance(data, Iterable) and not hasattr(data, "edge_types"):  # HeteroData has those
        data = list(data)
        if not data or not all(isinstance(graph, Data) for graph in data):
            kinds = sorted({type(graph).__name__ for graph in data})
            raise TypeError(f"data: got a list of {kinds or 'nothing'}, expected PyG Data")
        data = data[0] if len(data) == 1 and kind in (None, NODE) else data
    else:
        raise TypeError(
            f"data: got {type(data).__name__}, expected a name, a PyG Data or a list of Data"
        )
    if isinstance(data, Data):
        if split is not None:
            raise ValueError(f"split: got {split!r}, expected masks in the data of one graph")
        return OwnNodes(data, name or "graph", metric or "accuracy")
    _fits(kind, GRAPH, f"a list of {len(data)} graphs")
    found = kind if kind in KINDS else None
    parts = (0.8, 0.1, 0.1) if split is None else split
    return OwnGraphs(data, name or "graphs", found, metric, parts)


def _fits(kind: str | None, found: str, what: str) -> None:
    asked = GRAPH if kind in KINDS else kind
    if asked not in (None, found):
        raise ValueError(f"kind: got {kind!r}, but {what} is a task of the kind {found!r}")


@dataclass(frozen=True)
class Run:
    """One row of a benchmark, a model on one seed; `extra` is what the task's `analysis` says."""

    model: str
    seed: int  # number of the split and of everything random
    test: float  # at the epoch of best validation, 0..1 or in the unit of the target
    val: float  # that validation score
    parameters: int  # trainable ones
    seconds_per_epoch: float  # median, evaluation included
    peak_mb: float  # growth of memory during training
    epochs: int  # that were trained
    history: list[dict[str, float]]  # epoch, train_loss, val_loss, val, test
    extra: dict[str, Any]


class FinishedRuns(Finished[Run]):
    """The runs of a benchmark by model and seed: lines ``{"settings": ..., "run": ...}``."""

    named_by = ("model", "seed")

    def line(self, settings: Settings, value: Run) -> dict[str, Any]:
        """A line's settings and run; the seed is written in the run alone."""
        shared = {name: value for name, value in settings.items() if name != "seed"}
        return {"settings": shared, "run": asdict(value)}

    def read(self, line: dict[str, Any]) -> tuple[Settings, Run]:
        run = Run(**line["run"])
        return line["settings"] | {"model": run.model, "seed": run.seed}, run


SMALL = 5000  # nodes of a small graph


@contextmanager
def thread_limit(asked: int | None, num_nodes: int | None) -> Iterator[None]:
    """Compute on the threads asked for; unasked on one for a small graph, where more only wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(asked or (1 if num_nodes is not None and num_nodes <= SMALL else before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


Progress = Callable[[str, int, int], None]  # takes model, runs done and runs in all


@dataclass(frozen=True)
class Benchmark:
    """Train models side by side on the same splits, seeds, features and training."""

    task: BenchTask  # the data, and what its networks learn
    models: tuple[str, ...] = COMPARED  # in the order of the table
    seeds: int = 10  # seed s uses published split s
    epochs: int | None = None  # upper bound; None is the data set's own
    patience: int | None = None  # epochs without a better validation score; None the data set's own
    _: KW_ONLY
    record: FinishedRuns | None = None  # where runs are kept and found
    kept: Callable[[Any, RunResult, int, Path], None] = lambda *_: None
    """Called with configuration, result, seed and folder of recorded runs that have folders."""
    chosen: Mapping[str, Any] = field(default_factory=dict)  # in place of what tuned.json keeps
    budget: Budget | None = None  # of a search that chose them
    options: Mapping[str, Any] = field(default_factory=dict)
    """Set by hand, in place of those of every model that reads them; text is read as a value."""
    threads: int | None = None  # that compute; None follows from the size of the graph

    @property
    def how_chosen(self) -> str:
        """How a search for this benchmark chose options."""
        return "search" if self.budget is None else f"best of {self.budget} on validation"

    @property
    def total(self) -> int:
        """The number of runs, finished or not."""
        return self.seeds * len(self.models)

    def config(self, model: str) -> tuple[Any, int, int]:
        """The options of a model, tuned, default or set by hand, with epochs and patience."""
        config, epochs, patience = self.task.config(model, self.epochs)
        config = with_options(self.chosen.get(model, config), self._by_hand)
        return config, epochs, patience if self.patience is None else self.patience

    @cached_property
    def _by_hand(self) -> dict[str, Any]:
        if not self.options:
            return {}
        configs = [self.chosen.get(m, self.task.config(m, self.epochs)[0]) for m in self.models]
        return self.task.checked_options(configs, self.options)

    @cached_property
    def set_by_hand(self) -> str:
        """Describe the options set by hand, and which models ignore some; "" without any."""
        return describe_options(self._by_hand, [self.config(m)[0] for m in self.models])

    def set_in(self, model: str) -> str:
        """Describe those of the options set by hand that a model reads; "" where none are."""
        config, items = self.config(model)[0], self._by_hand.items()
        return describe_options({n: v for n, v in items if not ignores(config, n, v)})

    def not_tuned(self) -> tuple[str, ...]:
        """The models whose options no search has chosen on this data set."""
        return tuple(m for m in self.models if not (m in self.chosen or self.task.is_tuned(m)))

    def options_of(self, model: str) -> str:
        """How the options of a model were chosen that are not set by hand."""
        if model in self.not_tuned():
            return "defaults, not tuned"
        return self.how_chosen if model in self.chosen else "search"

    def computing(self) -> AbstractContextManager[None]:
        """Compute on as many threads as `run` does."""
        return thread_limit(self.threads, self.task.num_nodes)

    def run(
        self, progress: Progress = lambda *_: None, finished: Callable[[Run], None] = lambda _: None
    ) -> list[Run]:
        """Every model on every seed, seed by seed so that an interrupted run is comparable.

        `progress` is called before each run, `finished` with each that was trained now.
        """
        rows: list[Run] = []
        for model, seed in self._pairs():
            progress(model, len(rows), self.total)
            run = self._known(model, seed)
            if run is None:
                _give_memory_back()
                with self.computing():
                    run = self._trained(model, seed)
                if self.record is not None:
                    self.record.add(self.settings(model) | {"seed": seed}, run)
                finished(run)
            rows.append(run)
        return rows

    def count_known(self) -> int:
        """How many of the runs the record holds already."""
        return sum(self._known(model, seed) is not None for model, seed in self._pairs())

    def settings(self, model: str) -> Settings:
        """The settings that a run of this model has to agree in."""
        return self.task.run_settings(*self.config(model))

    def _pairs(self) -> list[tuple[str, int]]:
        return [(model, seed) for seed in range(self.seeds) for model in self.models]

    def _known(self, model: str, seed: int) -> Run | None:
        if self.record is None:
            return None
        return self.record.find(self.settings(model) | {"seed": seed})

    def _trained(self, model: str, seed: int) -> Run:
        config, epochs, patience = self.config(model)
        path = self.record.path if self.record is not None and self.task.has_folders else None
        folder = None if path is None else path.parent / f"{model}-{seed}"
        result = self.task.run(config, seed=seed, epochs=epochs, patience=patience, out_dir=folder)
        if folder is not None:
            self.kept(config, result, seed, folder)
        fit = result.fit
        assert fit.test is not None
        return Run(
            model, seed, fit.test, fit.val, result.parameters, fit.seconds_per_epoch, fit.peak_mb,
            fit.epochs, fit.history, self.task.analysis(result),
        )  # fmt: skip


def _give_memory_back() -> None:
    """Hand freed memory to the system: what a run reuses of it would be missing from its peak."""
    gc.collect(1)  # a full one would take longer than a small run
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:  # glibc has it
        trim(0)


def train_all(bench: Benchmark, showing: AbstractContextManager[Steps]) -> list[Run]:
    """Train every model on every seed, and show how far it is."""
    short, images = bench.task.measure.short, bench.task.has_folders

    def told(run: Run) -> str:
        each = run.seconds_per_epoch
        time = f" of {each:.1f} s" if images else f", {each * run.epochs:.1f} s"
        test, val = (short(score, ".2f" if images else ".1f") for score in (run.test, run.val))
        scores = f"test {test}, validation {val} after {run.epochs} epochs{time}"
        return f"{run.model}, seed {run.seed}: {scores}"

    with showing as steps:
        return bench.run(steps.before, lambda run: steps.finished(told(run)))
