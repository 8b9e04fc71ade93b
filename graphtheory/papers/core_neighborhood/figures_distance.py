"""Figure 3.8: what neighbors at distance z are worth, beside the learned weight; 3.9 as printed."""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from scipy.stats import spearmanr

from graphtheory.lab import plot
from graphtheory.lab.bench.node_config import NodeRunConfig, load, train_nodes, tuned_config
from graphtheory.lab.bench.rows import Row, Table, percent_mean
from graphtheory.papers.core_neighborhood import figures_labels as labels
from graphtheory.papers.core_neighborhood.figures_labels import MODELS, Labels, Recipe
from graphtheory.papers.figure import DataSets, Figure, Verdict, small, verdict_of
from graphtheory.papers.grid import Grid, Measured, Progress, axis, unrecorded
from graphtheory.papers.pivot import Measurements, Shown, groups, where
from graphtheory.papers.stats import SURE

BIAS, MODEL, CONTROL, MAJORITY = "b", "model", "control", "majority"
_NAMES = {MODEL: "test accuracy", CONTROL: "test accuracy, W_Q frozen", BIAS: "learned b"}


@dataclass(frozen=True)
class Network:
    """A network and the distances that it sees."""

    # "b" learns the bias; "model" sees distance z alone; "control" with W_Q frozen at zero
    kind: str
    z: int = -1  # hops; -1 for all distances

    @property
    def name(self) -> str:
        """The name in progress messages."""
        kind = "learned bias" if self.kind == BIAS else self.kind
        return kind if self.z < 0 else f"{kind} at distance {self.z}"


def up_to(farthest: int) -> tuple[Network, ...]:
    """The bias, then a model and its control at every distance."""
    distances = range(1, farthest + 1)
    return (Network(BIAS), *(Network(kind, z) for z in distances for kind in (MODEL, CONTROL)))


@dataclass(frozen=True)
class Distances(Grid):
    """Models that see distance z alone, beside b_z.

    A distance-z model is one attention layer without a term of the node's own, whose T^n is 20
    nodes drawn at distance exactly z, in training and in prediction. Its query still comes from the
    node's own features, which alone may decide where to look; the control freezes W_Q at zero, so
    that nothing of the node itself reaches its output. A node without neighbors at distance z gets
    the bias of the output layer, which is one class for all of them.

    b is learned by the same layer on 20 nodes drawn from the whole graph, again in every step.
    """

    dataset: str = "Cora"  # name of a graph
    root: Path | None = unrecorded(None)  # folder with the raw files
    # whether features are scaled, as the search chose for the graph transformer
    row_scale: bool = False
    seeds: int = axis("seed", 3)  # splits
    networks: tuple[Network, ...] = axis("network", up_to(6))  # what is trained on each split
    samples: int = 20  # nodes drawn for each node (thesis: 20)
    num_buckets: int = 20  # Z (thesis: 20)
    epochs: int = 150  # upper bound for each network
    patience: int = 40  # epochs without a better validation score

    def trial(self, network: Network) -> NodeRunConfig:
        """The options of a network."""
        return NodeRunConfig.of(
            "gt", row_scale=self.row_scale, layers=1, hidden=64, heads=1, dropout=0.5,
            root_weight=False, project=True, lr=0.01, weight_decay=5e-4, bias_lr=0.05,
            num_buckets=self.num_buckets, neighbors=self.seen_by(network),
            frozen_query=network.kind == CONTROL,
        )  # fmt: skip

    def seen_by(self, network: Network) -> str:
        """What its nodes attend to, as `zoo.NetworkConfig` writes it."""
        return f"{'all' if network.z < 0 else f'={network.z}'}:{self.samples}"


def on_dataset(grid: Distances, dataset: str, root: Path | None) -> Distances:
    """The grid on a graph."""
    row_scale = tuned_config(dataset, "gt")[0].row_scale
    return replace(grid, dataset=dataset, root=root, row_scale=row_scale)


def values(grid: Distances, seed: int, network: Network) -> list[Measured]:
    """The test accuracy; of "b" the bias at each distance, and the share of the largest class.

    The bias is that of the last layer, averaged over the heads.
    """
    trial = grid.trial(network)
    data = _loaded(grid.dataset, grid.root, None, seed, row_scale=trial.row_scale)
    outcome = train_nodes(trial, data, seed=seed, epochs=grid.epochs, patience=grid.patience)
    if network.kind != BIAS:
        found = [(network.kind, network.z, outcome.fit.test)]
    else:
        common = torch.bincount(data.y[data.train_mask]).argmax()
        share = float((data.y[data.test_mask] == common).float().mean())
        table = outcome.model.bucket_bias_table()[-1].mean(-1).tolist()
        found = [(MAJORITY, -1, share), *((BIAS, z, b) for z, b in enumerate(table))]
    return [{"kind": kind, "z": z, "seed": seed, "value": value} for kind, z, value in found]


_loaded = lru_cache(maxsize=1)(load)


def distance_rows(
    dataset: str, root: Path | None, farthest: int, *, epochs: int | None = None,
    progress: Progress = lambda *_: None, kept: Path | None = None,
) -> list[Measured]:  # fmt: skip
    """What figure 3.8 measures on one split of a graph: kind, z, seed, value."""
    grid = replace(
        on_dataset(Distances(), dataset, root), networks=up_to(farthest), seeds=1,
        epochs=epochs or Distances.epochs,
    )  # fmt: skip
    return grid.measure(values, progress, kept=kept)


def curve(measured: Measurements, kind: str) -> dict[int, list[float]]:
    """The values of one kind at each distance z."""
    mine = groups(where(measured, kind=kind), "z")
    return {z: [one["value"] for one in of] for (z,), of in mine.items()}


def summary(measured: Measurements) -> dict[str, Any]:
    """Whether b_z and the accuracy at z share their trend and their peak.

    Returns:
        For model and control: Spearman's correlation of mean accuracy with mean b over z, both
        peaks, the accuracy at every z, and the share of the largest training class.
    """
    b = {z: fmean(of) for z, of in curve(measured, BIAS).items()}
    out: dict[str, Any] = {MAJORITY: fmean(curve(measured, MAJORITY)[-1])}
    for kind in (MODEL, CONTROL):
        accuracy = {z: fmean(of) for z, of in sorted(curve(measured, kind).items())}
        seen = [b[z] for z in accuracy]
        flat = len({round(share, 4) for share in accuracy.values()}) == 1
        rho = float("nan") if flat else float(spearmanr(list(accuracy.values()), seen)[0])
        peak = max(accuracy, key=lambda z: accuracy[z])
        out[kind] = {"spearman": rho, "peak": peak, "accuracy": accuracy}
    out[BIAS] = {z: b[z] for z in out[MODEL]["accuracy"]}
    out["b_peak"] = max(out[BIAS], key=lambda z: b[z])
    return out


def _rows(names: dict[str, str], grid: Distances, measured: Measurements) -> list[Row]:
    return [
        Row.of(name, of, "1", dataset=grid.dataset, z=z)
        for kind, name in names.items()
        for z, of in curve(measured, kind).items()
    ]


def _show(grid: Distances, measured: Measurements) -> Shown:
    found, rows = summary(measured), _rows(_NAMES, grid, measured)
    lines = [
        [
            str(z),
            *(percent_mean([found[kind]["accuracy"][z]]) for kind in (MODEL, CONTROL)),
            f"{b:.3f}",
        ]
        for z, b in found[BIAS].items()
    ]
    heads = ["z (hops)", "distance-z model %", "W_Q frozen %", "learned b_z"]
    return Shown(Table("accuracy beside the learned bias", heads, lines, words=0), rows)


def shared_trend(grid: Distances, measured: Measurements) -> Verdict:
    """Trend and peak of the accuracy beside those of the bias."""
    found = summary(measured)
    told = "; ".join(
        f"{kind}: Spearman's correlation of accuracy and b_z over z is "
        f"{found[kind]['spearman']:.2f}, peaks at z = {found[kind]['peak']}"
        for kind in (MODEL, CONTROL)
    )
    return Verdict(
        f"{told}. b_z peaks at z = {found['b_peak']}. "
        f"The commonest training class alone gives {percent_mean([found[MAJORITY]])} %."
    )


def _picture(grid: Distances, measured: Measurements, title: str) -> Any:
    from graphtheory.lab.report.benchmark import figure_3_8  # which imports every kind of benchmark

    return plot.learned_bias(*figure_3_8(measured), title=title)


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
        return printed("gt", neighbors=self.seen_by(network), num_buckets=self.num_buckets)


def _show_distances(grid: PrintedDistances, measured: Measurements) -> Shown:
    (alone,) = curve(measured, CONTROL).values()
    names = {MODEL: "test accuracy", BIAS: "learned b, mean of the heads"}
    rows = [Row.of("test accuracy, the node alone", alone, "1", dataset=grid.dataset)]
    rows += _rows(names, grid, measured)
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
        for one in where(measured, kind=BIAS)
        if one["z"] <= max(hops)
    ]
    accuracy = [
        {"distance": z, "test": one["value"], "series": series}
        for kind, series in ((MODEL, "20 nodes at distance z"), (CONTROL, "the node alone"))
        for one in where(measured, kind=kind)
        for z in (hops if kind == CONTROL else [one["z"]])
    ]
    return plot.learned_bias(bias, accuracy, title=title)


def printed_scores(grid: Labels, seed: int, share: float, recipe: Recipe) -> list[Measured]:
    """The test score of one model; the GCN is a little larger than the transformer."""
    data = load(grid.dataset, grid.root, None, seed, **recipe.trial.inputs)
    if recipe.name == "gcn":
        wide = labels.at_least_as_large(recipe.trial, printed("gt"), data)
        recipe = replace(recipe, trial=wide)
    size = {"parameters": labels.parameters(recipe.trial, data)}
    return [row | size for row in labels.scores(grid, seed, share, recipe)]


def sizes(grid: Labels, measured: Measurements) -> Verdict:
    """The parameters of the models, of which the GCN may have at most 10 % more."""
    size = {one["model"]: one["parameters"] for one in measured}
    told = ", ".join(f"{model} {size[model]:,}" for model in MODELS)
    more = 100 * (size["gcn"] / size["gt"] - 1)
    rows = [Row.of("parameters", of, "1", model=model) for model, of in size.items()]
    return Verdict(f"Parameters: {told}; the GCN has {more:.1f} % more than gt.", rows)


FIGURES = (
    Figure(
        "fig-3-8", "accuracy of models that see distance z alone, beside the learned bias b_z",
        Distances(), values, _show, (shared_trend,), _picture,
        small(seeds=1, epochs=40, patience=15), DataSets("Cora"), on_dataset,
    ),
    Figure(
        "fig-3-8-printed", "the same with the printed network: 4 layers of 4 heads",
        PrintedDistances(), values, _show_distances, (same_trend_and_peak,), _draw_distances,
        small(seeds=1, networks=slice(4), epochs=10, patience=10), DataSets("Cora"),
    ),
    Figure(
        "fig-3-9-printed", "the same with the printed networks, on 20 nodes of the whole graph",
        Labels(
            recipes=tuple(
                Recipe(m, printed(m), Distances.epochs, Distances.patience) for m in MODELS
            )
        ),
        printed_scores, labels.show_labels, (labels.best_with_encoding, sizes),
        labels.draw_labels, labels.quick_labels, DataSets("Cora"),
    ),
)  # fmt: skip
