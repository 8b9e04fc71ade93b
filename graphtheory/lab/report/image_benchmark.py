"""The report of a benchmark on images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from graphtheory.lab import plot
from graphtheory.lab.bench.image_benchmark import ImageBenchmark
from graphtheory.lab.bench.image_trial import ImageTrial
from graphtheory.lab.bench.measure import ACCURACY
from graphtheory.lab.bench.node_benchmark import Run
from graphtheory.lab.bench.rows import Environment, Row
from graphtheory.lab.bench.summary import difference_table, differences, rows, summaries
from graphtheory.lab.bench.table import Table, counted
from graphtheory.lab.report.benchmark import epoch_rows
from graphtheory.lab.report.page import Page


@dataclass(frozen=True)
class ImageReport:
    """Everything that is known about a benchmark on images.

    Attributes:
        benchmark: Its settings.
        runs: Its runs.
        command: What prints it again.
        environment: What it was measured on.
    """

    benchmark: ImageBenchmark
    runs: Sequence[Run]
    command: str
    environment: Environment

    @property
    def first(self) -> str:
        """The model that the others are compared with."""
        return self.benchmark.models[0]

    @property
    def title(self) -> str:
        """The data set and its file, since there are several of CIFAR-10."""
        info = self.benchmark.images.info
        return (
            f"{info.name} ({'/'.join(filter(None, (info.folder, *info.files[:1]))) or 'embedded'})"
        )

    def table(self) -> Table:
        """`model | test mean ± std | MMACs | params | s/epoch`."""
        cost = {run.model: run.extra["gmacs"] for run in self.runs}
        shown = ACCURACY.shown
        found = [
            (
                s.model, shown(s.mean, s.std), f"{1000 * cost[s.model]:.2f}", f"{s.parameters:,}",
                f"{s.seconds_per_epoch:.1f}",
            )
            for s in summaries(self.runs)
        ]  # fmt: skip
        seeds = counted(self.benchmark.seeds, "seed")
        by_hand = self.benchmark.set_by_hand
        note = (
            "Test accuracy (%) at the epoch of best validation; 10^6 multiply-accumulates an "
            f"image; {seeds}, one recipe and {counted(self._epochs, 'epoch')} for all."
            + (f" Set by hand: {by_hand}." if by_hand else "")
        )
        columns = ("model", "test mean ± std", "MMACs", "params", "s/epoch")
        return Table(self.title, columns, found, note=note)

    def differences(self) -> Table | None:
        """The first model against the others, None where there are none."""
        found = differences(self.runs, self.first)
        return difference_table(found, self.first) if found else None

    def results(self) -> dict[str, Any]:
        """All of it in plain values."""
        models = self.benchmark.models
        return {
            "command": self.command,
            "data": self.title,
            "settings": {model: self.benchmark.settings(model) for model in models},
            "environment": asdict(self.environment),
            "models": [asdict(s) for s in summaries(self.runs)],
            "differences": [asdict(d) for d in differences(self.runs, self.first)],
            "runs": [asdict(run) for run in self.runs],
        }

    def rows(self) -> list[Row]:
        """House rows."""
        shared: dict[str, Any] = {"dataset": self.title}
        out = rows(self.runs, self.first, "accuracy", **shared)
        for model in dict.fromkeys(run.model for run in self.runs):
            cost = next(run.extra["gmacs"] for run in self.runs if run.model == model)
            name = "multiply-accumulates of an image"
            out.append(Row.of(name, cost, "10^9", **shared, model=model))
        return out

    def page(self) -> Page:
        """The whole page."""
        best, shown = max(summaries(self.runs), key=lambda s: s.mean), ACCURACY.shown
        page = Page(
            f"{self.title}: models side by side",
            f"Of {counted(len(self.benchmark.models), 'model')} {best.model} has the highest mean "
            f"test accuracy: {shown(best.mean, best.std)} % over {counted(best.seeds, 'seed')}.",
        )
        page.section("Results").table(self.table())
        page.picture(plot.score_over_cost(self._costs()), "Test accuracy over what it costs.")
        page.picture(
            plot.score_bars(self._costs()),
            "Test accuracy. Left: means from 0. Right, enlarged: every run, the mean and one "
            "standard deviation to each side.",
        )
        if (against := self.differences()) is not None:
            page.section(f"{self.first} against the others").table(against)
            page.picture(
                plot.paired_differences(
                    [vars(d) for d in differences(self.runs, self.first)], first=self.first
                ),
                "Differences on the same seed. A line that crosses 0 decides nothing.",
            )
        page.section("Training").picture(
            plot.learning_curves(epoch_rows(self.runs)),
            "Median over the seeds, band from the 20 % to the 80 % quantile. The loss is that of "
            "changed images and smoothed labels.",
        )
        self._setting(page)
        return page

    @property
    def _epochs(self) -> int:
        return self.benchmark.image_trial(self.first).recipe.epochs

    def _costs(self) -> list[dict[str, Any]]:
        return [
            {"model": run.model, "test": run.test, "gmacs": run.extra["gmacs"]} for run in self.runs
        ]

    def _setting(self, page: Page) -> None:
        seeds = ("seeds", f"0..{self.benchmark.seeds - 1}")
        setting = recipe_rows(self.benchmark.image_trial(self.first))
        page.how_to_reproduce(
            self.command, self.environment, [("data", self.title), seeds, *setting]
        )


def recipe_rows(trial: ImageTrial) -> list[tuple[str, object]]:
    """How networks were trained, as names and values."""
    recipe = asdict(trial.recipe)
    augment = recipe.pop("augment")
    return [
        *recipe.items(),
        *augment.items(),
        ("batch size", trial.batch_size),
        ("drop path", trial.drop_path),
    ]
