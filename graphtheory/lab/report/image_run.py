"""The report of one run on images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from graphtheory.lab import plot
from graphtheory.lab.bench.image_trial import ImageOutcome, ImageTrial
from graphtheory.lab.bench.rows import Environment
from graphtheory.lab.bench.table import Table
from graphtheory.lab.report.image_benchmark import recipe_rows
from graphtheory.lab.report.page import Page

_CAPTIONS = {
    "semantic-attention": "The patches that each semantic token attends to, in the last layer.",
    "assignment": "The token that each patch of the first test image ended in.",
    "class-attention": "The patches that the class token attends to, block by block.",
    "k-nearest": "The patches that the middle one attends to, last block, first head.",
    "window-attention": "The patches that the middle one attends to in its window.",
    "nearest-first": "What the middle patch aggregates from in the first block.",
    "nearest-last": "What the middle patch aggregates from in the last block.",
}


def class_table(outcome: ImageOutcome) -> Table:
    """Of each class how many test images there are, how many are right, and what is taken for it.

    The last column is the class that most of its wrong images were taken for.
    """
    rows = []
    for label in outcome.y.unique().tolist():
        found = outcome.predicted[outcome.y == label]
        wrong = found[found != label]
        instead = str(int(wrong.mode().values)) if len(wrong) else "-"
        right = 100 * (1 - len(wrong) / len(found))
        rows.append((str(label), str(len(found)), f"{right:.1f}", instead))
    return Table("", ("class", "test images", "right (%)", "most often taken for"), rows)


def run_page(
    title: str,
    trial: ImageTrial,
    outcome: ImageOutcome,
    pictures: Mapping[str, Any],
    seed: int,
    command: str,
) -> Page:
    """Scores, curves, classes, pictures of the first test image, and how to run it again.

    Args:
        title: The data set and its files.
        trial: How it was trained.
        outcome: How well it did.
        pictures: Of `bench.image_pictures`, by name.
        seed: Of the run.
        command: What prints it again.
    """
    fit, here = outcome.fit, Environment.here()
    page = Page(
        f"{trial.model} on {title}",
        f"Test accuracy {100 * outcome.test:.2f} % on {len(outcome.y):,} images, at epoch "
        f"{fit.best_epoch} of {fit.epochs}, which has the best validation accuracy, "
        f"{100 * fit.val:.2f} %.",
    )
    page.section("Training").picture(
        plot.learning_curves([{"model": trial.model, "seed": seed, **row} for row in fit.history]),
        "The loss is that of changed images and smoothed labels.",
    )
    page.section("Classes").table(class_table(outcome))
    if pictures:
        page.section("The first test image")
    for name, figure in pictures.items():
        page.picture(figure, _CAPTIONS[name])
    cost = [
        ("seed", seed), ("parameters", f"{outcome.parameters:,}"),
        ("10^9 multiply-accumulates an image", f"{outcome.gmacs:.4f}"),
        ("seconds an epoch", f"{fit.seconds_per_epoch:.2f}"),
    ]  # fmt: skip
    network = asdict(trial.network).items()
    page.how_to_reproduce(command, here, [*cost, *network, *recipe_rows(trial)])
    return page
