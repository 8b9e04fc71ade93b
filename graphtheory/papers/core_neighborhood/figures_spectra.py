"""Figures B.1 to B.4: how many directions hold the features of a class."""

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from graphtheory.lab.bench.diagnose import MOMENTS
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.bench.table import Table
from graphtheory.lab.datasets.graphs import load_known
from graphtheory.papers.figure import DataSets, Figure, Verdict
from graphtheory.papers.grid import Grid, Measured, unrecorded
from graphtheory.papers.pictures import log_axis, picture_of, value_curves
from graphtheory.papers.pivot import Measurements, Shown, groups

DIRECTIONS = 3  # eigenvectors that tables B.1 to B.4 take
HELD = 0.5  # share that these hold of a class that "a few eigenvectors" represent
MOST = 0.9  # of the second moment
_NOTHING = 1e-12  # of the largest eigenvalue: rounding
PLACES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700)
"""Which eigenvalues are kept, the largest at 1, as far as a class has enough."""


@dataclass(frozen=True)
class Spectra(Grid):
    """Second moments of the features of each class; one cell."""

    # second-moment matrices, with the mean of the class and without
    moments: tuple[str, ...] = MOMENTS
    dataset: str = "Cora"  # name of a graph
    root: Path | None = unrecorded(None)  # folder with the raw files


def eigenvalues(x: np.ndarray, *, centered: bool) -> np.ndarray:
    """Those of the second moment of the rows x [n, d], the largest first: min(n, d) of them.

    Centered they are those of the covariance matrix, the mean over the n rows.
    """
    rows = x - x.mean(0) if centered else x
    return np.linalg.svd(rows, compute_uv=False) ** 2 / len(x)


def spectra(grid: Spectra) -> list[Measured]:
    """Of each class and moment the first eigenvalues, what three hold, and how many hold 90 %."""
    data = load_known(grid.dataset, grid.root)
    x, y = data.x.double().numpy(), data.y.numpy()
    out = []
    for moment in grid.moments:
        for c in np.unique(y[y >= 0]):
            own = x[y == c]
            found = eigenvalues(own, centered=moment == "covariance")
            held = found.cumsum() / found.sum()
            above = int((found > _NOTHING * found[0]).sum())
            out.append({
                "moment": moment, "class": int(c) + 1, "nodes": len(own),
                "held": float(held[DIRECTIONS - 1]), "needed": int((held < MOST).sum()) + 1,
                "above": above,
                "eigenvalues": [[p, float(found[p - 1])] for p in PLACES if p <= above],
            })  # fmt: skip
    return out


def _show(grid: Spectra, measured: Measurements) -> Shown:
    lines, rows = [], []
    for one in measured:
        about = {"dataset": grid.dataset, "moment": one["moment"], "class": one["class"]}
        lines.append([
            one["moment"], str(one["class"]), str(one["nodes"]), f"{100 * one['held']:.1f}",
            str(one["needed"]), str(one["above"]),
        ])  # fmt: skip
        rows += [
            Row.of("nodes with features", one["nodes"], "nodes", **about),
            Row.of(f"share of the {DIRECTIONS} largest eigenvalues", one["held"], "1", **about),
            Row.of("eigenvalues that hold 90 %", one["needed"], "1", **about),
            Row.of("eigenvalues above 0", one["above"], "1", **about),
        ]
        rows += [
            Row.of("eigenvalue", value, "1", **about, place=place)
            for place, value in one["eigenvalues"]
        ]
    heads = ["moment", "class", "nodes", f"{DIRECTIONS} largest hold %", "90 % takes", "above 0"]
    title = "eigenvalues of the features of a class"
    return Shown(Table(title, heads, lines, words=2), rows)


def few_directions(grid: Spectra, measured: Measurements) -> Verdict:
    """Whether three eigenvectors hold at least half of the second moment in every class."""
    told = []
    for (moment,), mine in groups(measured, "moment").items():
        held, needed = [one["held"] for one in mine], [one["needed"] for one in mine]
        word = "holds" if min(held) >= HELD else "not found"
        told.append(
            f"{moment}: the {DIRECTIONS} largest eigenvalues hold {100 * min(held):.0f} to "
            f"{100 * max(held):.0f} % (mean {100 * fmean(held):.0f}), 90 % takes {min(needed)} to "
            f"{max(needed)}; claimed that a few eigenvectors represent a class, read as at least "
            f"{100 * HELD:.0f} % by {DIRECTIONS} in each: {word}."
        )
    nodes = sum(one["nodes"] for one in groups(measured, "moment")[measured[0]["moment"],])
    return Verdict(f"{' '.join(told)} Of {nodes:,} nodes with features.")


_picture = picture_of(
    value_curves,
    lambda measured: [
        one | {"at": place, "value": value}
        for one in measured
        for place, value in one["eigenvalues"]
    ],
    xlabel="place, the largest first", ylabel="eigenvalue", panel="{moment}",
    series="class {class}", axis=log_axis,
)  # fmt: skip
FIGURES = tuple(
    Figure(
        figure, "eigenvalues of the features of each class", Spectra(), spectra, _show,
        (few_directions,), _picture, data=DataSets(dataset, (dataset,), read=load_known),
    )
    for figure, dataset in (
        ("fig-b-1", "Cora"), ("fig-b-2", "PubMed"), ("fig-b-3", "Actor"),
        ("fig-b-4", "PascalVOC-SP-1G"),
    )
)  # fmt: skip
