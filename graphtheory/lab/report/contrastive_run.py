"""The report of one run without labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from graphtheory.lab import plot
from graphtheory.lab.bench.contrastive import ContrastiveRecipe
from graphtheory.lab.bench.rows import Environment
from graphtheory.lab.bench.table import Table
from graphtheory.lab.report.page import Page


def contrastive_page(
    recipe: ContrastiveRecipe,
    scores: Mapping[str, float],
    history: Sequence[Mapping[str, float]],
    seed: int,
    command: str,
) -> Page:
    """How well frozen features do, the loss, every epoch, and how to run it again.

    Args:
        recipe: How the features were learned.
        scores: `probe`, `nearest` and `val` of `bench.contrastive.Scores`, 0..1.
        history: A row an epoch: epoch, train_loss, seconds.
        seed: Of the run.
        command: What prints it again.
    """
    page = Page(
        f"{recipe.encoder} with {recipe.head} head on {recipe.dataset}, without labels",
        f"Test accuracy of frozen features of the backbone: linear probe "
        f"{100 * scores['probe']:.2f} %, 1-nearest neighbor {100 * scores['nearest']:.2f} %. "
        f"Probe on validation samples {100 * scores['val']:.2f} %.",
    )
    page.section("Training").picture(
        plot.learning_curves([{"model": recipe.encoder, "seed": seed, **row} for row in history]),
        "Contrastive loss, one run. The probe is fitted afterwards, on features that stay as they "
        "are; nothing is chosen by test samples.",
    )
    rows = [
        (str(int(row["epoch"])), f"{row['train_loss']:.4f}", f"{row['seconds']:.3f}")
        for row in history
    ]
    page.folded(Table("Every epoch", ("epoch", "training loss", "s"), rows, words=0))
    here = Environment.here()
    page.how_to_reproduce(command, here, [("seed", seed), *asdict(recipe).items()])
    return page
