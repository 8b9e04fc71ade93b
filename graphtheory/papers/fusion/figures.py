"""Deep Fusion: features learned with a transformer head and with other projection heads."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from graphtheory.lab import plot
from graphtheory.lab.bench.rows import Row, Table, percent_spread
from graphtheory.lab.train import fit
from graphtheory.papers.figure import Claim, DataSets, Figure, Verdict, small
from graphtheory.papers.fusion import recipe as recipes
from graphtheory.papers.fusion.contrastive import SimCLR
from graphtheory.papers.fusion.recipe import MLP, PIXELS, TRANSFORMER, UNTRAINED, Prepared
from graphtheory.papers.grid import Cell, Grid, Measured, axis, unrecorded
from graphtheory.papers.pictures import value_curves
from graphtheory.papers.pivot import Measurements, Shown, groups
from graphtheory.papers.stats import student_interval

IMAGES = ("digits", "mnist", "cifar10", "cifar10-jpeg")
_GRAPHS = ("Cora", "facebook", "PubMed")
_NAMES = {
    TRANSFORMER: "transformer head", MLP: "MLP head", "linear": "linear head", "none": "no head",
    "dgi": "DGI", UNTRAINED: "not trained", PIXELS: "raw pixels",
}  # fmt: skip
_MEASURES = {"probe": "linear probe", "nearest": "1-nearest neighbor"}
_NOT_TRAINED = (UNTRAINED, PIXELS)
_RECIPE = recipes.ContrastiveRecipe()
_SETTLING = 40  # batches after which a running mean is that of the data
_AXES = {"temperature": "temperature", "batch_size": "samples per batch"}


@dataclass(frozen=True)
class Heads(Grid):
    """Heads under one recipe, each with the step size that does best on validation."""

    recipe: recipes.ContrastiveRecipe = _RECIPE  # all else
    varied: str = ""  # attribute of the recipe that varies, "" for none
    values: tuple[Any, ...] = axis("at", (None,))  # what it takes
    # some of the heads that the recipe knows, `UNTRAINED`, or of images `PIXELS`
    heads: tuple[str, ...] = axis("head", (*recipes.IMAGE_HEADS, UNTRAINED))
    # step sizes; the mean validation score over the seeds decides, for each head and setting
    lrs: tuple[float, ...] = axis("lr", (0.03, 0.1, 0.3))
    seeds: int = axis("seed", 3)
    root: Path | None = unrecorded(None)

    @property
    def dataset(self) -> str:
        """The data set that the recipe names."""
        return self.recipe.dataset

    def cells(self) -> list[Cell]:
        """All combinations, but one step size where nothing is trained."""
        lr = self.lrs[0]
        return [c for c in super().cells() if c["head"] not in _NOT_TRAINED or c["lr"] == lr]


def scores(grid: Heads, at: Any, head: str, lr: float, seed: int) -> list[Measured]:
    """Accuracy of the probe on validation and test, of the nearest neighbor, loss and seconds."""
    changes = {grid.varied: at} if grid.varied else {}
    recipe = replace(grid.recipe, root=grid.root, head=head, lr=lr, **changes)
    run = recipes.prepare(recipe, seed)
    last = {"loss": 0.0, "seconds": 0.0}
    if head not in _NOT_TRAINED:
        found = fit(run.task, run.data, epochs=recipe.epochs, seed=seed, progress=False)
        last = {"loss": found.history[-1]["train_loss"], "seconds": found.seconds_per_epoch}
    elif any(isinstance(module, torch.nn.BatchNorm2d) for module in run.task.modules()):
        settle(run, seed)
    return [{"head": head, "at": at, "lr": lr, "seed": seed} | last | run.score()._asdict()]


@torch.no_grad()
def settle(run: Prepared, seed: int) -> None:
    """Give batch norm the statistics of augmented data, with all parameters as drawn."""
    assert isinstance(run.task, SimCLR)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        run.task.train()
        for epoch in range(-(-_SETTLING // run.data.count)):
            for batch in run.data.train_batches(epoch):
                run.task.features(batch)


Cells = dict[tuple[Any, ...], list[Measured]]


def chosen(measured: Measurements) -> Cells:
    """(head, setting) -> those of the step size with the best mean validation score."""

    def val(own: Measurements) -> float:
        return fmean(row["val"] for row in own)

    cells = groups(measured, "head", "at")
    return {where: max(groups(mine, "lr").values(), key=val) for where, mine in cells.items()}


def _show(grid: Heads, measured: Measurements) -> Shown:
    cells = chosen(measured)
    axis = [_AXES[grid.varied]] if grid.varied else []
    lines = []
    for (head, at), cell in cells.items():
        accuracy = [percent_spread([row[key] for row in cell], ".1f") for key in _MEASURES]
        lr, seconds = f"{cell[0]['lr']:g}", f"{fmean(row['seconds'] for row in cell):.2f}"
        training = ["-", "-"] if head in _NOT_TRAINED else [lr, seconds]
        lines.append([_NAMES[head], *([f"{at:g}"] if axis else []), *accuracy, *training])
    rows = [
        Row.of(name, [row[key] for row in cell], "1", dataset=grid.dataset, head=head,
               lr=cell[0]["lr"], **({grid.varied: at} if grid.varied else {}))
        for key, name in _MEASURES.items()
        for (head, at), cell in cells.items()
    ]  # fmt: skip
    heads = ["head", *axis, "linear probe %", "1-NN %", "step size", "s/epoch"]
    note = (
        "Mean ± standard deviation on the test samples, features of the backbone; the step size is "
        "the best of those tried by the mean probe on validation."
    )
    return Shown(Table("accuracy by head", heads, lines, note=note), rows)


def gains(cells: Cells, measure: str, at: Any = None, over: str = MLP) -> list[float]:
    """By how many points the transformer head is ahead, seed by seed."""
    ahead, behind = (
        {row["seed"]: row[measure] for row in cells[head, at]} for head in (TRANSFORMER, over)
    )
    return [100 * (ahead[seed] - behind[seed]) for seed in behind]


def _gap(gains: list[float]) -> str:
    """The mean of the pairs, and half a 95 % interval, which one seed has not."""
    mean, half = student_interval(gains)
    spread = "one seed" if isnan(half) else f"± {half:.1f}"
    word = "" if isnan(half) else ", ahead" if mean > half else ", behind" if -mean > half else ""
    return f"{mean:+.1f} ({spread}{word})"


def ahead_of_others(grid: Heads, measured: Measurements) -> Verdict:
    """The transformer head beside each other one, in both measures."""
    cells, told, rows = chosen(measured), [], []
    for over in (head for head in grid.heads if head != TRANSFORMER):
        found = {name: gains(cells, key, over=over) for key, name in _MEASURES.items()}
        gaps = (f"{name} {_gap(points)}" for name, points in found.items())
        told.append(f"{_NAMES[over]}: {', '.join(gaps)}")
        about = {"dataset": grid.dataset, "first": TRANSFORMER, "other": over}
        rows += [Row.of(f"paired difference of {n}", found[n], "points", **about) for n in found]
    words = "Found here, transformer minus others, with 95 % intervals"
    return Verdict(f"{words}: {'; '.join(told)}.", rows)


_ROOM = 0.05  # of accuracy, about what the paper's gains take up


def leaves_room(grid: Heads, measured: Measurements) -> Verdict:
    """Whether raw pixels leave enough to learn that heads can differ by the paper's gains."""
    rows = [row["nearest"] for row in measured if row["head"] == PIXELS]
    mean = fmean(rows)
    word = "leaves" if mean < 1 - _ROOM else "leaves no"
    return Verdict(
        f"Found here: raw pixels have {100 * mean:.1f} % ({100 * min(rows):.1f} to "
        f"{100 * max(rows):.1f}) in 1-NN, which {word} room of {100 * _ROOM:g} points to decide in."
    )


def best_and_worst(grid: Heads, measured: Measurements) -> Verdict:
    """Where each head does best and worst, and by how much the transformer head is ahead."""
    cells = chosen(measured)
    told = []
    for head in grid.heads:
        mean = {at: fmean(row["nearest"] for row in cells[head, at]) for at in grid.values}
        best, worst = max(mean, key=mean.__getitem__), min(mean, key=mean.__getitem__)
        told.append(
            f"{_NAMES[head]} best at {best:g} ({100 * mean[best]:.1f} %), worst at {worst:g} "
            f"({100 * mean[worst]:.1f} %)"
        )
    ahead = (f"{at:g}: {_gap(gains(cells, 'nearest', at))}" for at in grid.values)
    return Verdict(
        f"Found here in 1-NN: {', '.join(told)}; transformer minus MLP by {_AXES[grid.varied]}: "
        f"{', '.join(ahead)}."
    )


def _bars(grid: Heads, measured: Measurements, title: str) -> Any:
    probes = [
        {"model": _NAMES[head], "test": row["probe"]}
        for (head, _), cell in chosen(measured).items()
        for row in cell
    ]
    return plot.score_bars(probes, metric="accuracy of the linear probe", title=title)


def _curves(grid: Heads, measured: Measurements, title: str) -> Any:
    points = [
        {"series": _NAMES[head], "at": at, "value": row[key], "panel": name}
        for key, name in _MEASURES.items()
        for (head, at), cell in chosen(measured).items()
        for row in cell
    ]
    return value_curves(
        points, xlabel=_AXES[grid.varied], ylabel="test accuracy (%)", scale=100, title=title
    )


def _on_images(grid: Heads, dataset: str, root: Path | None) -> Heads:
    return replace(grid, recipe=recipes.recipe_for(dataset, None), root=root)


def _on_graph(grid: Heads, dataset: str, root: Path | None) -> Heads:
    """On a large graph with one step size."""
    lrs = grid.lrs[:1] if dataset.lower() == recipes.LARGE else grid.lrs
    return replace(_on_images(grid, dataset, root), lrs=lrs)


def _quick(epochs: int) -> Callable[[Heads], Heads]:
    recipe = {"epochs": epochs, "depth": 2}
    return small(recipe=recipe, seeds=1, lrs=slice(1), values=slice(-3, None))


def _claimed(text: str) -> Claim:
    """What the paper finds, before what is found here."""
    return lambda grid, measured: Verdict(f"The paper finds {text}.")


def _over(figure: str, summary: str, varied: str, values: tuple[float, ...], text: str) -> Figure:
    """The transformer and the MLP head over one number of the recipe."""
    grid = Heads(varied=varied, values=values, heads=(TRANSFORMER, MLP), lrs=(0.1,))
    return Figure(
        figure, f"transformer and MLP head over the {summary}", grid, scores, _show,
        (_claimed(text), best_and_worst), _curves, _quick(3), _ON_IMAGES, _on_images,
    )  # fmt: skip


_ON_IMAGES = DataSets(IMAGES[0], IMAGES, images=True)
# Batches are of sizes that suit the data sets, for as many epochs each. The paper's are tables 3
# and 4.
FIGURES = (
    Figure(
        "deep-fusion-heads", "features learned with transformer, MLP, linear and no head",
        Heads(), scores, _show,
        (
            _claimed(
                "the transformer head 2.4 to 3.6 points ahead of the MLP's in the probe and 2.3 to "
                "3.2 points in 1-NN"
            ),
            ahead_of_others,
        ),
        _bars, _quick(3), _ON_IMAGES, _on_images,
    ),
    Figure(
        "deep-fusion-pixels", "how well raw pixels and a backbone as drawn do in the same measures",
        Heads(heads=(UNTRAINED, PIXELS), lrs=(0.1,)), scores, _show, (leaves_room,), _bars,
        _quick(3), _ON_IMAGES, _on_images,
    ),
    Figure(
        "deep-fusion-cifar", "transformer and MLP head behind a ResNet-20, 10 passes over CIFAR-10",
        Heads(
            recipes.ContrastiveRecipe("cifar10-jpeg", encoder="resnet20", epochs=10), lrs=(0.1,),
            heads=(TRANSFORMER, MLP, UNTRAINED, PIXELS),
        ),
        scores, _show, (ahead_of_others,), _bars,
        small(recipe={"epochs": 1, "limit": 2}, seeds=1, lrs=slice(1), values=slice(-3, None)),
        DataSets(IMAGES[-1], IMAGES[-2:], images=True),
        lambda grid, name, root: replace(
            grid, recipe=replace(grid.recipe, dataset=name.lower()), root=root
        ),
    ),
    _over(
        "deep-fusion-temperature", "temperature of the loss", "temperature",
        (1.0, 0.8, 0.5, 0.2, 0.1, 0.05, 0.02),
        "0.2 best for both heads, and the transformer's collapsed at 0.02",
    ),
    _over(
        "deep-fusion-batch", "batch size", "batch_size", (64, 128, 256, 512),
        "1024 best of 512 to 4096 for both heads, the transformer ahead at each, at 4096 by 0.1 "
        "points",
    ),
    Figure(
        "deep-fusion-graphs", "the same heads on nodes of a graph, beside DGI",
        Heads(recipes.GRAPH, heads=(*recipes.GRAPH_HEADS, UNTRAINED), lrs=(1e-3, 3e-3)), scores,
        _show, (ahead_of_others,), _bars, _quick(10), DataSets(_GRAPHS[0], _GRAPHS), _on_graph,
    ),
)  # fmt: skip
