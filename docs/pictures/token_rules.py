"""Draws token_rules.png: how fast DeiT-S is with each rule for its tokens.

python docs/pictures/token_rules.py
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from graphtheory.lab.plot.style import COLORS, GRAY, panels, styled

ROWS = Path(__file__).parents[2] / "benchmarks" / "results" / "cpu-vision.csv"
RULES = {
    "TopK(0.5)": "DeiT-S, TopK(0.5)",
    "Keep(0.7) in three layers": "DeiT-S, Keep(0.7) inside three blocks",
    "Merge(13) in each layer": "DeiT-S, Merge(13) inside each block",
    "Semantic(16)": "STViT-DeiT-S, 16 tokens",
}  # fmt: skip


@styled
def main(path: Path) -> None:
    with ROWS.open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if "batch=32;" in row["parameters"]]
    found = {row["name"]: float(row["median"]) for row in rows}
    figure, (axes,) = panels(1, width=7.0, height=2.9)
    figure.set_facecolor("white")
    for index, kind in enumerate(("training step", "forward")):
        for place, rule in enumerate(RULES):
            times, at = found[f"{kind}, {RULES[rule]} over DeiT-S"], place + 0.2 - 0.4 * index
            label = kind if place == 0 else None
            axes.barh(at, times, height=0.36, color=COLORS[index], alpha=0.8, label=label)
            axes.annotate(
                f"{times:.2f}", (times, at), (4, 0), textcoords="offset points", va="center"
            )
    axes.axvline(1, color=GRAY, linewidth=1)
    axes.set_yticks(range(len(RULES)), list(RULES))
    axes.set(xlabel="times as fast as DeiT-S, 32 images on a CPU", xlim=(0, 2.8))
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("token_rules.png"))
