"""Deep Fusion: what the layers of a transformer head attend to, before and after learning."""

from dataclasses import dataclass, replace
from functools import partial
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure as Canvas
from torch import Tensor

from graphtheory.lab.bench.rows import Row, Table, mean_spread
from graphtheory.lab.plot.style import GRAY, Rows, collected, figure_title, order, styled
from graphtheory.lab.train import fit
from graphtheory.papers.figure import DataSets, Figure, Verdict, small
from graphtheory.papers.fusion.contrastive import SimCLR
from graphtheory.papers.fusion.figures import IMAGES, settle
from graphtheory.papers.fusion.recipe import ContrastiveRecipe, Prepared, prepare, recipe_for
from graphtheory.papers.fusion.subspaces import class_mass, sharpness, sharpness_of_means
from graphtheory.papers.grid import Grid, Measured, axis, unrecorded
from graphtheory.papers.pictures import lines
from graphtheory.papers.pivot import Measurements, Shown, groups, where
from graphtheory.papers.stats import student_interval
from graphtheory.vision.nn import TransformerHead

_SPAN = 30.0  # largest over smallest weight that the colors tell apart


@styled
def attention_by_depth(
    maps: Rows, rows: Rows, measures: dict[str, str], *, title: str = ""
) -> Canvas:
    """Attention of some layers, samples ordered by class, over measures of every layer.

    A color says how many times uniform attention a weight is, on a logarithmic scale. Below, a line
    is the median over the runs, its band q20 to q80. Maps hold layer (from 1), labels (sorted, one
    per sample) and weights (rows of attention); rows, one per run and layer, series, layer and the
    `measures`, whose values are the names of their axes.

    Source: Li and Pimentel-Alarcon (2024), table 1.
    """
    shown, table = collected(maps, "maps", "weights"), collected(rows, "rows", "layer")
    figure = Canvas(figsize=(8.4, 5.0), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 1.25))
    above, below = parts
    panels = above.subplots(1, len(shown), squeeze=False)[0]
    for axes, found in zip(panels, shown, strict=True):
        image = _map(axes, np.asarray(found["weights"]), found["labels"])
        axes.set_title(f"layer {found['layer']}")
    bar = above.colorbar(image, ax=list(panels), shrink=0.85, ticks=[0.2, 0.5, 1, 2, 5])
    bar.ax.set_yticklabels(["0.2", "0.5", "1", "2", "5"])
    bar.ax.minorticks_off()
    bar.set_label("times uniform")
    lower = below.subplots(1, len(measures), squeeze=False)[0]
    for axes, (key, name) in zip(lower, measures.items(), strict=True):
        lines(axes, table, "layer", key)
        if key == "mass":
            axes.axhline(
                table[0]["uniform"], color=GRAY, linewidth=1, linestyle=":", label="uniform"
            )
        axes.set_xticks(sorted(order(table, "layer")))
        axes.set(xlabel="layer", ylabel=name, ylim=(0, 1.12 * axes.dataLim.ymax))
        axes.grid(axis="y")
    handles, labels = lower[0].get_legend_handles_labels()
    below.legend(handles, labels, loc="outside lower center", ncols=4)
    figure_title(figure, title)
    return figure


def _map(axes: Any, weights: Any, labels: list[int]) -> Any:
    spread = _SPAN**0.5
    times = np.clip(weights * len(labels), 1 / spread, spread)
    image = axes.imshow(
        times, cmap="cividis", norm=LogNorm(1 / spread, spread), interpolation="nearest"
    )
    for place in np.flatnonzero(np.diff(labels)) + 0.5:
        axes.axhline(place, color="white", linewidth=0.3)
        axes.axvline(place, color="white", linewidth=0.3)
    axes.set_xticks([])
    axes.set_yticks([])
    return image


SHOWN = 8  # test samples of each class in the picture of the attention maps
_MEASURES = {
    "mass": "attention on the own class", "means": "mean within / mean between",
    "sharpness": "sharpness",
}  # fmt: skip
_KINDS = {"learned": "after learning", "drawn": "before learning"}
# Of 0.01, 0.03, 0.1 for 10 layers the step size of the least loss on a seed that no figure has.
_RECIPE = ContrastiveRecipe(depth=10, heads=4, epochs=160, lr=0.03)


@dataclass(frozen=True)
class Depths(Grid):
    """The head attends to one view of each test image, not augmented, in one clique.

    No image has another view of itself to attend to.
    """

    # A transformer head; the paper's has 10 layers of 4 heads for MNIST
    recipe: ContrastiveRecipe = _RECIPE
    seeds: int = axis("seed", 3)
    samples: int = 360  # test images, the first ones
    root: Path | None = unrecorded(None)

    @property
    def dataset(self) -> str:
        """The data set that the recipe names."""
        return self.recipe.dataset


def attention(grid: Depths, seed: int) -> list[Measured]:
    """Measures of each layer before learning, of kind "drawn", and after it, "learned".

    Of seed 0 also maps, of kind "map": layer, labels and weights of head 1 after learning, among
    `SHOWN` images of each class.
    """
    recipe = replace(grid.recipe, root=grid.root)
    drawn = prepare(recipe, seed)
    settle(drawn, seed)
    before = _measures(grid, drawn, seed, "drawn")
    run = prepare(recipe, seed)
    fit(run.task, run.data, epochs=recipe.epochs, seed=seed, progress=False)
    after = _measures(grid, run, seed, "learned")
    return [*before, *after, *(_maps(run) if seed == 0 else [])]


@torch.no_grad()
def _attention(run: Prepared, order: Tensor) -> tuple[list[Tensor], Tensor]:
    """Attention weights of each layer among some test samples, and their classes."""
    assert isinstance(run.task, SimCLR)
    head = run.task.head
    assert isinstance(head, TransformerHead)
    features, y = run.embed()
    training = head.training
    maps = head.eval().with_attention(features[order])[1]
    head.train(training)
    return maps, y[order]


def _measures(grid: Depths, run: Prepared, seed: int, kind: str) -> list[Measured]:
    maps, y = _attention(run, torch.arange(min(grid.samples, len(run.embed()[1]))))
    return [
        {"kind": kind, "seed": seed, "layer": layer, **class_mass(a, y)._asdict(),
         "sharpness": fmean(sharpness(head, y) for head in a),
         "means": fmean(sharpness_of_means(head, y) for head in a)}
        for layer, a in enumerate(maps, 1)
    ]  # fmt: skip


def _maps(run: Prepared) -> list[Measured]:
    y = run.embed()[1]
    few = torch.cat([(y == c).nonzero().flatten()[:SHOWN] for c in y.unique()])
    maps, labels = _attention(run, few)
    shown = sorted({round(1 + i * (len(maps) - 1) / 4) for i in range(5)})
    return [
        {"kind": "map", "layer": layer, "labels": labels.tolist(),
         "weights": [[round(float(w), 6) for w in row] for row in maps[layer - 1][0]]}
        for layer in shown
    ]  # fmt: skip


def _measured(measured: Measurements) -> list[Measured]:
    return [row for row in measured if row["kind"] != "map"]


def _show(grid: Depths, measured: Measurements) -> Shown:
    by = groups(_measured(measured), "kind", "layer")
    layers = list(dict.fromkeys(layer for _, layer in by))
    values = {
        (key, kind, layer): [row[key] for row in by[kind, layer]]
        for key in _MEASURES for kind in _KINDS for layer in layers
    }  # fmt: skip
    rows = [
        Row.of(_MEASURES[key], of, "1", dataset=grid.dataset, head=kind, layer=layer)
        for (key, kind, layer), of in values.items()
    ]
    lines = [
        [str(layer), *(mean_spread(values[key, "learned", layer], ".3g") for key in _MEASURES),
         *(f"{fmean(values[key, 'drawn', layer]):.3g}" for key in _MEASURES)]
        for layer in layers
    ]  # fmt: skip
    uniform = by["drawn", layers[0]][0]["uniform"]
    heads = ["layer", *_MEASURES.values(), *(f"{name}, before" for name in _MEASURES.values())]
    note = (
        f"Uniform attention has {uniform:.3f} on the own class; heads averaged; test images seen "
        "once each, without augmentation."
    )
    return Shown(Table("attention by layer", heads, lines, words=0, note=note), rows)


def slopes(measured: Measurements, kind: str, measure: str) -> list[float]:
    """For each seed, by how much a measure grows from layer to layer, by least squares."""
    out = []
    for mine in groups(where(measured, kind=kind), "seed").values():
        layers, values = [row["layer"] for row in mine], [row[measure] for row in mine]
        out.append(float(np.polyfit(layers, values, 1)[0]) if len(layers) > 1 else 0.0)
    return out


def grows_with_depth(grid: Depths, measured: Measurements) -> Verdict:
    """Attention on the own class grows from layer to layer."""
    rows, told = _measured(measured), []
    for kind, name in (("learned", "after learning"), ("drawn", "before")):
        mean, half = student_interval(slopes(rows, kind, "mass"))
        spread = "one seed" if isnan(half) else f"± {half:.4f}"
        told.append(f"{name} {mean:+.4f} per layer ({spread})")
    mean, half = student_interval(slopes(rows, "learned", "mass"))
    grows = "one seed decides nothing" if isnan(half) else (
        "found" if mean > half else "not found: it falls" if -mean > half else "not decided"
    )  # fmt: skip
    learned = groups(where(rows, kind="learned"), "layer")
    mass = {layer: fmean(row["mass"] for row in own) for (layer,), own in learned.items()}
    first, *_, last = mass
    sharp = max(row["sharpness"] for row in rows)
    return Verdict(
        f"Claimed is that attention finds the classes better layer by layer. Mass on the own "
        f"class by depth, least squares with 95 % interval: {', '.join(told)}; growth with depth: "
        f"{grows}. From {mass[first]:.3f} in layer {first} to {mass[last]:.3f} in layer {last}, "
        f"most in layer {max(mass, key=mass.__getitem__)}; uniform {rows[0]['uniform']:.3f}. "
        "Sharpness in the paper's sense, which one pair of each kind decides, is at most "
        f"{sharp:.2g}: {'' if sharp > 1 else 'never '}above 1."
    )


def _picture(grid: Depths, measured: Measurements, title: str) -> Any:
    return attention_by_depth(
        where(measured, kind="map"),
        [row | {"series": _KINDS[row["kind"]]} for row in _measured(measured)],
        {key: _MEASURES[key] for key in ("mass", "means")},
        title=f"{title}: head 1, images ordered by class",
    )


def _on_images(epochs: int, grid: Depths, dataset: str, root: Path | None) -> Depths:
    """The deeper head on a data set, trained for `epochs` where it is another one."""
    deep = grid.recipe
    if dataset.lower() != deep.dataset:
        limit = recipe_for(dataset, None).limit
        deep = replace(deep, dataset=dataset.lower(), epochs=epochs, limit=limit)
    return replace(grid, recipe=deep, root=root)


def _figure(name: str, summary: str, recipe: ContrastiveRecipe, epochs: int) -> Figure:
    return Figure(
        name, summary, Depths(recipe), attention, _show, (grows_with_depth,), _picture,
        small(recipe={"epochs": 3}, seeds=1),
        DataSets(IMAGES[0], IMAGES, images=True), partial(_on_images, epochs),
    )  # fmt: skip


_LONG = replace(_RECIPE, batch_size=64, epochs=500)  # of 20 batches each on every data set
FIGURES = (
    _figure(
        "deep-fusion-attention",
        "what the layers of a transformer head attend to, ordered by class", _RECIPE, 20,
    ),
    _figure(
        "deep-fusion-attention-long", "the same after 10,000 updates in batches of 64",
        _LONG, _LONG.epochs,
    ),
    _figure(
        "deep-fusion-attention-post-norm", "the same with norms behind the sums of each block",
        replace(_LONG, norm_first=False), _LONG.epochs,
    ),
)  # fmt: skip
