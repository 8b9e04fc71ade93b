"""What distance-z neighbours are worth, beside the weight the network learns: figure 3.8."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from graphtheory.experiments.spaces import make_trial
from graphtheory.experiments.trial import Trial, load, run_trial

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class DistanceStudy:
    """Figure 3.8 of Li (2024): accuracy of models that see distance z alone, beside b_z.

    A distance-z model is one attention layer without a term of the node's own, whose T^n is 20
    nodes drawn at distance exactly z, in training and in prediction. Its query still comes from the
    node's own features, which alone may decide where to look; the control freezes W_Q at zero, so
    that nothing of the node itself reaches its output. A node without neighbours at distance z gets
    the bias of the output layer, which is one class for all of them.

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
            "gt", layers=1, hidden=64, heads=1, dropout=0.5, root_weight=False, project=True,
            lr=0.01, weight_decay=5e-4, bias_lr=0.05,
            num_buckets=self.num_buckets, neighbors=neighbors, frozen_query=frozen,
        )  # fmt: skip

    def run(self, progress: Progress = lambda *_: None) -> list[dict[str, Any]]:
        """Rows: kind (model, control, b, majority), z, seed, value."""
        rows: list[dict[str, Any]] = []
        total = self.seeds * (1 + 2 * len(self.distances))
        done = 0
        for seed in range(self.seeds):
            data = load(self.dataset, self.root, None, seed, degree=False)
            labels = data.y[data.test_mask]
            common = torch.bincount(data.y[data.train_mask]).argmax()
            share = float((labels == common).float().mean())
            rows.append({"kind": "majority", "z": -1, "seed": seed, "value": share})
            jobs = [("b", f"all:{self.samples}", False)]
            for z in self.distances:
                jobs += [
                    ("model", f"={z}:{self.samples}", False),
                    ("control", f"={z}:{self.samples}", True),
                ]
            for kind, neighbors, frozen in jobs:
                progress(f"{kind} {neighbors}", done, total)
                done += 1
                outcome = run_trial(
                    self._trial(neighbors, frozen), data,
                    seed=seed, epochs=self.epochs, patience=self.patience,
                )  # fmt: skip
                if kind == "b":
                    table = outcome.model.bucket_bias_table()[0, :, 0].tolist()  # type: ignore[operator]
                    rows += [
                        {"kind": "b", "z": z, "seed": seed, "value": b} for z, b in enumerate(table)
                    ]
                    continue
                z = int(neighbors[1:].partition(":")[0])
                rows.append({"kind": kind, "z": z, "seed": seed, "value": outcome.fit.test})
        return rows


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
