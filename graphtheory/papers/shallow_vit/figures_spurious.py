"""Figure 2.6c: images on backgrounds that give the class away, removed token by token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from graphtheory.lab.bench.rows import Row
from graphtheory.lab.bench.table import Table, percent_mean
from graphtheory.lab.datasets.image_sets import Images
from graphtheory.papers.claims import Trend, over
from graphtheory.papers.figure import Figure, Measurements, Shown, Verdict, groups, small
from graphtheory.papers.grid import Measured, axis
from graphtheory.papers.pictures import error_curves
from graphtheory.papers.shallow_trials import ends
from graphtheory.papers.shallow_vit import backgrounds as scenes
from graphtheory.papers.shallow_vit.backgrounds import SCENES, Pictures, Scene, ScoredViT
from graphtheory.papers.shallow_vit.figures_backgrounds import (
    DATA,
    KEPT,
    OnImages,
    accuracy_rises,
    labels_of,
)

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
    scene, generator = grid.scene, scenes.drawn(seed, 2)
    train, test = scenes.images(scene, grid.root)
    pair = scenes.of_classes(train, scene.pair)
    own, held = scenes.shuffled(pair, grid.labels, generator), scenes.held_out(pair)
    textured = scenes.backgrounds(own.y, grid.agree, generator)
    pictures = scenes.pasted(scene, own, generator, textured)
    tests = _tests(scene, scenes.of_classes(test, scene.pair), seed)
    other = _pretrained(scene, train, seed) if start == PRETRAINED else None
    rows: list[Measured] = []
    for kept in grid.kept:
        model = scenes.network(scene, train.pixels.size(1), 2, kept, seed)
        if other is not None:
            scenes.begun_from(model, other)
        task = scenes.learn(
            scene, model, pictures.rows(slice(held, None)), pictures.rows(slice(held)), 2, seed
        )
        found = {name: scenes.score(task, of) for name, of in tests.items()}
        rows.append(
            {"start": start, "kept": kept, "alpha_star": scenes.share(scene, kept), "seed": seed,
             "accuracy": sum(found.values()) / 2, "gap": found[AGREEING] - found[CONFLICTING]}
            | found
        )  # fmt: skip
    return rows


def _tests(scene: Scene, given: Images, seed: int) -> dict[str, Pictures]:
    """Every image once on the background of most of its class, and once on the other."""
    agree = given.y == 0
    return {
        name: scenes.pasted(scene, given, scenes.drawn(seed, 3), textured)
        for name, textured in ((AGREEING, agree), (CONFLICTING, ~agree))
    }


def _pretrained(scene: Scene, train: Images, seed: int) -> ScoredViT:
    """A network that tells the other classes apart, on textures, with all of its tokens."""
    generator = scenes.drawn(seed, 4)
    others = tuple(c for c in range(int(train.y.max()) + 1) if c not in scene.pair)
    given = scenes.of_classes(train, others)
    own = scenes.shuffled(given, _OTHERS * len(others), generator)
    pictures, held = scenes.pasted(scene, own, generator), scenes.held_out(given)
    model = scenes.network(scene, train.pixels.size(1), len(others), scene.canvas.tokens, seed)
    task = scenes.learn(
        scene, model, pictures.rows(slice(held, None)), pictures.rows(slice(held)), len(others),
        seed,
    )  # fmt: skip
    assert isinstance(task.evaluated, ScoredViT)
    return task.evaluated


def _show(grid: Spurious, measured: Measurements) -> Shown:
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


def _picture(grid: Spurious, measured: Measurements, title: str) -> Any:
    points = [
        {"panel": f"{name} %", "series": one["start"], "at": one["alpha_star"],
         "error": 100 * one[key]}
        for (_,), mine in groups(measured, "start").items()
        for key, name in _SHOWN.items()
        for one in sorted(mine, key=lambda one: (one["alpha_star"], one["seed"]))
    ]  # fmt: skip
    return error_curves(points, xlabel="alpha_*", title=title, from_zero=False)


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


def _bind(grid: Spurious, dataset: str, root: Path | None) -> Spurious:
    return replace(grid, scene=SCENES[dataset], root=root, labels=labels_of(dataset)[1])


FIGURES = (
    Figure(
        "fig-2-6c", "backgrounds that give the class away, removed token by token",
        Spurious(kept=KEPT), gaps, _show,
        (
            accuracy_rises("alpha_*", over("alpha_star", "accuracy", "{start}")),
            Trend(
                what="the gap between test images with the background of their class in training "
                "and those with the other one",
                letter="alpha_*", read=over("alpha_star", "gap", "{start}"), claimed="falls",
            ),
            better_start,
        ),
        _picture, small(scene={"updates": 48}, kept=ends, starts=slice(1), seeds=2), DATA, _bind,
    ),
)  # fmt: skip
