"""`graphtheory train` on images."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphtheory.disk import replace_file
from graphtheory.lab.cli.show import (
    SMALL,
    RefusedError,
    Screen,
    data_root,
    refusing,
    threads,
    told_on_stop,
    write_json,
)

if TYPE_CHECKING:
    from graphtheory.lab.bench.image_trial import ImageOutcome, ImageTrial
    from graphtheory.lab.cli.train import Train
    from graphtheory.lab.datasets.image_sets import ImageSet
    from graphtheory.lab.train import ImageTask

MANY = SMALL + 1  # nodes of a graph that computes on all cores, as images do


def refuse_earlier(screen: Screen, out: Path, resume: bool) -> None:
    """Refuse a folder with a run that was not asked to go on; say where there is none to go on.

    Raises:
        RefusedError: It holds one.
    """
    there = (out / "last.ckpt").exists()
    if resume and not there:
        screen.note(f"No checkpoint in {out}: from the first epoch.")
    if there and not resume:
        raise RefusedError(f"--out: {out} holds an earlier run; add --resume to go on with it")


def train_on_images(screen: Screen, command: Train) -> None:
    """Train, score once on the test images, draw, print, write."""
    from graphtheory.lab.bench.image_trial import image_trial, prepare, run
    from graphtheory.lab.bench.options import checked_options, read_options, told_options
    from graphtheory.lab.datasets import image_sets
    from graphtheory.lab.train import CheckpointError

    if command.patience is not None:
        raise RefusedError("--patience: not for images, whose recipe has a number of epochs")
    root = data_root(command.root)
    with refusing(ValueError, TypeError, OSError, ImportError):
        with screen.working(f"reading {command.dataset}"):
            images = image_sets.load(command.dataset, root, size=command.image_size)
        split, name = images.info.known_split(command.split), images.info.name
        given = read_options(command.set)
        trial = image_trial(command.dataset, command.model, command.epochs, given)
        by_hand = told_options(checked_options([trial], given), [trial])
        task, data = prepare(trial, images, command.seed)
    out = command.out or Path(f"runs/train-{name}-{trial.model}-{split}-{command.seed}")
    refuse_earlier(screen, out, command.resume)
    screen.note(f"{trial.model} on {_named(images)}, split {split}, seed {command.seed}")
    if images.listing:
        screen.note(f"classes: {', '.join(images.listing.classes)}")
    screen.note(f"{trial.recipe}, batches of {trial.batch_size}")
    if by_hand:
        screen.note(f"Set by hand: {by_hand}.")
    with (
        told_on_stop(lambda: screen.note(f"\nCheckpoint in {out}; --resume goes on from it.")),
        refusing(CheckpointError, ValueError, OSError),
        threads(command.threads, MANY),
    ):
        outcome = run(
            task, data, images, seed=command.seed, out_dir=out, resume=command.resume,
            progress=screen.progress,
        )  # fmt: skip
        finished = Finished(trial, images, task, outcome, command.seed)
        with screen.working("pictures"):
            drawn = finished.write(out, screen.command)
    screen.result({"folder": out, **finished.kept(screen.command)})
    screen.say(finished.line())
    screen.say(
        f"{outcome.gmacs:.4f} GMACs an image, {outcome.parameters:,} parameters, "
        f"{outcome.fit.seconds_per_epoch:.2f} s/epoch, peak {outcome.fit.peak_mb:.0f} MB"
    )
    more = f", pictures/ ({', '.join(drawn)})" if drawn else ""
    screen.say(
        f"Written to {out}: report.html, last.ckpt, previous.ckpt, best.ckpt, history.csv, "
        f"result.json, predictions.csv{more}."
    )


@dataclass(frozen=True)
class Finished:
    """A run on images that is over.

    Attributes:
        trial: How it was trained.
        images: On what.
        task: What came out.
        outcome: How well it did.
        seed: Of the run.
    """

    trial: ImageTrial
    images: ImageSet
    task: ImageTask
    outcome: ImageOutcome
    seed: int

    def line(self) -> str:
        """Scores."""
        test, fit = self.outcome.test, self.outcome.fit
        return (
            f"test {100 * test:.2f} %, validation {100 * fit.val:.2f} %, best epoch "
            f"{fit.best_epoch} of {fit.epochs}; data {_files(self.images)}"
        )

    def result(self) -> dict[str, Any]:
        """Numbers in plain values."""
        numbers = {name: getattr(self.outcome, name) for name in ("test", "gmacs", "parameters")}
        return asdict(self.outcome.fit) | numbers

    def kept(self, command: str) -> dict[str, Any]:
        """What result.json holds."""
        from graphtheory.lab.bench.rows import Environment

        listing = self.images.listing
        return {
            "command": command, "data": _files(self.images), "classes": listing and listing.classes,
            "options": self.trial.as_dict(),
            "result": self.result(), "environment": asdict(Environment.here()),
        }  # fmt: skip

    def write(self, out: Path, command: str) -> list[str]:
        """report.html, result.json, predictions.csv and pictures; names of the pictures."""
        from graphtheory.lab.bench.image_pictures import pictures
        from graphtheory.lab.plot import save
        from graphtheory.lab.report.image_run import run_page

        write_json(out / "result.json", self.kept(command))
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows(self.outcome.rows(self.images))
        replace_file(out / "predictions.csv", table.getvalue().encode())
        drawn = pictures(self.task, self.images.test().pixels[0])
        title = _named(self.images)
        page = run_page(title, self.trial, self.outcome, drawn, self.seed, command)
        page.save(out / "report.html")
        if drawn:
            (out / "pictures").mkdir(exist_ok=True)
        for name, figure in drawn.items():
            save(figure, out / "pictures" / f"{name}.png")
        return list(drawn)


def _named(images: ImageSet) -> str:
    """The set and its files: of CIFAR-10 there are several that cannot be compared."""
    return f"{images.info.name} ({_files(images)})"


def _files(images: ImageSet) -> str:
    info = images.info
    if info.embedded:
        return "scikit-learn's digits"
    if not info.files:
        counts = dict(info.counts)
        return (
            f"{info.folder}, {counts['images']:,} + {counts['test images']:,} images of "
            f"{counts['classes']} classes"
        )
    more = f" and {len(info.files) - 1} more" if len(info.files) > 1 else ""
    return f"{info.folder}/{info.files[0]}{more}"
