"""Models side by side: trained by one call, as tables, paired by seed, and as files."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from numbers import Integral
from os import PathLike
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from rich.console import Console

from graphtheory.disk import replace_file
from graphtheory.lab.bench.benchmark import Benchmark, FinishedRuns, Run, bench_task, train_all
from graphtheory.lab.bench.budget import Budget
from graphtheory.lab.bench.rows import Environment, Row, finite, write_csv
from graphtheory.lab.bench.table import Difference, Measure, Table, counted, reading
from graphtheory.lab.bench.task import CONSTANT
from graphtheory.lab.progress import steps
from graphtheory.lab.train.contract import check_at_least


@dataclass(frozen=True)
class Summary:
    """The scores and costs of a model over its seeds."""

    model: str
    seeds: int
    mean: float  # of the test scores: 0..1, or in the unit of the target
    std: float  # of the test scores (n - 1); nan of one seed
    parameters: int  # trainable ones
    seconds_per_epoch: float  # median
    peak_mb: float  # median


def _std(values: list[float]) -> float:
    return stdev(values) if len(values) > 1 else math.nan


@dataclass(frozen=True)
class Comparison:
    """Models side by side; printed it is the table and the differences from the first model."""

    benchmark: Benchmark  #: Its settings.
    runs: Sequence[Run]  #: In the order in which they were trained.
    command: str  #: What prints it again.
    environment: Environment  #: What it was measured on.

    @property
    def name(self) -> str:
        """The name of the data."""
        return self.benchmark.task.name

    @property
    def first(self) -> str:
        """The model that the others are compared with."""
        return self.benchmark.models[0]

    @property
    def split(self) -> str:
        """The name of the split."""
        return str(self.benchmark.task.split)

    @property
    def measure(self) -> Measure:
        """How test scores are read."""
        return self.benchmark.task.measure

    @property
    def by_model(self) -> dict[str, list[Run]]:
        """The runs of each model, in the order in which they come."""
        models = dict.fromkeys(run.model for run in self.runs)
        return {model: [run for run in self.runs if run.model == model] for model in models}

    @property
    def summaries(self) -> list[Summary]:
        """The runs of each model in a few numbers."""
        return [
            Summary(
                model, len(own), fmean(run.test for run in own), _std([run.test for run in own]),
                own[0].parameters, median(run.seconds_per_epoch for run in own),
                median(run.peak_mb for run in own),
            )
            for model, own in self.by_model.items()
        ]  # fmt: skip

    @property
    def best(self) -> Summary:
        """The model with the best mean test score, the earlier one on a tie."""
        return max(self.summaries, key=lambda summary: self.measure.gain(summary.mean, 0.0))

    @property
    def unlearned(self) -> dict[str, str]:
        """Models with runs that score no better than a constant prediction -> "3 of 10"."""
        grouped = self.by_model.items()
        flat = {model: sum(CONSTANT in run.extra for run in own) for model, own in grouped}
        return {model: f"{flat[model]} of {len(own)}" for model, own in grouped if flat[model]}

    @property
    def cost(self) -> dict[str, float]:
        """Model -> 10^9 multiply-accumulates of an image; empty of graphs."""
        return {run.model: run.extra["gmacs"] for run in self.runs if "gmacs" in run.extra}

    def gaps(self) -> dict[str, list[float]]:
        """Advantages of the first model over each other one, on the seeds that both have."""
        scores = {m: {run.seed: run.test for run in own} for m, own in self.by_model.items()}
        mine = scores.pop(self.first, {})
        found = {
            model: [self.measure.gain(mine[seed], other[seed]) for seed in mine if seed in other]
            for model, other in scores.items()
        }
        return {model: gaps for model, gaps in found.items() if gaps}

    def paired_name(self, other: str) -> str:
        """Write the difference whose positive values are an advantage of the first model."""
        higher = self.measure.higher_is_better
        return f"{self.first} - {other}" if higher else f"{other} - {self.first}"

    def scores(self, title: str = "") -> Table:
        """Make the table `model | test mean ± std | params | s/epoch | peak MB`, of images `MMACs`.

        Its note names the models whose options no search has chosen, and says what marks those
        that are no better than a constant prediction on some seeds.
        """
        found, measure, flat = self.summaries, self.measure, self.unlearned
        rows = [
            (
                f"{s.model} (!)" if s.model in flat else s.model, measure.shown(s.mean, s.std),
                f"{s.parameters:,}", f"{s.seconds_per_epoch:.3f}",
                "-" if math.isnan(s.peak_mb) else f"{s.peak_mb:.0f}",
                *([f"{1000 * self.cost[s.model]:.2f}"] if s.model in self.cost else []),
            )
            for s in found
        ]  # fmt: skip
        seeds = " or ".join(str(n) for n in sorted({s.seeds for s in found}))
        score = f"{measure.title} ({measure.axis_unit})"
        notes = [f"Test {score} at the epoch of best validation; {counted(seeds, 'seed')}."]
        notes += self._option_notes()
        if flat:
            kind = "class" if measure.name in ("accuracy", "f1") else "value"
            (first, of), *others = flat.items()
            more = "".join(f", {model} on {seeds} seeds" for model, seeds in others)
            notes.append(
                f"(!) {first} was no better than always predicting one {kind} on {of} seeds{more}."
            )
        bench = self.benchmark
        notes.append("" if "neighbors" in bench.options else bench.task.remark(bench.not_tuned()))
        columns = ["model", "test mean ± std", "params", "s/epoch", "peak MB"]
        if self.cost:
            columns.append("MMACs")
            notes.append("MMACs: 10^6 multiply-accumulates an image.")
        return Table(title, columns, rows, note=" ".join(filter(None, notes)))

    def _option_notes(self) -> Iterator[str]:
        """Sentences on how the options of our models and of the user's own were chosen."""
        bench, own, searched = self.benchmark, self.benchmark.task.own_models, self.benchmark.chosen
        ours = [model for model in bench.models if model not in own]
        untuned = [model for model in bench.not_tuned() if model in ours]
        alike = "one stack, width, dropout and step size"
        named, note = "Options", ""
        if bench.set_by_hand:
            named, note = f"Options set by hand: {bench.set_by_hand}. Other options", "tuned"
        if untuned and untuned == ours:
            note = f"defaults, not tuned ({alike} for all models)"
        elif untuned:
            note = f"defaults, not tuned, for {', '.join(untuned)} ({alike}); tuned for the others"
        if note:
            yield f"{named}: {note}."
        if searched:
            some = f", for {', '.join(searched)}; those of the others are kept ones"
            yield f"Options: {bench.how_chosen}{'' if {*bench.models} <= {*searched} else some}."
        if own:
            how = "tuned in step size alone" if {*own} & {*searched} else "not tuned"
            yield f"Your own network, {how}, trained by the same loop: {', '.join(own)}."

    def differences(self) -> list[Difference]:
        """The first model against each other one by shared seeds; none where there are none."""
        found = []
        for model, gaps in self.gaps().items():
            error, ahead = _std(gaps) / math.sqrt(len(gaps)), sum(gap > 0 for gap in gaps)
            found.append(Difference(model, fmean(gaps), error, ahead, len(gaps)))
        return found

    def difference_table(self) -> Table:
        """Make the table `first - other | mean ± half its interval | seeds ahead | reading`.

        Where lower scores are better the columns say `other - first`: a positive number is an
        advantage of the first model in either case.
        """
        measure = self.measure
        rows = [
            (
                self.paired_name(d.model),
                measure.shown(d.difference, d.half_width, sign="+"),
                f"{d.ahead} of {d.seeds}", reading(d),
            )
            for d in self.differences()
        ]  # fmt: skip
        amount = "points" if measure.share else measure.title
        columns = ("paired by seed", f"{amount} ± 95 %", "seeds ahead", "differ")
        note = "± is the 95 % interval of the mean (Student's t over the seeds)."
        if not measure.higher_is_better:
            note += f" Positive values favor {self.first} (lower {measure.title} is better)."
        return Table("", columns, rows, note=note)

    def tables(self) -> list[Table]:
        """The score table, and that of differences where there are some."""
        paired = self.difference_table()
        return [self.scores(f"{self.name}, split {self.split}"), *([paired] if paired.rows else [])]

    def rows(self) -> list[Row]:
        """The numbers as rows of results.csv, in which models that were not tuned are marked."""
        out, measure, gaps = list[Row](), self.measure, self.gaps()
        unit = "1" if measure.share else "unit of the target"
        macs = "multiply-accumulates of an image"
        gap = f"paired difference of test {measure.name}, {self.paired_name('model')}"
        for model, own in self.by_model.items():
            columns: list[tuple[str, str, Any]] = [
                (f"test {measure.name}", unit, [run.test for run in own]),
                (f"validation {measure.name}", unit, [run.val for run in own]),
                ("parameters", "1", [run.parameters for run in own]),
                ("epochs", "1", [run.epochs for run in own]),
                ("time per epoch", "s", [run.seconds_per_epoch for run in own]),
                ("peak memory", "MB", [run.peak_mb for run in own]),
                *([(gap, unit, gaps[model])] if model in gaps else []),
                *([(macs, "10^9", [self.cost[model]])] if model in self.cost else []),
            ]
            where = self.described(model)
            out += [Row.of(name, values, its, **where) for name, its, values in columns]
        return out

    def described(self, model: str) -> dict[str, Any]:
        """The parameters of a model's rows."""
        bench, where = self.benchmark, {"dataset": self.name, "split": self.split, "model": model}
        if by_hand := bench.set_in(model):
            where["set by hand"] = by_hand
        if model in bench.chosen or model in bench.not_tuned():
            where["options"] = bench.options_of(model)
        if flat := self.unlearned.get(model):
            where["learned nothing"] = f"{flat} seeds"
        return where

    def settings(self) -> dict[str, Any]:
        """The settings that determine the numbers, in plain values."""
        bench, root, models = self.benchmark, self.benchmark.task.root, {}
        for model in bench.models:
            config, epochs, patience = bench.config(model)
            length = {"epochs": epochs, "patience": patience}
            models[model] = {"options": self.chosen_by(model)} | length | config.as_dict()
        by_hand = {"set_by_hand": bench.set_by_hand} if bench.set_by_hand else {}
        return by_hand | {
            "dataset": self.name, "split": self.split, "seeds": bench.seeds,
            "metric": self.measure.name, "root": root and str(root), "models": models,
        }  # fmt: skip

    def chosen_by(self, model: str) -> str:
        """Whether a model's options are those of a search, and which are set by hand."""
        by_hand, others = self.benchmark.set_in(model), self.benchmark.options_of(model)
        return f"set by hand: {by_hand}; others {others}" if by_hand else others

    def results(self) -> dict[str, Any]:
        """The whole comparison in plain values, as in results.json."""
        return {
            "command": self.command, "settings": self.settings(),
            "environment": asdict(self.environment),
            "models": [asdict(s) for s in self.summaries],
            "differences": {
                "first": self.first, "others": [asdict(d) for d in self.differences()]
            },
            "runs": [asdict(run) for run in self.runs],
        }  # fmt: skip

    def save(self, folder: str | PathLike[str]) -> None:
        """Write results.json, results.csv and, where it is missing, runs.jsonl.

        `report.BenchmarkReport(**vars(comparison))` writes the page with pictures beside them.
        """
        out = Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(finite(self.results()), indent=1, default=str) + "\n"
        replace_file(out / "results.json", text.encode())
        write_csv(out / "results.csv", self.rows(), self.environment)
        if not (out / "runs.jsonl").exists():
            record = FinishedRuns(out / "runs.jsonl")
            for run in self.runs:
                record.add(self.benchmark.settings(run.model) | {"seed": run.seed}, run)

    def __str__(self) -> str:
        """The tables as lines of text."""
        return "\n\n".join(str(table) for table in self.tables())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def bench(
    data: Any,
    models: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    kind: str | None = None,
    metric: str | None = None,
    split: Any = None,
    seeds: int = 3,
    epochs: int | None = None,
    patience: int | None = None,
    budget: int | str = 0,
    options: Mapping[str, Any] | None = None,
    threads: int | None = None,
    out: str | PathLike[str] | None = None,
    root: str | PathLike[str] | None = None,
    progress: bool = True,
) -> Comparison:
    """Train models side by side on the same splits and seeds, and compare them.

    Args:
        data: A PyG `Data` (its nodes, by masks or a random split), a list of `Data` or a PyG
            dataset (its graphs), a file of either, such as "mine.pt", or the name of a data set.
        models: Names; the others are compared with the first. None is those that fit the data. Your
            own network is a function that makes one for each seed, or "FILE.py:NAME" of one, and
            a mapping names it: {"mine": lambda in_channels, out_channels: MyNet(...), "gt": "gt"}.
            It has forward(x, edge_index), of sets of graphs with batch, or forward(data).
        kind: "node", "graph", "multiclass", "multilabel" or "regression"; None takes it from the
            data.
        metric: Of the user's own data; None is the first that the task has.
        split: Kind of split of a named set; for own graphs three fractions or lists of positions.
        seeds: How many; a seed draws the split, the weights and everything else.
        epochs: At most this many; None is the data's own number.
        patience: Epochs without a better validation score that end a run; None is the data's own
            number.
        budget: Candidates of a search on validation that runs first, for each model without
            options from an earlier search, or the time for all of them, such as "30m"; 0 takes
            defaults there, and the table says so.
        options: Set by hand, such as {"walk": 16, "readout": "token"}, in the place of those of
            every model that reads them; not with a search. "batch_size" counts the labeled nodes
            or, of a set, the graphs of a step.
        threads: How many compute; None is 1 on a graph of at most 5,000 nodes, where more are
            slower, and torch's own number on a larger one.
        out: Folder where finished runs are kept and taken up again, and results are written.
        root: Folder with the raw files of a named set; None is that of $GRAPHTHEORY_DATA.
        progress: Show runs and epochs on the error stream, in a file as lines.

    Returns:
        What was found: printed a table, with `runs`, `rows()` and `save(folder)`.

    Raises:
        TypeError, ValueError: If the data, a model or a number cannot be used; the message says
            what was expected.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> ring = torch.arange(8)
        >>> edges = torch.stack([ring, (ring + 1) % 8])
        >>> both = torch.cat([edges, edges.flip(0)], 1)
        >>> data = Data(x=torch.eye(8), y=ring // 4, edge_index=both)
        >>> import graphtheory
        >>> found = graphtheory.bench(data, ("gt", "mlp"), seeds=1, epochs=2, progress=False)
        >>> print(str(found).splitlines()[0])
        graph, split random-60-20-20
    """
    counts = {"seeds": seeds, "epochs": epochs, "patience": patience, "threads": threads}
    for name, value in counts.items():
        if value is not None and not isinstance(value, Integral):
            raise TypeError(f"{name}: got {value!r}, expected a whole number")
    check_at_least(1, **counts)
    if isinstance(models, str):
        raise TypeError(f"models: got {models!r}, expected a list of names, such as [{models!r}]")
    if budget == 1:
        raise ValueError("budget: got 1, expected 0 or 2 and more: the first are the defaults")
    if budget and options:
        raise ValueError(f"budget: got {budget}, expected 0 beside options set by hand")
    length = Budget.of(budget) if budget else None
    folder = root or os.environ.get("GRAPHTHEORY_DATA")
    given = bench_task(data, kind=kind, metric=metric, split=split, root=folder)
    chosen = given.take_models(given.compared if models is None else models)
    if not chosen:
        raise ValueError("models: got none, expected one or more names")
    where = None if out is None else Path(out)
    benchmark = Benchmark(
        given, chosen, seeds, epochs, patience,
        record=None if where is None else FinishedRuns(where / "runs.jsonl"),
        options=options or {}, threads=threads,
    )  # fmt: skip
    command = f"graphtheory.bench({data if isinstance(data, str) else given.name!r}, ...)"
    screen = Console(stderr=True)

    if length is not None:
        from graphtheory.lab.bench.search import choose  # which imports Optuna

        log, showing = where and where / "search.log", steps(screen, "candidate", progress)
        benchmark, _ = choose(benchmark, length, log, showing)
    with benchmark.computing():
        runs = train_all(benchmark, steps(screen, "run", progress))
        found = Comparison(benchmark, runs, command, Environment.here())
    if where is not None:
        found.save(where)
    return found
