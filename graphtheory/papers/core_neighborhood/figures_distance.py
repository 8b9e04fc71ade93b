"""Figure 3.8: what neighbors at distance z are worth, beside the weight the network learns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from graphtheory.lab import plot
from graphtheory.lab.bench.node_config import NodeRunConfig, load, train_nodes, tuned_config
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.bench.table import Table
from graphtheory.lab.datasets.graphs import Data
from graphtheory.papers.figure import DataSets, Figure, Measurements, Shown, Verdict, groups, small
from graphtheory.papers.grid import Grid, Measured, Progress, axis, unrecorded

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
    data = _loaded(grid.dataset, grid.root, seed, trial.row_scale)
    outcome = train_nodes(trial, data, seed=seed, epochs=grid.epochs, patience=grid.patience)
    if network.kind != BIAS:
        found = [(network.kind, network.z, outcome.fit.test)]
    else:
        common = torch.bincount(data.y[data.train_mask]).argmax()
        share = float((data.y[data.test_mask] == common).float().mean())
        table = outcome.model.bucket_bias_table()[-1].mean(-1).tolist()
        found = [(MAJORITY, -1, share), *((BIAS, z, b) for z, b in enumerate(table))]
    return [{"kind": kind, "z": z, "seed": seed, "value": value} for kind, z, value in found]


@lru_cache(maxsize=1)
def _loaded(dataset: str, root: Path | None, seed: int, row_scale: bool) -> Data:
    return load(dataset, root, None, seed, row_scale=row_scale)


def distance_rows(
    dataset: str,
    root: Path | None,
    farthest: int,
    *,
    epochs: int | None = None,
    progress: Progress = lambda *_: None,
    kept: Path | None = None,
) -> list[Measured]:
    """What figure 3.8 measures on one split of a graph: kind, z, seed, value."""
    grid = replace(
        on_dataset(Distances(), dataset, root), networks=up_to(farthest), seeds=1,
        epochs=epochs or Distances.epochs,
    )  # fmt: skip
    return grid.measure(values, progress, kept=kept)


def curve(measured: Measurements, kind: str) -> dict[int, list[float]]:
    """The values of one kind at each distance z."""
    mine = groups((one for one in measured if one["kind"] == kind), "z")
    return {z: [one["value"] for one in of] for (z,), of in mine.items()}


def summary(measured: Measurements) -> dict[str, Any]:
    """Whether b_z and the accuracy at z share their trend and their peak.

    Returns:
        For model and control: Spearman's correlation of mean accuracy with mean b over z, both
        peaks, the accuracy at every z, and the share of the largest training class.
    """
    from scipy.stats import spearmanr

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


def _show(grid: Distances, measured: Measurements) -> Shown:
    found = summary(measured)
    rows = [
        Row.of(name, of, "1", dataset=grid.dataset, z=z)
        for kind, name in _NAMES.items()
        for z, of in curve(measured, kind).items()
    ]
    lines = [
        [str(z), *(_percent(found[kind]["accuracy"][z]) for kind in (MODEL, CONTROL)), f"{b:.3f}"]
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
        f"The commonest training class alone gives {_percent(found[MAJORITY])} %."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _picture(grid: Distances, measured: Measurements, title: str) -> Any:
    from graphtheory.lab.report.benchmark import figure_3_8  # which imports every kind of benchmark

    return plot.learned_bias(*figure_3_8(measured), title=title)


FIGURES = (
    Figure(
        "fig-3-8", "accuracy of models that see distance z alone, beside the learned bias b_z",
        Distances(), values, _show, (shared_trend,), _picture,
        small(seeds=1, epochs=40, patience=15), DataSets("Cora"), on_dataset,
    ),
)  # fmt: skip
