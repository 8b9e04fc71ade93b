"""The pages of single runs, on graphs or images, their options, and the table of a search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from graphtheory.lab import plot
from graphtheory.lab.bench.config import RunConfig, ignores
from graphtheory.lab.bench.image_task import ImageRunConfig, ImageRunResult
from graphtheory.lab.bench.rows import Environment
from graphtheory.lab.bench.table import ACCURACY, Measure, Table
from graphtheory.lab.report.page import CAPTIONS, Page

if TYPE_CHECKING:
    from graphtheory.lab.bench.search import SearchResult
    from graphtheory.lab.train import FitResult


def recipe_rows(config: Any) -> list[tuple[str, object]]:
    """List how networks for images were trained, as names and values."""
    recipe = asdict(config.recipe)
    augment = recipe.pop("augment")
    sizes = {"batch size": config.batch_size, "drop path": config.drop_path}
    return list((recipe | augment | sizes).items())


def learning_curves(epochs: Sequence[Mapping[str, Any]], measure: Measure) -> Any:
    """Draw the learning curves of rows with model, seed and what the history holds."""
    return plot.learning_curves(
        epochs, metric=measure.title, unit=measure.axis_unit,
        higher_is_better=measure.higher_is_better, loss_unit="nats" if measure.share else "",
    )  # fmt: skip


def _begun(title: str, fit: FitResult, measure: Measure, caption: str, on: str = "") -> Page:
    """Begin the page of a run, whose title names the model first: scores and learning curves."""
    test = "none" if fit.test is None else measure.format(fit.test)
    page = Page(
        title,
        f"Test {measure.title} {test}{on}, at epoch {fit.best_epoch} of {fit.epochs}, which has "
        f"the best score on validation, {measure.format(fit.val)}.",
    )
    epochs = [{"model": title.partition(" ")[0], "seed": 0, **row} for row in fit.history]
    page.section("Training").picture(learning_curves(epochs, measure), CAPTIONS[caption])
    return page


def graph_run_page(
    title: str, result: FitResult, measure: Measure, setting: list[tuple[str, Any]], command: str
) -> Page:
    """Make the page of a run on graphs; its title names the model, then the data."""
    page = _begun(title, result, measure, "one graph run")
    rows = [
        (str(int(r["epoch"])), f"{r['train_loss']:.4f}", f"{r['val_loss']:.4f}",
         measure.short(r["val"]), f"{r['seconds']:.3f}")
        for r in result.history
    ]  # fmt: skip
    columns = ("epoch", "training loss", "validation loss", "validation", "s")
    page.folded(Table("Every epoch", columns, rows, words=0))
    page.how_to_reproduce(command, Environment.here(), setting)
    return page


def image_run_page(
    title: str, config: ImageRunConfig, result: ImageRunResult, pictures: Mapping[str, Any],
    seed: int, command: str,
) -> Page:  # fmt: skip
    """Make the page of a run on images; its title names the data set and its files."""
    test = f" on {len(result.y):,} images"
    page = _begun(f"{config.model} on {title}", result.fit, ACCURACY, "one image run", test)
    rows = []
    for label in result.y.unique().tolist():
        found = result.predicted[result.y == label]
        wrong = found[found != label]
        instead = str(int(wrong.mode().values)) if len(wrong) else "-"
        right = 100 * (1 - len(wrong) / len(found))
        rows.append((str(label), str(len(found)), f"{right:.1f}", instead))
    columns = ("class", "test images", "right (%)", "most often taken for")
    page.section("Classes").table(Table("", columns, rows))
    if pictures:
        page.section("The first test image")
    for name, figure in pictures.items():
        page.picture(figure, CAPTIONS[name])
    cost = [
        ("seed", seed), ("parameters", f"{result.parameters:,}"),
        ("10^9 multiply-accumulates an image", f"{result.gmacs:.4f}"),
        ("seconds an epoch", f"{result.fit.seconds_per_epoch:.2f}"),
    ]  # fmt: skip
    setting = [*cost, *asdict(config.network).items(), *recipe_rows(config)]
    page.how_to_reproduce(command, Environment.here(), setting)
    return page


_ALWAYS = ("hidden", "layers", "lr", "sampler", "share")


def options(config: RunConfig) -> str:
    """The options that a configuration's model reads, on one line, if they are no defaults."""
    plain, chosen = type(config)(config.model).as_dict(), config.as_dict()
    if "optimizer" not in chosen:  # trees, which have neither network nor optimizer
        return ", ".join(f"{name}={value}" for name, value in chosen.items() if name != "model")
    pairs = [
        (name, value)
        for group in ("network", "optimizer", "sampling")
        for name, value in chosen.get(group, {}).items()
        if (value != plain[group][name] or name in _ALWAYS) and not ignores(config, name, value)
    ]
    pairs += [(name, True) for name in ("degree", "undirected") if chosen.get(name)]
    pairs += [(n, chosen[n]) for n in ("row_scale", "nodes_per_batch") if n in chosen]
    return ", ".join(f"{name}={value}" for name, value in pairs)


def search_table(log: Iterable[SearchResult], measure: Measure = ACCURACY) -> Table:
    """Make a table of every candidate, the best of each model first."""
    rows = [
        (one.config.model, options(one.config), measure.short(one.val), f"{one.parameters:,}",
         f"{one.seconds:.0f}", one.stopped or str(one.seeds))
        for one in sorted(
            log, key=lambda one: (one.config.model, -one.seeds, measure.gain(0.0, one.val))
        )
    ]  # fmt: skip
    columns = ("model", "options", "validation", "params", "s", "splits")
    note = "The mean over the splits; test scores are not looked at."
    return Table("Search log", columns, rows, words=2, note=note)
