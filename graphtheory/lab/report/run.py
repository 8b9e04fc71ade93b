"""The report of one run on graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphtheory.lab import plot
from graphtheory.lab.bench.measure import Measure
from graphtheory.lab.bench.rows import Environment
from graphtheory.lab.bench.table import Table
from graphtheory.lab.report.page import Page

if TYPE_CHECKING:
    from graphtheory.lab.train import FitResult


def graph_run_page(
    title: str, result: FitResult, measure: Measure, setting: list[tuple[str, Any]], command: str
) -> Page:
    """Scores, curves, every epoch, and how to run it again.

    Args:
        title: Of the run: the model and its data.
        result: How well it did.
        measure: How its scores are read.
        setting: Names and values worth knowing, such as the options.
        command: What prints it again.
    """
    told = "none" if result.test is None else measure.told(measure.shown(result.test))
    page = Page(
        title,
        f"Test {measure.title} {told}, at epoch {result.best_epoch} of {result.epochs}, which has "
        f"the best score on validation, {measure.told(measure.shown(result.val))}.",
    )
    model = title.partition(" ")[0]
    page.section("Training").picture(
        plot.learning_curves(
            [{"model": model, "seed": 0, **row} for row in result.history],
            metric=measure.title,
            unit=measure.axis_unit,
            higher_is_better=measure.higher_is_better,
            loss_unit="nats" if measure.share else "",
        ),
        "One run. Nothing is chosen by the score on test nodes.",
    )
    rows = [
        (str(int(r["epoch"])), f"{r['train_loss']:.4f}", f"{r['val_loss']:.4f}",
         measure.short(r["val"]), f"{r['seconds']:.3f}")
        for r in result.history
    ]  # fmt: skip
    columns = ("epoch", "training loss", "validation loss", "validation", "s")
    page.folded(Table("Every epoch", columns, rows, words=0))
    page.how_to_reproduce(command, Environment.here(), setting)
    return page
