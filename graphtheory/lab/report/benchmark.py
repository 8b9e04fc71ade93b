"""The report of a benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from graphtheory.lab import plot
from graphtheory.lab.bench.comparison import Comparison
from graphtheory.lab.bench.measure import ACCURACY, Measure
from graphtheory.lab.bench.node_benchmark import Run
from graphtheory.lab.bench.options import ignores
from graphtheory.lab.bench.search import Judged
from graphtheory.lab.bench.summary import best_of, difference_table, summaries
from graphtheory.lab.bench.table import Table, counted
from graphtheory.lab.report.page import Page


@dataclass(frozen=True)
class BenchmarkReport(Comparison):
    """Everything that is known about a benchmark, as a page with pictures.

    Attributes:
        distance_rows: Of figure 3.8, where it ran: kind, z, seed, value.
        search_log: Candidates that the search judged, where its log is at hand.
    """

    distance_rows: Sequence[Mapping[str, Any]] = ()
    search_log: Sequence[Judged] = field(default=(), repr=False)

    def page(self) -> Page:
        """The whole page."""
        page = Page(f"{self.name}: models side by side", self._lead())
        self._results(page)
        self._training(page)
        self._distance(page)
        self._choices(page)
        self._setting(page)
        return page

    def results(self) -> dict[str, Any]:
        """All of it in plain values."""
        return super().results() | {"distance_study": self.distance_rows}

    def save(self, folder: str | PathLike[str]) -> None:
        """Write results.json, results.csv, report.html and, where it is missing, runs.jsonl."""
        super().save(folder)
        self.page().save(Path(folder) / "report.html")

    def _lead(self) -> str:
        found, measure = summaries(self.runs), self.measure
        best = best_of(found, measure)
        score, kind = measure.told(measure.shown(best.mean, best.std)), "highest"
        if not measure.higher_is_better:
            kind = "lowest and so the best"
        return (
            f"Of {len(found)} models on the {self.split} split, {best.model} has the {kind} mean "
            f"test {measure.title}: {score} over {counted(best.seeds, 'seed')}."
        )

    def _results(self, page: Page) -> None:
        page.section("Results").table(self.scores())
        rows = [{"model": run.model, "test": run.test} for run in self.runs]
        measure = self.measure
        page.picture(
            plot.score_bars(rows, metric=measure.title, unit=measure.axis_unit),
            "Test scores. Left: means from 0. Right, enlarged: every run, the mean and one "
            "standard deviation to each side.",
        )
        against = self.differences()
        if against:
            page.section(f"{self.first} against the others")
            page.table(difference_table(against, self.first, measure=measure))
            page.picture(
                plot.paired_differences(
                    [vars(d) for d in against],
                    first=self.first,
                    unit=measure.symbol,
                    higher_is_better=measure.higher_is_better,
                ),
                "Differences on the same seed and split. A line that crosses 0 decides nothing.",
            )

    def _training(self, page: Page) -> None:
        epochs, measure = epoch_rows(self.runs), self.measure
        if not epochs:
            return
        page.section("Training").picture(
            plot.learning_curves(
                epochs,
                metric=measure.title,
                unit=measure.axis_unit,
                higher_is_better=measure.higher_is_better,
                loss_unit="nats" if measure.share else "",
            ),
            "Median over the seeds, band from the 20 % to the 80 % quantile; a curve ends where "
            "fewer than half of the runs still train.",
        )

    def _distance(self, page: Page) -> None:
        bias, mass = bias_rows(self.runs), mass_rows(self.runs, self.first)
        if not (bias or mass or self.distance_rows):
            return
        page.section("What distance is worth")
        if self.distance_rows:
            page.picture(
                plot.learned_bias(*figure_3_8(self.distance_rows)),
                "Learned b over the distance, from one attention layer on 20 nodes drawn from the "
                "whole graph, beside the test accuracy of models that aggregate only from nodes at "
                "distance exactly z. In the control W_Q is frozen, so that the node's own features "
                "cannot steer. Softmax fixes b only up to a constant.",
            )
        if bias:
            page.picture(
                plot.learned_bias(bias),
                "Learned b of the benchmark's own network, over the distances of its neighborhood: "
                "median over the seeds and band from the 20 % to the 80 % quantile.",
            )
        if mass:
            page.picture(
                plot.attention_mass(mass),
                f"Attention of {self.first}: its share at each distance, beside what "
                "uniform attention over the same nodes would give.",
            )

    def _choices(self, page: Page) -> None:
        b = self.benchmark
        chosen = [(m, self.chosen_by(m), options(b.trial(m)[0])) for m in b.models]
        note = "Search: chosen on validation scores alone."
        page.section("Options")
        page.table(Table("", ("model", "chosen by", "options"), chosen, words=3, note=note))
        if self.search_log:
            page.table(search_table(self.search_log, self.measure))

    def _setting(self, page: Page) -> None:
        b = self.benchmark
        limits = {b.trial(model)[1:] for model in b.models}
        setting = [
            ("data set", self.name),
            ("split", self.split),
            ("seeds", f"0..{b.seeds - 1}"),
            ("epochs, patience", "; ".join(f"{e}, {p}" for e, p in sorted(limits))),
        ]
        page.how_to_reproduce(self.command, self.environment, setting)


def epoch_rows(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """One row an epoch: model, seed, and what the history holds."""
    return [{"model": r.model, "seed": r.seed} | epoch for r in runs for epoch in r.history]


def bias_rows(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Learned b: layer, head, distance, seed, bias; of the distances that the network sees."""
    out = []
    for run in runs:
        seen = {row["distance"] for row in run.extra.get("attention_mass", ())}
        for layer, table in enumerate(run.extra.get("bias", ()), 1):
            for distance, heads in enumerate(table):
                if distance in seen:
                    out += [
                        {"layer": layer, "head": head, "distance": distance, "bias": bias}
                        for head, bias in enumerate(heads, 1)
                    ]
    return out


def mass_rows(runs: Iterable[Run], model: str) -> list[dict[str, Any]]:
    """Attention mass of one model's runs: layer, distance, mass, uniform."""
    return [row for r in runs if r.model == model for row in r.extra.get("attention_mass", ())]


def figure_3_8(
    rows: Iterable[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Measurements of figure 3.8 as `plot.learned_bias` takes them: b, and accuracy by series."""
    rows = list(rows)
    named = {"model": "all weights learned", "control": "control, W_Q frozen"}
    accuracy = [
        {"distance": row["z"], "test": row["value"], "series": named[row["kind"]]}
        for row in rows
        if row["kind"] in named
    ]
    farthest = max(row["distance"] for row in accuracy)
    bias = [
        {"layer": 1, "head": 1, "distance": row["z"], "bias": row["value"]}
        for row in rows
        if row["kind"] == "b" and row["z"] <= farthest
    ]
    return bias, accuracy


_ALWAYS = ("hidden", "layers", "lr", "sampler", "share")


def options(trial: Any) -> str:
    """The options of a trial on one line that its model reads, if not what they are by default."""
    plain = type(trial)(trial.model).as_dict()
    chosen = trial.as_dict()
    if "network" not in chosen:  # trees, which have neither network nor optimizer
        return ", ".join(f"{name}={value}" for name, value in chosen.items() if name != "model")
    pairs = [
        (name, value)
        for group in ("network", "optimizer", "sampling")
        for name, value in chosen.get(group, {}).items()
        if (value != plain[group][name] or name in _ALWAYS) and not ignores(trial, name, value)
    ]
    pairs += [(name, True) for name in ("degree", "undirected") if chosen.get(name)]
    pairs += [("row_scale", chosen["row_scale"])] if "row_scale" in chosen else []
    if "nodes_per_batch" in chosen:
        pairs.append(("nodes_per_batch", chosen["nodes_per_batch"]))
    return ", ".join(f"{name}={value}" for name, value in pairs)


def search_table(log: Iterable[Judged], measure: Measure = ACCURACY) -> Table:
    """Every candidate, the best of each model first."""
    order = sorted(log, key=lambda j: (j.trial.model, measure.gain(0.0, j.val)))
    rows = [
        (
            j.trial.model, options(j.trial), measure.short(j.val), f"{j.parameters:,}",
            f"{j.seconds:.0f}",
        )
        for j in order
    ]  # fmt: skip
    columns = ("model", "options", "validation", "params", "s")
    return Table("Search log", columns, rows, words=2, note="Test scores are not looked at.")
