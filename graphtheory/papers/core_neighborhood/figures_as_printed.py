"""Figures 3.8 and 3.9 in the setting that the text prints: four layers, 20 nodes of the graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from scipy.stats import spearmanr

from graphtheory.lab import plot
from graphtheory.lab.bench.node_config import NodeRunConfig, load
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.bench.table import Table, percent_mean
from graphtheory.papers.core_neighborhood.figures_distance import (
    BIAS,
    CONTROL,
    MODEL,
    Distances,
    Network,
    curve,
    summary,
    values,
)
from graphtheory.papers.core_neighborhood.figures_labels import (
    MODELS,
    Labels,
    Recipe,
    at_least_as_large,
    best_with_encoding,
    draw_labels,
    fewer_labels,
    parameters,
    quick_labels,
    show_labels,
)
from graphtheory.papers.figure import (
    DataSets,
    Figure,
    Measurements,
    Shown,
    Verdict,
    small,
    verdict_of,
)
from graphtheory.papers.grid import Measured, axis
from graphtheory.papers.stats import SURE

_EPOCHS, _PATIENCE = 150, 40


def printed(model: str, **options: Any) -> NodeRunConfig:
    """Four blocks of four heads and a feed-forward part, or a GCN of four layers.

    The text says no more than that, Z = 20 and 20 nodes of the whole graph. Width and optimizer
    are chosen here, the same for every model and graph.
    """
    shared = {"layers": 4, "hidden": 64, "dropout": 0.5, "lr": 0.003, "weight_decay": 5e-4,
              "row_scale": False}  # fmt: skip
    own = (
        {"activation": "relu"}
        if model == "gcn"
        else {"heads": 4, "residual": True, "ffn": True, "root_weight": False, "num_buckets": 20,
              "neighbors": "all:20", "bias_lr": 0.05}
    )  # fmt: skip
    return NodeRunConfig.of(model, **(shared | own | options))


@dataclass(frozen=True)
class PrintedDistances(Distances):
    """The same with the printed networks.

    Their blocks are residual, so each has the node's own features whatever it attends to: the
    control attends to the node itself alone. Four layers at distance z reach up to 4 z hops.
    """

    networks: tuple[Network, ...] = axis(
        "network", (Network(BIAS), Network(CONTROL, 0), *(Network(MODEL, z) for z in range(1, 7)))
    )

    def trial(self, network: Network) -> NodeRunConfig:
        """The options of a network."""
        return printed("gt", neighbors=self.seen_by(network), num_buckets=self.num_buckets)


def _show_distances(grid: PrintedDistances, measured: Measurements) -> Shown:
    (alone,) = curve(measured, CONTROL).values()
    rows = [Row.of("test accuracy, the node alone", alone, "1", dataset=grid.dataset)]
    rows += [
        Row.of(name, of, "1", dataset=grid.dataset, z=z)
        for kind, name in ((MODEL, "test accuracy"), (BIAS, "learned b, mean of the heads"))
        for z, of in curve(measured, kind).items()
    ]
    b = summary(measured)[BIAS]
    lines = [[str(z), percent_mean(of), f"{b[z]:.3f}"] for z, of in curve(measured, MODEL).items()]
    heads = ["z (hops)", "distance-z model %", "learned b_z"]
    note = f"The node alone: {percent_mean(alone)} %."
    return Shown(Table("accuracy beside the learned bias", heads, lines, words=0, note=note), rows)


def same_trend_and_peak(grid: PrintedDistances, measured: Measurements) -> Verdict:
    """Whether accuracy rises with b_z over z, and whether both peak at the same z.

    The trend is that of the means over the seeds; the P-value, one-sided, takes distances for
    independent.
    """
    found, accuracy = summary(measured), curve(measured, MODEL)
    shares = {z: 100 * fmean(of) for z, of in accuracy.items()}
    b = [found[BIAS][z] for z in shares]
    rho, p = spearmanr(list(shares.values()), b, alternative="greater")
    alone = 100 * fmean(curve(measured, CONTROL)[0])
    peaks = found[MODEL]["peak"], found["b_peak"]
    return Verdict(
        f"Spearman's correlation of accuracy and b_z over z is {rho:.2f} (p = {p:.2g}), claimed to "
        f"have the same trend: {verdict_of(bool(p < 1 - SURE), grid.seeds)}; accuracy peaks "
        f"at z = {peaks[0]}, b_z at z = {peaks[1]}, claimed at the same: "
        f"{verdict_of(peaks[0] == peaks[1], grid.seeds)}. Accuracy is {min(shares.values()):.1f} "
        f"to {max(shares.values()):.1f} %, that of the node alone {alone:.1f} %."
    )


def _draw_distances(grid: PrintedDistances, measured: Measurements, title: str) -> Any:
    hops = sorted(curve(measured, MODEL))
    bias = [
        {"layer": 4, "head": "mean", "distance": one["z"], "bias": one["value"]}
        for one in measured
        if one["kind"] == BIAS and one["z"] <= max(hops)
    ]
    accuracy = [
        {"distance": z, "test": one["value"], "series": series}
        for kind, series in ((MODEL, "20 nodes at distance z"), (CONTROL, "the node alone"))
        for one in measured
        if one["kind"] == kind
        for z in (hops if kind == CONTROL else [one["z"]])
    ]
    return plot.learned_bias(bias, accuracy, title=title)


_quick_distances = small(seeds=1, networks=slice(4), epochs=10, patience=10)


def printed_scores(grid: Labels, seed: int, share: float, recipe: Recipe) -> list[Measured]:
    """The test score of one model; the GCN is a little larger than the transformer."""
    data = load(grid.dataset, grid.root, None, seed, **recipe.trial.inputs)
    if recipe.name == "gcn":
        wide = at_least_as_large(recipe.trial, printed("gt"), data)
        recipe = replace(recipe, trial=wide)
    data.train_mask = fewer_labels(data.y, data.train_mask, share, seed)
    about = {"model": recipe.name, "labels": int(data.train_mask.sum()), "share": share}
    value = recipe.test(recipe.name, data, seed)
    size = parameters(recipe.trial, data)
    return [about | {"seed": seed, "value": value, "parameters": size}]


def sizes(grid: Labels, measured: Measurements) -> Verdict:
    """The parameters of the models, of which the GCN may have at most 10 % more."""
    size = {one["model"]: one["parameters"] for one in measured}
    told = ", ".join(f"{model} {size[model]:,}" for model in MODELS)
    more = 100 * (size["gcn"] / size["gt"] - 1)
    rows = [Row.of("parameters", of, "1", model=model) for model, of in size.items()]
    return Verdict(f"Parameters: {told}; the GCN has {more:.1f} % more than gt.", rows)


FIGURES = (
    Figure(
        "fig-3-8-printed", "the same with the printed network: 4 layers of 4 heads",
        PrintedDistances(patience=_PATIENCE, epochs=_EPOCHS), values, _show_distances,
        (same_trend_and_peak,), _draw_distances, _quick_distances, DataSets("Cora"),
    ),
    Figure(
        "fig-3-9-printed", "the same with the printed networks, on 20 nodes of the whole graph",
        Labels(
            recipes=tuple(Recipe(m, printed(m), _EPOCHS, _PATIENCE) for m in MODELS),
        ),
        printed_scores, show_labels, (best_with_encoding, sizes), draw_labels, quick_labels,
        DataSets("Cora"),
    ),
)  # fmt: skip
