"""What distance-z neighbours are worth, beside the weight the network learns: figure 3.8."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from graphtheory.bench.spaces import make_trial
from graphtheory.bench.trial import Trial, load, run_trial
from graphtheory.bench.tuned import tuned_trial
from graphtheory.data.catalogue import key
from graphtheory.data.graphs import Data
from graphtheory.papers.study import Row, Step, Study


@dataclass(frozen=True)
class DistanceStudy(Study):
    """Figure 3.8 of Li (2024): accuracy of models that see distance z alone, beside b_z.

    A distance-z model is one attention layer without a term of the node's own, whose T^n is 20
    nodes drawn at distance exactly z, in training and in prediction. Its query still comes from the
    node's own features, which alone may decide where to look; the control freezes W_Q at zero, so
    that nothing of the node itself reaches its output. Features are scaled where the search chose
    that for the graph transformer. A node without neighbours at distance z gets the bias of the
    output layer, which is one class for all of them.

    b is learned by the same layer on 20 nodes drawn from the whole graph, afresh in every step.

    Attributes:
        dataset: Name of a graph.
        root: Folder with the raw files.
        distances: The z of the models.
        seeds: Splits.
        samples: Nodes drawn for each node (thesis: 20).
        num_buckets: Z (thesis: 20).
        epochs: Upper bound for each model.
        patience: Epochs without a better validation score.
    """

    dataset: str = "Cora"
    root: Path | None = None
    distances: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    seeds: int = 3
    samples: int = 20
    num_buckets: int = 20
    epochs: int = 150
    patience: int = 40

    def _trial(self, neighbors: str, frozen: bool = False) -> Trial:
        return make_trial(
            "gt", row_scale=tuned_trial(self.dataset, "gt")[0].row_scale, layers=1, hidden=64,
            heads=1, dropout=0.5, root_weight=False, project=True, lr=0.01, weight_decay=5e-4,
            bias_lr=0.05, num_buckets=self.num_buckets, neighbors=neighbors, frozen_query=frozen,
        )  # fmt: skip

    def steps(self) -> list[Step]:
        """Rows: kind (model, control, b, majority), z, seed, value."""
        return [
            self._step(kind, z, seed)
            for seed in range(self.seeds)
            for z, kind in [(-1, "b"), *product(self.distances, ("model", "control"))]
        ]

    def _step(self, kind: str, z: int, seed: int) -> Step:
        neighbors = f"{'all' if kind == 'b' else f'={z}'}:{self.samples}"
        trial = self._trial(neighbors, frozen=kind == "control")
        settings = {
            "dataset": key(self.dataset), "kind": kind, "z": z, "seed": seed,
            "epochs": self.epochs, "patience": self.patience, "trial": trial.as_dict(),
        }  # fmt: skip
        return Step(f"{kind} {neighbors}", settings, lambda: self._rows(kind, z, seed, trial))

    def _rows(self, kind: str, z: int, seed: int, trial: Trial) -> list[Row]:
        data = _loaded(self.dataset, self.root, seed, trial.row_scale)
        outcome = run_trial(trial, data, seed=seed, epochs=self.epochs, patience=self.patience)
        if kind != "b":
            return [{"kind": kind, "z": z, "seed": seed, "value": outcome.fit.test}]
        common = torch.bincount(data.y[data.train_mask]).argmax()
        share = float((data.y[data.test_mask] == common).float().mean())
        table = outcome.model.bucket_bias_table()[0, :, 0].tolist()  # type: ignore[operator]
        values = [("majority", -1, share), *(("b", z, b) for z, b in enumerate(table))]
        return [{"kind": k, "z": z, "seed": seed, "value": v} for k, z, v in values]


@lru_cache(maxsize=1)
def _loaded(dataset: str, root: Path | None, seed: int, row_scale: bool) -> Data:
    return load(dataset, root, None, seed, row_scale=row_scale)


def curve(rows: list[dict[str, Any]], kind: str) -> dict[int, list[float]]:
    """Values over z of one kind."""
    out: dict[int, list[float]] = {}
    for row in rows:
        if row["kind"] == kind:
            out.setdefault(row["z"], []).append(row["value"])
    return out


def verdict(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Claims of figure 3.8: b_z and the accuracy at z share their trend and their peak.

    Returns:
        For model and control: Spearman's correlation of mean accuracy with mean b over z, both
        peaks, the accuracy at every z, and the share of the largest training class.
    """
    from scipy.stats import spearmanr

    b = {z: mean(v) for z, v in curve(rows, "b").items()}
    out: dict[str, Any] = {"majority": mean(curve(rows, "majority")[-1])}
    for kind in ("model", "control"):
        accuracy = {z: mean(v) for z, v in curve(rows, kind).items()}
        zs = sorted(accuracy)
        flat = len({round(accuracy[z], 4) for z in zs}) == 1
        rho = (
            float("nan")
            if flat
            else float(spearmanr([accuracy[z] for z in zs], [b[z] for z in zs])[0])
        )
        out[kind] = {
            "spearman": rho,
            "peak": max(zs, key=lambda z: accuracy[z]),
            "accuracy": {z: accuracy[z] for z in zs},
        }
    zs = sorted(out["model"]["accuracy"])
    out["b"] = {z: b[z] for z in zs}
    out["b_peak"] = max(zs, key=lambda z: b[z])
    return out
