"""Figure 2.6: a vision transformer on images on backgrounds, some of which is removed."""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

from graphtheory.lab.bench.rows import Row, Table, percent_mean
from graphtheory.lab.datasets.image_sets import Images
from graphtheory.papers.claims import Crossing, Numbers, Power, Read, Trend, over
from graphtheory.papers.figure import DataSets, Figure, Verdict, small
from graphtheory.papers.grid import Grid, Measured, axis, unrecorded
from graphtheory.papers.pictures import error_curves, picture_of, value_curves
from graphtheory.papers.pivot import Measurements, Shown, groups
from graphtheory.papers.shallow_trials import ends
from graphtheory.papers.shallow_vit import backgrounds as scenes
from graphtheory.papers.shallow_vit.backgrounds import SCENES, Scene, ScoredViT
from graphtheory.patterns.draw import generator_of

_TESTED = 2000  # images at most
KEPT = (25, 21, 18, 16)  # of 25 patches, 16 of the image: alpha_* 0.64 to 1
DATA = DataSets("digits", ("digits", "cifar10", "cifar10-jpeg"), images=True)
_NATURAL = (500, 1500, 4500)
_LABELS = {"digits": (100, 300, 900), "cifar10": _NATURAL, "cifar10-jpeg": _NATURAL}
_TARGETS = {"digits": 0.6, "cifar10": 0.4, "cifar10-jpeg": 0.4}


@dataclass(frozen=True, kw_only=True)
class OnImages(Grid):
    """What the grids of figure 2.6 share."""

    scene: Scene = SCENES["digits"]  # images and network
    root: Path | None = unrecorded(None)

    @property
    def dataset(self) -> str:
        """Name of the set of images."""
        return self.scene.dataset


@dataclass(frozen=True, kw_only=True)
class Backgrounds(OnImages):
    """Figures 2.6a and 2.6b: the images of a seed are the same for all tokens."""

    kept: tuple[int, ...] = axis("kept")  # patches that stay, in training and test
    labels: tuple[int, ...] = axis("labels", (100, 300, 900))  # N
    most: int = 900  # the largest N: images are drawn for it, of which a smaller N has the first
    target: float = unrecorded(0.6)  # accuracy that counts as learned in figure 2.6b
    seeds: int = axis("seed", 3)


def accuracies(grid: Backgrounds, kept: int, labels: int, seed: int) -> list[Measured]:
    """The test accuracy of one network."""
    scene = grid.scene
    train, test = scenes.images(scene, grid.root)
    generator = generator_of(seed, 0)
    held = scenes.held_out(train)
    own = scenes.shuffled(train, grid.most, generator)
    if len(own.y) < held + grid.most:
        raise ValueError(f"labels: got {grid.most}, expected at most {len(own.y) - held} images")
    pictures = scenes.pasted(scene, own, generator)
    classes = int(train.y.max()) + 1
    model = scenes.network(scene, own.pixels.size(1), classes, kept, seed)
    task = scenes.learn(scene, model, pictures, held, classes, seed, labels)
    few = Images(test.pixels[:_TESTED], test.y[:_TESTED])
    found = scenes.score(task, scenes.pasted(scene, few, generator_of(seed, 1)))
    about = {"kept": kept, "alpha_star": scene.canvas.alpha_star(kept)}
    return [about | {"labels": labels, "seed": seed, "accuracy": found}]


def gain(numbers: Numbers) -> str:
    """By how much the measure is larger at the end of a line than at its beginning."""
    first, last = numbers[min(numbers)], numbers[max(numbers)]
    gains = [100 * (b - a) for a, b in zip(first, last, strict=True)]
    return f", by {fmean(gains):.1f} points from end to end ({min(gains):.1f} to {max(gains):.1f})"


def accuracy_rises(letter: str, read: Read) -> Trend:
    """The claim that accuracy rises with a letter."""
    return Trend(what="accuracy", letter=letter, read=read, claimed="rises", more=gain)


def _show(grid: Backgrounds, measured: Measurements) -> Shown:
    lines, rows = [], []
    for labels, by in over("alpha_star", "accuracy", "{labels}")(grid, measured).items():
        lines.append([f"{int(labels):,}", *map(percent_mean, by.values())])
        rows += [
            Row.of("test accuracy", of, "1", alpha_star=alpha, labels=int(labels))
            for alpha, of in by.items()
        ]
    heads = ["images", *(f"alpha_* = {alpha:g}" for alpha in by)]
    return Shown(Table("test accuracy %", heads, lines), rows)


def fewer_images(grid: Backgrounds, measured: Measurements) -> Verdict:
    """Figure 2.6b: the images that an accuracy needs fall as a power of alpha_*, eq. (2.11)."""
    wanted = f"images for an accuracy of {100 * grid.target:g} %"
    read = Crossing(
        "labels", "accuracy", grid.target, "alpha_star", "all tokens that stay", rising=True,
        log_measure=False,
    )  # fmt: skip
    told, rows = [], []
    smallest, largest = min(grid.labels), max(grid.labels)
    for alpha, counts in next(iter(read(grid, measured).values())).items():
        middle = median(counts)
        few = f"at most {smallest:,}" if middle == smallest else f"{middle:,.0f}"
        shown = f"more than {largest:,}" if math.isinf(middle) else few
        told.append(f"alpha_* = {alpha:g}: {wanted}: {shown}.")
        inside = [count for count in counts if smallest < count < math.inf]
        if inside:
            rows.append(Row.of(wanted, inside, "1", alpha_star=alpha))
    law = Power(
        what="images", letter="alpha_*", read=read.inside, claimed=-2,
        rows=lambda _, found: (
            [Row.of("exponent of the images", found.exponent, "1")] if found else []
        ),
    )(grid, measured)  # fmt: skip
    return Verdict(" ".join([*told, law.text]), rows + law.rows)


def _draw_needed(grid: Backgrounds, measured: Measurements, title: str) -> Any:
    return value_curves(
        measured, panel="", series="alpha_* = {alpha_star:g}", at="labels", value="accuracy",
        scale=100, xlabel="training images", ylabel="test accuracy %", title=title,
        marks=(100 * grid.target,),
    )  # fmt: skip


def _on_images(first: int, grid: Backgrounds, dataset: str, root: Path | None) -> Backgrounds:
    """On a data set, with its numbers of images from the one at that place on."""
    labels, target = _LABELS[dataset], _TARGETS[dataset]
    return replace(
        grid, scene=SCENES[dataset], root=root, labels=labels[first:], most=labels[-1],
        target=target,
    )  # fmt: skip


_quick = small(scene={"updates": 48}, kept=ends, labels=ends, seeds=2)
_MORE_IMAGES = accuracy_rises("N", over("labels", "accuracy", "alpha_* = {alpha_star:g}"))


DRAWN, PRETRAINED = "drawn weights", "pre-trained on the other classes"
AGREEING, CONFLICTING = "agreeing", "conflicting"
_OTHERS = 500  # images of each of the other classes
_SHOWN = {"accuracy": "test accuracy", "gap": "gap between backgrounds"}


@dataclass(frozen=True, kw_only=True)
class Spurious(OnImages):
    """Figure 2.6c: backgrounds say the class in training, not in the test.

    Of the first class a share `agree` of the training images lies on a texture, of the second 1 -
    `agree`, the others on black. Every test image is scored on both.
    """

    # "drawn weights", or "pre-trained on the other classes", which all networks of a seed share
    starts: tuple[str, ...] = axis("start", (DRAWN, PRETRAINED))
    kept: tuple[int, ...]
    labels: int = 300
    agree: float = 0.9  # the share
    seeds: int = axis("seed", 3)


def gaps(grid: Spurious, start: str, seed: int) -> list[Measured]:
    """Accuracy for each number of tokens, and that of either kind of test images.

    "agreeing" images have the background of most of their class in training.
    """
    scene, generator = grid.scene, generator_of(seed, 2)
    train, test = scenes.images(scene, grid.root)
    pair = scenes.of_classes(train, scene.pair)
    own, held = scenes.shuffled(pair, grid.labels, generator), scenes.held_out(pair)
    textured = scenes.backgrounds(own.y, grid.agree, generator)
    pictures = scenes.pasted(scene, own, generator, textured)
    given = scenes.of_classes(test, scene.pair)
    tests = {  # every image on the background of most of its class, and on the other
        name: scenes.pasted(scene, given, generator_of(seed, 3), (given.y == 0) == agrees)
        for name, agrees in ((AGREEING, True), (CONFLICTING, False))
    }
    other = _pretrained(scene, train, seed) if start == PRETRAINED else None
    rows: list[Measured] = []
    for kept in grid.kept:
        model = scenes.network(scene, train.pixels.size(1), 2, kept, seed)
        if other is not None:
            scenes.begun_from(model, other)
        task = scenes.learn(scene, model, pictures, held, 2, seed)
        found = {name: scenes.score(task, of) for name, of in tests.items()}
        rows.append(
            {"start": start, "kept": kept, "seed": seed,
             "alpha_star": scene.canvas.alpha_star(kept), "accuracy": sum(found.values()) / 2,
             "gap": found[AGREEING] - found[CONFLICTING]}
            | found
        )  # fmt: skip
    return rows


def _pretrained(scene: Scene, train: Images, seed: int) -> ScoredViT:
    """A network that tells the other classes apart, on textures, with all of its tokens."""
    generator = generator_of(seed, 4)
    others = tuple(c for c in range(int(train.y.max()) + 1) if c not in scene.pair)
    given = scenes.of_classes(train, others)
    own = scenes.shuffled(given, _OTHERS * len(others), generator)
    pictures, held = scenes.pasted(scene, own, generator), scenes.held_out(given)
    model = scenes.network(scene, train.pixels.size(1), len(others), scene.canvas.tokens, seed)
    task = scenes.learn(scene, model, pictures, held, len(others), seed)
    assert isinstance(task.evaluated, ScoredViT)
    return task.evaluated


def _show_spurious(grid: Spurious, measured: Measurements) -> Shown:
    lines, rows = [], []
    for (start,), mine in groups(measured, "start").items():
        for key, name in _SHOWN.items():
            by = over("alpha_star", key, name)(grid, mine)[name]
            lines.append([start, name, *map(percent_mean, by.values())])
            rows += [
                Row.of(name, of, "1", start=start, alpha_star=alpha) for alpha, of in by.items()
            ]
    heads = ["start", "", *(f"alpha_* = {alpha:g}" for alpha in by)]
    return Shown(Table("%", heads, lines, words=2), rows)


_picture_spurious = picture_of(
    error_curves,
    lambda measured: [
        one | {"panel": f"{name} %", "error": one[key]}
        for key, name in _SHOWN.items()
        for one in measured
    ],
    series="{start}", at="alpha_star", scale=100, xlabel="alpha_*", axis=None,
)  # fmt: skip


def better_start(grid: Spurious, measured: Measurements) -> Verdict:
    """What the second start gains over the first, over all shares."""
    if len(grid.starts) < 2:
        return Verdict("")
    worse, better = (
        [one["accuracy"] for one in measured if one["start"] == start] for start in grid.starts[:2]
    )
    gains = [b - a for a, b in zip(worse, better, strict=True)]
    return Verdict(
        f"{grid.starts[1]}: {100 * fmean(gains):+.1f} points on average, ahead in "
        f"{sum(gain > 0 for gain in gains)} of {len(gains)} runs, claimed better."
    )


FIGURES = (
    Figure(
        "fig-2-6a", "accuracy of a vision transformer over alpha_*, images on backgrounds",
        Backgrounds(kept=KEPT), accuracies, _show,
        (accuracy_rises("alpha_*", over("alpha_star", "accuracy", "{labels} images")),
         _MORE_IMAGES),
        picture_of(
            error_curves, panel="test accuracy %", series="{labels:,} images", at="alpha_star",
            value="accuracy", scale=100, xlabel="alpha_*", axis=None,
        ),
        _quick, DATA, partial(_on_images, 1),
    ),
    Figure(
        "fig-2-6b", "accuracy over the number of training images, images on backgrounds",
        Backgrounds(kept=(25, 20, 16)), accuracies, _show, (_MORE_IMAGES, fewer_images),
        _draw_needed, _quick, DATA, partial(_on_images, 0),
    ),
    Figure(
        "fig-2-6c", "backgrounds that give the class away, removed token by token",
        Spurious(kept=KEPT), gaps, _show_spurious,
        (
            accuracy_rises("alpha_*", over("alpha_star", "accuracy", "{start}")),
            Trend(
                what="the gap between test images with the background of their class in training "
                "and those with the other one",
                letter="alpha_*", read=over("alpha_star", "gap", "{start}"), claimed="falls",
            ),
            better_start,
        ),
        _picture_spurious, small(scene={"updates": 48}, kept=ends, starts=slice(1), seeds=2), DATA,
        lambda grid, name, root: replace(
            grid, scene=SCENES[name], root=root, labels=_LABELS[name][1]
        ),
    ),
)  # fmt: skip
