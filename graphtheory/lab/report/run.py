"""The report of one run, on graphs or on images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from graphtheory.lab import plot
from graphtheory.lab.bench.image_config import ImageRunConfig, ImageRunResult
from graphtheory.lab.bench.measure import Measure
from graphtheory.lab.bench.rows import Environment
from graphtheory.lab.bench.table import Table
from graphtheory.lab.report.benchmark import learning_curves, recipe_rows
from graphtheory.lab.report.page import Page

if TYPE_CHECKING:
    from graphtheory.lab.train import FitResult

_CAPTIONS = {
    "semantic-attention": "The patches that each semantic token attends to, in the last layer.",
    "assignment": "The token that each patch of the first test image ended in.",
    "class-attention": "The patches that the class token attends to, block by block.",
    "k-nearest": "The patches that the middle one attends to, last block, first head.",
    "window-attention": "The patches that the middle one attends to in its window.",
    "nearest-first": "What the middle patch aggregates from in the first block.",
    "nearest-last": "What the middle patch aggregates from in the last block.",
}


def graph_run_page(
    title: str, result: FitResult, measure: Measure, setting: list[tuple[str, Any]], command: str
) -> Page:
    """Make the page of a run on graphs; its title names the model, then the data."""
    test = "none" if result.test is None else measure.format(result.test)
    page = Page(
        title,
        f"Test {measure.title} {test}, at epoch {result.best_epoch} of {result.epochs}, which has "
        f"the best score on validation, {measure.format(result.val)}.",
    )
    epochs = [{"model": title.partition(" ")[0], "seed": 0, **row} for row in result.history]
    curves = learning_curves(epochs, measure)
    page.section("Training").picture(
        curves, "One run. The test score was not used to choose anything."
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


def class_table(result: ImageRunResult) -> Table:
    """Of each class the share that is right, and what most of its wrong images are taken for."""
    rows = []
    for label in result.y.unique().tolist():
        found = result.predicted[result.y == label]
        wrong = found[found != label]
        instead = str(int(wrong.mode().values)) if len(wrong) else "-"
        right = 100 * (1 - len(wrong) / len(found))
        rows.append((str(label), str(len(found)), f"{right:.1f}", instead))
    return Table("", ("class", "test images", "right (%)", "most often taken for"), rows)


def image_run_page(
    title: str, config: ImageRunConfig, result: ImageRunResult, pictures: Mapping[str, Any],
    seed: int, command: str,
) -> Page:  # fmt: skip
    """Make the page of a run on images; its title names the data set and its files."""
    fit = result.fit
    page = Page(
        f"{config.model} on {title}",
        f"Test accuracy {100 * (fit.test or 0.0):.2f} % on {len(result.y):,} images, at epoch "
        f"{fit.best_epoch} of {fit.epochs}, which has the best validation accuracy, "
        f"{100 * fit.val:.2f} %.",
    )
    page.section("Training").picture(
        plot.learning_curves([{"model": config.model, "seed": seed, **row} for row in fit.history]),
        "The loss is that of changed images and smoothed labels.",
    )
    page.section("Classes").table(class_table(result))
    if pictures:
        page.section("The first test image")
    for name, figure in pictures.items():
        page.picture(figure, _CAPTIONS[name])
    cost = [
        ("seed", seed), ("parameters", f"{result.parameters:,}"),
        ("10^9 multiply-accumulates an image", f"{result.gmacs:.4f}"),
        ("seconds an epoch", f"{fit.seconds_per_epoch:.2f}"),
    ]  # fmt: skip
    setting = [*cost, *asdict(config.network).items(), *recipe_rows(config)]
    page.how_to_reproduce(command, Environment.here(), setting)
    return page
