"""Draws speed_up.png: how many times faster than PyG an epoch of PyG's own examples is.

python docs/pictures/speed_up.py
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from graphtheory.lab.plot.style import COLORS, GRAY, panels, styled

ROWS = Path(__file__).parents[2] / "benchmarks" / "results" / "cpu-end-to-end.csv"
BEGINNING = "times faster than PyG: "


@styled
def main(path: Path) -> None:
    with ROWS.open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["name"].startswith(BEGINNING)]
    found = sorted((float(row["median"]), row["name"].removeprefix(BEGINNING)) for row in rows)
    figure, (axes,) = panels(1, width=7.0, height=4.0)
    figure.set_facecolor("white")
    for place, (times, _) in enumerate(found):
        axes.barh(place, times, height=0.62, color=COLORS[0], alpha=0.8)
        axes.annotate(
            f"{times:.1f}", (times, place), (4, 0), textcoords="offset points", va="center"
        )
    axes.axvline(1, color=GRAY, linewidth=1)
    axes.set_yticks(range(len(found)), [name for _, name in found])
    axes.set_xscale("log")
    axes.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axes.set(xlabel="times as fast as PyG, an epoch on one thread of a CPU", xlim=(0.8, 60))
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("speed_up.png"))
