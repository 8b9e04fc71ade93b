"""What the distance encoding buys: the same configuration with and without it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from graphtheory.bench.spaces import make_trial
from graphtheory.bench.trial import Trial, load, run_trial
from graphtheory.papers.study import Row, Step, Study


@dataclass(frozen=True)
class Case:
    """One comparison: a data set, options of the network, and how long to train."""

    dataset: str
    trial: Trial
    seeds: int
    epochs: int
    patience: int


_CORA = {"layers": 2, "hidden": 64, "heads": 1, "dropout": 0.8, "lr": 0.01, "weight_decay": 1e-3,
         "root_weight": False, "bias_lr": 0.05}  # fmt: skip
_FAR = {"layers": 1, "hidden": 64, "heads": 1, "dropout": 0.5, "lr": 0.01, "weight_decay": 5e-4,
        "root_weight": False, "bias_lr": 0.05, "project": True}  # fmt: skip
_DEEP = {"layers": 6, "hidden": 64, "heads": 1, "dropout": 0.2, "lr": 0.003, "weight_decay": 0.0,
         "residual": True}  # fmt: skip

CASES: dict[str, Case] = {
    "cora-1-hop": Case("Cora", make_trial("gt", neighbors="1", **_CORA), 10, 200, 60),
    "cora-2-hop": Case("Cora", make_trial("gt", neighbors="2", **_CORA), 10, 200, 60),
    "cora-whole-graph": Case("Cora", make_trial("gt", neighbors="all:20", **_FAR), 10, 300, 150),
    "minesweeper-2-hop": Case(
        "minesweeper", make_trial("gt", neighbors="2", **_DEEP), 2, 150, 60
    ),
}  # fmt: skip


@dataclass(frozen=True)
class EncodingStudy(Study):
    """Train each case with the encoding and without it, on the same seeds.

    Attributes:
        cases: Names in `CASES`.
        root: Folder with the raw files.
        seeds: Splits; None is the case's own number.
        epochs: Upper bound; None is the case's own.
    """

    cases: tuple[str, ...] = tuple(CASES)
    root: Path | None = None
    seeds: int | None = None
    epochs: int | None = None

    def steps(self) -> list[Step]:
        """Rows: case, seed, gt, gt-plain (test scores).

        Raises:
            ValueError: A case that is not known.
        """
        unknown = [c for c in self.cases if c not in CASES]
        if unknown:
            raise ValueError(f"cases: got {unknown[0]!r}, expected some of {', '.join(CASES)}")
        return [
            self._step(name, seed)
            for name in self.cases
            for seed in range(self.seeds or CASES[name].seeds)
        ]

    def _step(self, name: str, seed: int) -> Step:
        case = CASES[name]
        epochs = self.epochs or case.epochs
        settings = {
            "case": name, "dataset": case.dataset, "seed": seed,
            "epochs": epochs, "patience": case.patience, "trial": case.trial.as_dict(),
        }  # fmt: skip

        def rows() -> list[Row]:
            data = load(case.dataset, self.root, None, seed, **case.trial.inputs)
            row: Row = {"case": name, "seed": seed}
            for model in ("gt", "gt-plain"):
                row[model] = run_trial(
                    replace(case.trial, model=model), data,
                    seed=seed, epochs=epochs, patience=case.patience,
                ).fit.test  # fmt: skip
            return [row]

        return Step(name, settings, rows)


def gains(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each case: means, and the paired gain with its standard error."""
    out = []
    for case in dict.fromkeys(r["case"] for r in rows):
        gt = torch.tensor([r["gt"] for r in rows if r["case"] == case])
        plain = torch.tensor([r["gt-plain"] for r in rows if r["case"] == case])
        gap = gt - plain
        error = float(gap.std() / len(gap) ** 0.5) if len(gap) > 1 else 0.0
        out.append(
            {"case": case, "gt": float(gt.mean()), "gt-plain": float(plain.mean()),
             "gain": float(gap.mean()), "s.e.": error, "seeds": len(gap)}
        )  # fmt: skip
    return out
