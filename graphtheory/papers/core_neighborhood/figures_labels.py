"""Figure 3.9 and its companion: what distance encoding gains on real graphs."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Generator, Tensor

from graphtheory.lab.bench.node_config import NodeRunConfig, load, train_nodes, tuned_config
from graphtheory.lab.bench.rows import Row, Table, percent_mean
from graphtheory.lab.bench.task import trainable
from graphtheory.lab.datasets.catalogue import key
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.zoo import node_models as zoo
from graphtheory.papers.figure import DataSets, Figure, Verdict, changed, on_dataset, small
from graphtheory.papers.grid import Grid, Measured, axis, unrecorded
from graphtheory.papers.pictures import value_curves
from graphtheory.papers.pivot import Measurements, Shown, groups

MODELS = ("gt", "gt-plain", "gcn")
_QUICK_EPOCHS = 40
_WIDEST = 4096  # GCN that is compared with a transformer


@dataclass(frozen=True)
class Recipe:
    """A network and how long it trains."""

    name: str  # in progress and rows
    trial: NodeRunConfig  # options of the network
    epochs: int  # upper bound
    patience: int  # epochs without a better validation score

    def test(self, model: str, data: Any, seed: int) -> float | None:
        """The test score of the network, as another model of the same options."""
        return train_nodes(
            replace(self.trial, model=model), data, seed=seed, epochs=self.epochs,
            patience=self.patience,
        ).fit.test  # fmt: skip


def parameters(trial: NodeRunConfig, data: Data) -> int:
    """How many numbers of the network learn."""
    with torch.device("meta"):
        return trainable(
            zoo.build(
                trial.model, trial.network, num_features=data.x.size(1),
                num_classes=int(data.num_classes),
            )
        )  # fmt: skip


def at_least_as_large(trial: NodeRunConfig, other: NodeRunConfig, data: Data) -> NodeRunConfig:
    """The trial with the least width that gives it as many parameters as another has."""

    def of(width: int) -> NodeRunConfig:
        return replace(trial, network=replace(trial.network, hidden=width))

    least = parameters(other, data)
    widths = range(1, _WIDEST)
    return of(widths[bisect_left(widths, least, key=lambda width: parameters(of(width), data))])


def tuned(dataset: str) -> tuple[Recipe, ...]:
    """The models of figure 3.9, tuned on the full split.

    The transformer without encoding has the configuration of the one with it, b left out.
    """
    found = {model: tuned_config(dataset, model.removesuffix("-plain")) for model in MODELS}
    return tuple(
        Recipe(model, replace(trial, model=model), *limits)
        for model, (trial, *limits) in found.items()
    )


@dataclass(frozen=True)
class Labels(Grid):
    """Graph transformer with encoding, without, and GCN on fewer labels."""

    dataset: str = "Cora"  # name of a graph
    root: Path | None = unrecorded(None)  # folder with the raw files
    seeds: int = axis("seed", 3)  # splits
    # shares of the split's training labels
    shares: tuple[float, ...] = axis("share", (0.05, 0.15, 0.4, 1.0))
    recipes: tuple[Recipe, ...] = axis("recipe", ())  # what is trained


def scores(grid: Labels, seed: int, share: float, recipe: Recipe) -> list[Measured]:
    """The test score of one model."""
    data = load(grid.dataset, grid.root, None, seed, **recipe.trial.inputs)
    data.train_mask = fewer_labels(data.y, data.train_mask, share, seed)
    value = recipe.test(recipe.name, data, seed)
    about = {"model": recipe.name, "labels": int(data.train_mask.sum()), "share": share}
    return [about | {"seed": seed, "value": value}]


def fewer_labels(y: Tensor, train: Tensor, share: float, seed: int) -> Tensor:
    """A training mask with `share` of every class's training nodes, at least one of each.

    Smaller shares of the same seed are subsets of larger ones.
    """
    kept = torch.zeros_like(train)
    generator = Generator().manual_seed(seed)
    for label in torch.unique(y[train]):
        nodes = (train & (y == label)).nonzero().flatten()
        order = nodes[torch.randperm(len(nodes), generator=generator)]
        kept[order[: max(1, round(share * len(order)))]] = True
    return kept


def gain(better: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """The mean of paired differences and its standard error, 0 of one pair."""
    gaps = torch.tensor(better) - torch.tensor(other)
    error = float(gaps.std() / len(gaps) ** 0.5) if len(gaps) > 1 else 0.0
    return float(gaps.mean()), error


def _points(gained: tuple[float, float]) -> str:
    return f"{100 * gained[0]:+.1f} ({100 * gained[1]:.1f})"


def by_labels(measured: Measurements) -> dict[float, tuple[float, dict[str, list[float]]]]:
    """Share -> mean number of labels, and of each model the score of each seed."""
    out = {}
    for (share,), mine in sorted(groups(measured, "share").items()):
        by_model = groups(mine, "model").items()
        scores = {model: [one["value"] for one in of] for (model,), of in by_model}
        out[share] = fmean(one["labels"] for one in mine), scores
    return out


def show_labels(grid: Labels, measured: Measurements) -> Shown:
    """A line for each number of labels, with paired differences."""
    lines, rows = [], []
    for share, (labels, of) in by_labels(measured).items():
        gains = (_points(gain(of["gt"], of[model])) for model in MODELS[1:])
        lines.append([f"{labels:.0f}", *(percent_mean(of[model]) for model in MODELS), *gains])
        rows += [
            Row.of("test score", of[model], "1", dataset=grid.dataset, model=model, share=share)
            for model in MODELS
        ]
    heads = ["labels", *MODELS, "gt - gt-plain (s.e.)", "gt - gcn (s.e.)"]
    return Shown(Table("test score %", heads, lines, words=0), rows)


def best_with_encoding(grid: Labels, measured: Measurements) -> Verdict:
    """At how many numbers of labels the network with encoding is ahead."""
    found = [[fmean(of[model]) for model in MODELS] for _, of in by_labels(measured).values()]
    best = sum(ours > max(others) for ours, *others in found)
    return Verdict(
        f"The network with encoding alone has the best mean at {best} of {len(found)} label counts."
    )


def draw_labels(grid: Labels, measured: Measurements, title: str) -> Any:
    """Test score over the number of labels."""
    counts = {share: round(labels) for share, (labels, _) in by_labels(measured).items()}
    return value_curves(
        [one | {"labels": counts[one["share"]]} for one in measured],  # splits differ by a node
        panel="", series="{model}", at="labels", scale=100, xlabel="labeled nodes",
        ylabel="test accuracy (%)", title=title,
    )  # fmt: skip


quick_labels = small(seeds=1, recipes={"epochs": _QUICK_EPOCHS})


@dataclass(frozen=True)
class Encoding(Grid):
    """Each configuration with the encoding and without it, on the same seeds."""

    dataset: str = "Cora"  # name of a graph
    root: Path | None = unrecorded(None)  # folder with the raw files
    recipes: tuple[Recipe, ...] = axis("recipe", ())  # the configurations
    seeds: int = axis("seed", 10)  # splits


def with_and_without(grid: Encoding, recipe: Recipe, seed: int) -> list[Measured]:
    """The test scores of both."""
    data = load(grid.dataset, grid.root, None, seed, **recipe.trial.inputs)
    both = {model: recipe.test(model, data, seed) for model in MODELS[:2]}
    return [{"case": recipe.name, "seed": seed} | both]


def _gains(measured: Measurements) -> dict[str, tuple[list[float], list[float]]]:
    """Case -> scores with the encoding, and without."""
    return {
        case: ([one["gt"] for one in mine], [one["gt-plain"] for one in mine])
        for (case,), mine in groups(measured, "case").items()
    }


def _show_encoding(grid: Encoding, measured: Measurements) -> Shown:
    lines, rows = [], []
    for case, both in _gains(measured).items():
        lines.append([case, str(len(both[0])), *map(percent_mean, both), _points(gain(*both))])
        rows += [Row.of(model, of, "1", case=case) for model, of in zip(MODELS, both, strict=False)]
    heads = ["case", "seeds", "with", "without", "gain (s.e.)"]
    return Shown(Table("the same with and without the encoding, test score %", heads, lines), rows)


def clear_gains(grid: Encoding, measured: Measurements) -> Verdict:
    """Where the gain is more than two standard errors from zero."""
    gains = {case: gain(*both) for case, both in _gains(measured).items()}
    clear = [case for case, (mean, error) in gains.items() if abs(mean) > 2 * error > 0]
    return Verdict(f"More than two standard errors from zero: {', '.join(clear) or 'none'}.")


_CORA = {"layers": 2, "hidden": 64, "heads": 1, "dropout": 0.8, "lr": 0.01, "weight_decay": 1e-3,
         "root_weight": False, "bias_lr": 0.05}  # fmt: skip
_FAR = {"layers": 1, "hidden": 64, "heads": 1, "dropout": 0.5, "lr": 0.01, "weight_decay": 5e-4,
        "root_weight": False, "bias_lr": 0.05, "project": True}  # fmt: skip
_DEEP = {"layers": 6, "hidden": 64, "heads": 1, "dropout": 0.2, "lr": 0.003, "weight_decay": 0.0,
         "residual": True}  # fmt: skip

CASES: dict[str, tuple[int, tuple[Recipe, ...]]] = {
    "cora": (
        10,
        (
            Recipe("cora-1-hop", NodeRunConfig.of("gt", neighbors="1", **_CORA), 200, 60),
            Recipe("cora-2-hop", NodeRunConfig.of("gt", neighbors="2", **_CORA), 200, 60),
            Recipe(
                "cora-whole-graph", NodeRunConfig.of("gt", neighbors="all:20", **_FAR), 300, 150
            ),
        ),
    ),
    "minesweeper": (
        2, (Recipe("minesweeper-2-hop", NodeRunConfig.of("gt", neighbors="2", **_DEEP), 150, 60),)
    ),
}  # fmt: skip
"""Key of a data set -> number of splits, and what is compared on it."""


def _on_encoding(grid: Encoding, dataset: str, root: Path | None) -> Encoding:
    seeds, recipes = CASES[key(dataset)]
    return replace(grid, dataset=dataset, root=root, recipes=recipes, seeds=seeds)


FIGURES = (
    Figure(
        "fig-3-9", "accuracy over the number of labels: with encoding, without, GCN",
        Labels(), scores, show_labels, (best_with_encoding,), draw_labels, quick_labels,
        DataSets("Cora"), lambda grid, name, root: on_dataset(
            replace(grid, recipes=tuned(name)), name, root
        ),
    ),
    Figure(
        "encoding", "the same configurations with and without the encoding, paired by seed",
        Encoding(), with_and_without, _show_encoding, (clear_gains,), None,
        small(seeds=1, recipes=lambda every: changed(every[:1], {"epochs": _QUICK_EPOCHS})),
        DataSets("Cora", ("Cora", "minesweeper")), _on_encoding,
    ),
)  # fmt: skip
