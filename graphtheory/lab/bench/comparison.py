"""Models side by side as tables, paired by seed, and as files."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from os import PathLike
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from graphtheory.disk import replace_file
from graphtheory.lab.bench.benchmark import Benchmark, FinishedRuns, Run
from graphtheory.lab.bench.rows import (
    Difference,
    Environment,
    Measure,
    Row,
    Table,
    as_json,
    counted,
    joined,
    reading,
    write_csv,
)
from graphtheory.lab.bench.task import CONSTANT


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
        columns: tuple[str, ...] = ("model", "test mean ± std", "params", "s/epoch", "peak MB")
        if self.cost:
            columns = (*columns, "MMACs")
            notes.append("MMACs: 10^6 multiply-accumulates an image.")
        return Table(title, columns, rows, note=" ".join(filter(None, notes)))

    def _option_notes(self) -> Iterator[str]:
        """Sentences on how the options of our models and of the user's own were chosen."""
        bench, own, searched = self.benchmark, self.benchmark.task.own_models, self.benchmark.chosen
        ours = [model for model in bench.models if model not in own]
        untuned = [model for model in bench.not_tuned() if model in ours]
        alike = "one stack, width, dropout and step size"
        other = " other" if bench.set_by_hand else ""
        if other:
            yield f"Set by hand: {bench.set_by_hand}."
        if untuned and untuned == ours:
            yield f"All{other} hyperparameters are defaults ({alike} for all models), not tuned."
        elif untuned:
            given = f"default{other} hyperparameters ({alike}), which are not tuned"
            yield f"{joined(untuned, 'uses', 'use')} {given}; those of the others are."
        elif other and not searched:
            yield "All other hyperparameters are tuned."
        if searched:
            some = f" for {', '.join(searched)}; those of the others are from earlier searches"
            few = "" if {*bench.models} <= {*searched} else some
            yield f"Hyperparameters are the {bench.how_chosen}{few}."
        if own:
            kind = joined([*own], "is your own network", "are your own networks")
            how = "but not tuned"
            if {*own} & {*searched}:
                how = "and tuned in step size and weight decay alone"
            yield f"{kind}, trained by the same loop {how}."

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
        columns = ("paired by seed", f"{amount} ± 95 %", "seeds ahead", "result")
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
        replace_file(out / "results.json", as_json(self.results()).encode())
        write_csv(out / "results.csv", self.rows(), self.environment)
        if not (out / "runs.jsonl").exists():
            record = FinishedRuns(out / "runs.jsonl")
            for run in self.runs:
                record.add(self.benchmark.settings(run.model) | {"seed": run.seed}, run)

    def __str__(self) -> str:
        return "\n\n".join(str(table) for table in self.tables())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
