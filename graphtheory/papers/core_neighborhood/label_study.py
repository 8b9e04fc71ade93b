"""Accuracy over the number of labels, with and without distance encoding: figure 3.9."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Generator, Tensor

from graphtheory.bench.trial import load, run_trial
from graphtheory.bench.tuned import tuned_trial
from graphtheory.data.catalogue import key
from graphtheory.papers.study import Row, Step, Study

MODELS = ("gt", "gt-plain", "gcn")


def fewer_labels(y: Tensor, train: Tensor, share: float, seed: int) -> Tensor:
    """A training mask with `share` of every class's training nodes, at least one of each.

    Args:
        y: Labels [N].
        train: Bool [N].
        share: In (0, 1].
        seed: Of the draw; smaller shares are subsets of larger ones.
    """
    kept = torch.zeros_like(train)
    generator = Generator().manual_seed(seed)
    for label in torch.unique(y[train]):
        nodes = (train & (y == label)).nonzero().flatten()
        order = nodes[torch.randperm(len(nodes), generator=generator)]
        kept[order[: max(1, round(share * len(order)))]] = True
    return kept


@dataclass(frozen=True)
class LabelStudy(Study):
    """Figure 3.9 of Li (2024): graph transformer with encoding, without, and GCN on fewer labels.

    The transformer without encoding has the configuration of the one with it, b left out; every
    option is the tuned one of the full split.

    Attributes:
        dataset: Name of a graph.
        root: Folder with the raw files.
        shares: Shares of the split's training labels.
        seeds: Splits.
        epochs: Upper bound; None is the data set's own.
    """

    dataset: str = "Cora"
    root: Path | None = None
    shares: tuple[float, ...] = (0.05, 0.15, 0.4, 1.0)
    seeds: int = 3
    epochs: int | None = None

    def steps(self) -> list[Step]:
        """Rows: model, labels, share, seed, value."""
        return [
            self._step(model, share, seed)
            for seed in range(self.seeds)
            for share in self.shares
            for model in MODELS
        ]

    def _step(self, model: str, share: float, seed: int) -> Step:
        trial, epochs, patience = tuned_trial(self.dataset, "gt" if model == "gt-plain" else model)
        trial, epochs = replace(trial, model=model), self.epochs or epochs
        settings = {
            "dataset": key(self.dataset), "share": share, "seed": seed,
            "epochs": epochs, "patience": patience, "trial": trial.as_dict(),
        }  # fmt: skip

        def rows() -> list[Row]:
            data = load(self.dataset, self.root, None, seed, **trial.inputs)
            data.train_mask = fewer_labels(data.y, data.train_mask, share, seed)
            fit = run_trial(trial, data, seed=seed, epochs=epochs, patience=patience).fit
            labels = int(data.train_mask.sum())
            return [
                {"model": model, "labels": labels, "share": share, "seed": seed, "value": fit.test}
            ]

        return Step(f"{model} {share:g}", settings, rows)


def verdict(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each number of labels: mean of each model, and gt minus the others, paired, with s.e."""
    out = []
    for share in sorted({r["share"] for r in rows}):
        of = {
            m: {r["seed"]: r["value"] for r in rows if (r["model"], r["share"]) == (m, share)}
            for m in MODELS
        }
        line: dict[str, Any] = {
            "share": share,
            "labels": mean(r["labels"] for r in rows if r["share"] == share),
        }
        for model in MODELS:
            line[model] = mean(of[model].values())
            gaps = torch.tensor([of["gt"][s] - of[model][s] for s in of["gt"]])
            line[f"gt - {model}"] = float(gaps.mean())
            line[f"s.e. {model}"] = float(gaps.std() / len(gaps) ** 0.5) if len(gaps) > 1 else 0.0
        out.append(line)
    return out
