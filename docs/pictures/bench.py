"""Draws bench.png: test accuracy of models where the nodes two hops away decide the label.

python docs/pictures/bench.py
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from graphtheory.lab.plot.style import COLORS, panels, styled

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
MODELS = {
    "mlp": "MLP", "sage": "GraphSAGE", "gat-res": "GAT, residual", "gcn-res": "GCN, residual",
    "gt-plain": "graph transformer", "gt": "graph transformer, a bias per distance",
}  # fmt: skip


@styled
def main(
    path: Path, rows: str = "bench-core-distance", models: dict[str, str] = MODELS, seeds: int = 5
) -> None:
    with (RESULTS / f"{rows}.csv").open(newline="", encoding="utf-8") as lines:
        scores = [row for row in csv.DictReader(lines) if row["name"] == "test accuracy"]
    found = {row["parameters"].rpartition("model=")[2].partition(";")[0]: row for row in scores}
    figure, (axes,) = panels(1, width=7.0, height=2.6)
    figure.set_facecolor("white")
    for place, model in enumerate(models):
        mean, std = (100 * float(found[model][column]) for column in ("value", "std"))
        color = COLORS[0] if model == "gt" else COLORS[1]
        axes.barh(place, mean, xerr=std, height=0.62, color=color, alpha=0.8, capsize=3)
        axes.annotate(
            f"{mean:.1f}", (mean + std, place), (5, 0), textcoords="offset points", va="center"
        )
    axes.set_yticks(range(len(models)), list(models.values()))
    score = f"test accuracy (%), mean and standard deviation of {seeds} seeds"
    axes.set(xlabel=score, xlim=(0, 105))
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("bench.png"))
