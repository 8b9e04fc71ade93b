"""Deep Fusion: which head gives the best features, and what attention in it finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
from scipy.stats import t as student

from graphtheory.bench.contrastive import (
    GRAPH,
    GRAPH_HEADS,
    IMAGE_HEADS,
    LARGE,
    MLP,
    TRANSFORMER,
    UNTRAINED,
    ContrastiveRecipe,
    Prepared,
    prepare,
)
from graphtheory.nn import TransformerHead
from graphtheory.papers.fusion.sharpness import class_mass, sharpness, sharpness_of_means
from graphtheory.papers.study import Row, Step, Study
from graphtheory.train import SimCLR, fit

_SETTLING = 40  # batches after which a running mean is that of the data
SHOWN = 8  # test samples of a class in the picture of the maps


@dataclass(frozen=True)
class HeadStudy(Study):
    """Heads under one recipe, each with the step size that does best on validation.

    Attributes:
        recipe: All else.
        heads: Some of the heads that the recipe knows, or `UNTRAINED`.
        lrs: Step sizes; the mean validation score over the seeds decides, for each head and
            setting.
        seeds: Splits, parameters and draws.
        axis: Attribute of the recipe that varies, "" for none.
        values: What it takes.
    """

    recipe: ContrastiveRecipe = field(default_factory=ContrastiveRecipe)
    heads: tuple[str, ...] = (*IMAGE_HEADS, UNTRAINED)
    lrs: tuple[float, ...] = (0.03, 0.1, 0.3)
    seeds: int = 3
    axis: str = ""
    values: tuple[Any, ...] = (None,)

    def steps(self) -> list[Step]:
        """Rows: head, at (the value of the axis), lr, seed, val, probe, nearest, loss, seconds."""
        return [
            self._step(head, at, lr, seed)
            for at in self.values
            for head in self.heads
            for lr in (self.lrs[:1] if head == UNTRAINED else self.lrs)
            for seed in range(self.seeds)
        ]

    def _step(self, head: str, at: Any, lr: float, seed: int) -> Step:
        changes = {self.axis: at} if self.axis else {}
        recipe = replace(self.recipe, head=head, lr=lr, **changes)
        settings = asdict(recipe) | {"seed": seed, "root": None}

        def rows() -> list[Row]:
            run = prepare(recipe, seed)
            last = _untrained(run) if head == UNTRAINED else _trained(run, recipe, seed)
            about = {"head": head, "at": at, "lr": lr, "seed": seed}
            return [about | last | run.score()._asdict()]

        told = f", {self.axis} {at}" if self.axis else ""
        return Step(f"{head}{told}, step {lr:g}, seed {seed}", settings, rows)


def _trained(run: Prepared, recipe: ContrastiveRecipe, seed: int) -> dict[str, float]:
    found = fit(run.task, run.data, epochs=recipe.epochs, seed=seed, progress=False)
    return {"loss": found.history[-1]["train_loss"], "seconds": found.seconds_per_epoch}


def _untrained(run: Prepared) -> dict[str, float]:
    if any(isinstance(m, torch.nn.BatchNorm2d) for m in run.task.modules()):
        _settle(run)
    return {"loss": 0.0, "seconds": 0.0}


def chosen(rows: list[Row]) -> list[Row]:
    """The rows of the step size with the best mean validation score, for each head and setting."""
    kept: list[Row] = []
    for head, at in dict.fromkeys((r["head"], r["at"]) for r in rows):
        mine = [r for r in rows if (r["head"], r["at"]) == (head, at)]
        val: dict[float, list[float]] = {}
        for r in mine:
            val.setdefault(r["lr"], []).append(r["val"])
        best = max(val, key=lambda lr: fmean(val[lr]))
        kept += [r for r in mine if r["lr"] == best]
    return kept


def gain(rows: list[Row], measure: str, at: Any = None, over: str = MLP) -> tuple[float, float]:
    """By how much the transformer head is ahead, paired by seed: mean, and half a 95 % interval.

    The half is nan of one seed.
    """
    by = {
        head: {r["seed"]: r[measure] for r in rows if (r["head"], r["at"]) == (head, at)}
        for head in (TRANSFORMER, over)
    }
    return interval([by[TRANSFORMER][seed] - by[over][seed] for seed in by[over]])


def interval(values: list[float]) -> tuple[float, float]:
    """Mean, and half of Student's 95 % interval; nan of one value."""
    if len(values) < 2:
        return fmean(values), float("nan")
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return fmean(values), float(student.ppf(0.975, len(values) - 1)) * error


def temperatures(recipe: ContrastiveRecipe) -> HeadStudy:
    """Table 4 of the paper."""
    values = (1.0, 0.8, 0.5, 0.2, 0.1, 0.05, 0.02)
    return HeadStudy(recipe, (TRANSFORMER, MLP), (0.1,), 3, "temperature", values)


def batches(recipe: ContrastiveRecipe) -> HeadStudy:
    """Table 3 of the paper, with batches that suit the data set, for as many epochs each."""
    values = (64, 128, 256, 512)
    return HeadStudy(recipe, (TRANSFORMER, MLP), (0.1,), 3, "batch_size", values)


def on_graph(recipe: ContrastiveRecipe = GRAPH) -> HeadStudy:
    """The same heads on nodes, beside deep graph infomax; on a large graph with one step size."""
    lrs = (1e-3,) if recipe.dataset.lower() == LARGE else (1e-3, 3e-3)
    return HeadStudy(recipe, (*GRAPH_HEADS, UNTRAINED), lrs, 3)


@dataclass(frozen=True)
class AttentionStudy(Study):
    """What the layers of a transformer head attend to, before and after it was learned.

    The head looks at one view of each test image, not augmented, in one clique: no image has
    another view of itself to attend to.

    Attributes:
        recipe: A transformer head; the paper's has 10 layers of 4 heads for MNIST.
        seeds: Splits, parameters and draws.
        samples: Test images, the first ones.
    """

    recipe: ContrastiveRecipe = field(default_factory=lambda: ContrastiveRecipe(depth=10, heads=4))
    seeds: int = 3
    samples: int = 360

    def steps(self) -> list[Step]:
        """Rows of measures: kind, seed, layer, mass, uniform, sharpness, means.

        The kind is "learned" or "drawn", before learning. Rows of maps: kind "map", layer, labels
        and weights of head 1 among `SHOWN` images a class, of seed 0 learned.
        """
        return [self._step(seed) for seed in range(self.seeds)]

    def _step(self, seed: int) -> Step:
        settings = asdict(self.recipe) | {"seed": seed, "root": None, "samples": self.samples}

        def rows() -> list[Row]:
            drawn = prepare(self.recipe, seed)
            _settle(drawn)
            before = self._rows(drawn, seed, "drawn")
            run = prepare(self.recipe, seed)
            fit(run.task, run.data, epochs=self.recipe.epochs, seed=seed, progress=False)
            after = self._rows(run, seed, "learned")
            return [*before, *after, *(self._maps(run) if seed == 0 else [])]

        return Step(f"attention, seed {seed}", settings, rows)

    @torch.no_grad()
    def _attention(self, run: Prepared, few: torch.Tensor | None) -> tuple[list[Any], torch.Tensor]:
        assert isinstance(run.task, SimCLR)
        head = run.task.head
        assert isinstance(head, TransformerHead)
        features, y = run.embed()
        order = torch.arange(min(self.samples, len(y))) if few is None else few
        training = head.training
        maps = head.eval().with_attention(features[order])[1]
        head.train(training)
        return maps, y[order]

    def _rows(self, run: Prepared, seed: int, kind: str) -> list[Row]:
        maps, y = self._attention(run, None)
        return [
            {"kind": kind, "seed": seed, "layer": layer, **class_mass(a, y)._asdict(),
             "sharpness": fmean(sharpness(head, y) for head in a),
             "means": fmean(sharpness_of_means(head, y) for head in a)}
            for layer, a in enumerate(maps, 1)
        ]  # fmt: skip

    def _maps(self, run: Prepared) -> list[Row]:
        y = run.embed()[1]
        few = torch.cat([(y == c).nonzero().flatten()[:SHOWN] for c in y.unique()])
        maps, labels = self._attention(run, few)
        shown = sorted({round(1 + i * (len(maps) - 1) / 4) for i in range(5)})
        return [
            {"kind": "map", "layer": layer, "labels": labels.tolist(),
             "weights": [[round(float(w), 6) for w in row] for row in maps[layer - 1][0]]}
            for layer in shown
        ]  # fmt: skip


@torch.no_grad()
def _settle(run: Prepared) -> None:
    """Give batch norm the statistics of the data, with all parameters as drawn."""
    assert isinstance(run.task, SimCLR)
    with torch.random.fork_rng(devices=[]):
        run.task.train()
        for number in range(-(-_SETTLING // run.data.count)):
            for batch in run.data.batches(number):
                run.task.features(batch)


def slopes(rows: list[Row], kind: str, measure: str) -> list[float]:
    """Of each seed, by how much a measure grows from layer to layer, by least squares."""
    out = []
    for seed in dict.fromkeys(r["seed"] for r in rows if r["kind"] == kind):
        mine = [r for r in rows if r["kind"] == kind and r["seed"] == seed]
        layers = [r["layer"] for r in mine]
        values = [r[measure] for r in mine]
        out.append(float(np.polyfit(layers, values, 1)[0]) if len(layers) > 1 else 0.0)
    return out
