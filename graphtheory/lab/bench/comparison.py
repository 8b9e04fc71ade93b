"""The results of a benchmark: its table, its differences and its files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from graphtheory.disk import replace_file
from graphtheory.lab.bench.benchmark import Benchmark, FinishedRuns, Run
from graphtheory.lab.bench.finished import add_line
from graphtheory.lab.bench.measure import Measure, measure_of
from graphtheory.lab.bench.rows import Environment, Row, finite, write_csv
from graphtheory.lab.bench.summary import (
    Difference,
    best_of,
    difference_table,
    differences,
    rows,
    score_table,
    summaries,
    unlearned,
)
from graphtheory.lab.bench.table import Table


@dataclass(frozen=True)
class Comparison:
    """Models side by side; printed it is the table and the differences from the first model.

    Attributes:
        benchmark: Its settings.
        runs: Its runs.
        split: Name of the split.
        metric: Name of the score, such as "accuracy" or "rmse".
        command: What prints it again.
        environment: What it was measured on.
    """

    benchmark: Benchmark
    runs: Sequence[Run]
    split: str
    metric: str
    command: str
    environment: Environment

    @property
    def name(self) -> str:
        """The name of the data."""
        return self.benchmark.task.name

    @property
    def first(self) -> str:
        """The model that the others are compared with."""
        return self.benchmark.models[0]

    @property
    def measure(self) -> Measure:
        """How test scores are read."""
        return measure_of(self.metric)

    @property
    def best(self) -> str:
        """The model with the best mean test score."""
        return best_of(summaries(self.runs), self.measure).model

    @property
    def _searched(self) -> dict[str, str]:
        """Models whose options this comparison searched -> how."""
        return dict.fromkeys(self.benchmark.chosen, self.benchmark.searched)

    def scores(self, title: str = "") -> Table:
        """Score table; a footnote marks untuned models and those no better than a constant."""
        return score_table(
            summaries(self.runs), self.measure, title,
            not_tuned=self.benchmark.not_tuned(), unlearned=unlearned(self.runs),
            set_by_hand=self.benchmark.set_by_hand,
            searched=self._searched,
        )  # fmt: skip

    def differences(self) -> list[Difference]:
        """The first model against each other one, paired by seed."""
        return differences(self.runs, self.first, self.measure)

    def tables(self) -> list[Table]:
        """The score table, and that of differences where there are some."""
        title, against = f"{self.name}, split {self.split}", self.differences()
        paired = [difference_table(against, self.first, measure=self.measure)] if against else []
        return [self.scores(title), *paired]

    def rows(self) -> list[Row]:
        """The numbers as rows of results.csv."""
        return rows(
            self.runs, self.first, self.measure, not_tuned=self.benchmark.not_tuned(),
            set_by_hand={m: self.benchmark.set_in(m) for m in self.benchmark.models},
            searched=self._searched,
            dataset=self.name, split=self.split,
        )  # fmt: skip

    def settings(self) -> dict[str, Any]:
        """The settings that determine the numbers, in plain values."""
        bench = self.benchmark
        configs = {model: bench.config(model) for model in bench.models}
        by_hand = {"set_by_hand": bench.set_by_hand} if bench.set_by_hand else {}
        return by_hand | {
            "dataset": self.name,
            "split": self.split,
            "seeds": bench.seeds,
            "metric": self.metric,
            "root": None if bench.root is None else str(bench.root),
            "models": {
                model: {"options": self.chosen_by(model), "epochs": epochs, "patience": patience}
                | config.as_dict()
                for model, (config, epochs, patience) in configs.items()
            },
        }

    def chosen_by(self, model: str) -> str:
        """Whether a model's options are those of a search, and which are set by hand."""
        by_hand = self.benchmark.set_in(model)
        untuned = model in self.benchmark.not_tuned()
        others = "defaults, not tuned" if untuned else self._searched.get(model, "search")
        return f"set by hand: {by_hand}; others {others}" if by_hand else others

    def results(self) -> dict[str, Any]:
        """The whole comparison in plain values, as in results.json."""
        others = [asdict(d) for d in self.differences()]
        return {
            "command": self.command, "settings": self.settings(),
            "environment": asdict(self.environment),
            "models": [asdict(s) for s in summaries(self.runs)],
            "differences": {"first": self.first, "others": others},
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
            record = FinishedRuns()
            for run in self.runs:
                settings = self.benchmark.settings(run.model) | {"seed": run.seed}
                add_line(out / "runs.jsonl", record.line(settings, run))

    def __str__(self) -> str:
        """The tables as lines of text."""
        return "\n\n".join(str(table) for table in self.tables())

    def _repr_html_(self) -> str:
        """The tables as HTML, which a notebook shows."""
        return f"<pre>{escape(str(self))}</pre>"
