"""The command `graphtheory train --task contrastive` and the report that it writes."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphtheory.lab import plot
from graphtheory.lab.bench.config import checked_options, read_options, with_options
from graphtheory.lab.bench.rows import Environment, Table
from graphtheory.lab.cli import show
from graphtheory.lab.cli.options import kinds
from graphtheory.lab.cli.show import RefusedError, Screen
from graphtheory.lab.report.page import Page
from graphtheory.lab.train import fit
from graphtheory.papers.fusion import recipe as c

if TYPE_CHECKING:
    from graphtheory.lab.cli.train import Train


def learn(asked: "Train", screen: Screen) -> None:
    """Learn features without labels, then say how well frozen ones do."""
    for option, value in (("--split", asked.split), ("--patience", asked.patience)):
        if value is not None:
            raise RefusedError(f"{option}: got {value}, but a contrastive task has none")
    recipe = _recipe(asked)
    named = f"{Path(recipe.dataset).name}-{recipe.encoder}-{recipe.head}-{asked.seed}"
    out = asked.out or Path(f"runs/contrastive-{named}")
    show.refuse_earlier(screen, out, asked.resume)
    with (
        screen.working(f"reading {recipe.dataset}"),
        show.usage_errors(ValueError, TypeError, OSError, ImportError),
    ):
        run = c.prepare(recipe, asked.seed)
    screen.note(
        f"{recipe.encoder} with {recipe.head} head on {recipe.dataset}, seed {asked.seed}: "
        f"{recipe.epochs} epochs of {run.data.count} batches of {run.data.batch_size}, temperature "
        f"{recipe.temperature:g}, step {recipe.lr:g}"
    )
    with asked.training(screen, out, None) as options:
        trained = fit(run.task, run.data, epochs=recipe.epochs, **options)
        if asked.follows:
            return
        with screen.working("linear probe and nearest neighbors"):
            found = run.score()._asdict()
    _report(screen, out, recipe, asked.seed, found | {"history": trained.history})


def _recipe(asked: "Train") -> c.ContrastiveRecipe:
    kinds(asked.dataset)
    recipe = c.recipe_for(asked.dataset, show.data_root(asked.root), size=asked.image_size)
    heads = c.GRAPH_HEADS if recipe.graph else c.IMAGE_HEADS
    head = show.known("--head", asked.head, heads)
    encoder = recipe.encoder
    if asked.model != type(asked).model:  # the default is a model of another task
        names = ("gcn",) if recipe.graph else c.ENCODERS
        encoder = show.known("--model", asked.model, names)
    recipe = replace(recipe, head=head, encoder=encoder, epochs=asked.epochs or recipe.epochs)
    with show.usage_errors():
        return with_options(recipe, checked_options([recipe], read_options(asked.set)))


def _report(
    screen: Screen, out: Path, recipe: c.ContrastiveRecipe, seed: int, found: dict[str, Any]
) -> None:
    """Say, write and draw how well frozen features do, the loss, every epoch, the command."""
    screen.say(
        f"test, features of the backbone: linear probe {100 * found['probe']:.2f} %, 1-nearest "
        f"neighbor {100 * found['nearest']:.2f} %; probe on validation {100 * found['val']:.2f} %"
    )
    kept = {"command": screen.command, "recipe": asdict(recipe), "result": found}
    kept["environment"] = asdict(Environment.here())
    show.write_json(out / "result.json", kept)
    with screen.working("report.html"):
        page = Page(
            f"{recipe.encoder} with {recipe.head} head on {recipe.dataset}, without labels",
            f"Test accuracy of frozen features of the backbone: linear probe "
            f"{100 * found['probe']:.2f} %, 1-nearest neighbor {100 * found['nearest']:.2f} %. "
            f"Probe on validation samples {100 * found['val']:.2f} %.",
        )
        history = found["history"]
        losses = [{"model": recipe.encoder, "seed": seed, **row} for row in history]
        page.section("Training").picture(
            plot.learning_curves(losses),
            "Contrastive loss, one run. The probe is fitted afterwards, on features that stay as "
            "they are; nothing is chosen by test samples.",
        )
        rows = [
            (str(int(row["epoch"])), f"{row['train_loss']:.4f}", f"{row['seconds']:.3f}")
            for row in history
        ]
        page.folded(Table("Every epoch", ("epoch", "training loss", "s"), rows, words=0))
        settings = [("seed", seed), *asdict(recipe).items()]
        page.how_to_reproduce(screen.command, Environment.here(), settings)
        page.save(out / "report.html")
    screen.result({"folder": out, **kept})
    screen.say(
        f"Written to {out}: report.html, last.ckpt, previous.ckpt, history.csv, result.json."
    )
