"""Draws margins.png: the winning margin by distance, where two hops decide the label.

python docs/pictures/margins.py
"""

from __future__ import annotations

import sys
from pathlib import Path

from graphtheory.lab.bench.diagnose import Diagnosis
from graphtheory.lab.plot.style import GRAY, look, panels, styled


@styled
def main(path: Path) -> None:
    margin = {
        row.parameters["distance"]: row.value
        for row in Diagnosis("core-distance", max_distance=4).run()
        if row.name == "margin"
        if (row.parameters["region"], row.parameters["moment"]) == ("ring", "covariance")
    }
    figure, (axes,) = panels(1, width=5.0, height=2.6)
    figure.set_facecolor("white")
    axes.plot(*zip(*sorted(margin.items()), strict=True), **look(0))
    axes.axhline(0, color=GRAY, linewidth=0.8)
    axes.set(xlabel="distance (hops)", ylabel="winning margin (nodes)", xticks=[1, 2, 3, 4])
    axes.grid(axis="y")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("margins.png"))
