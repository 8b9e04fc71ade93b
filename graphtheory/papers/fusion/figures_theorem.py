"""Theorems 1 and 2 of Deep Fusion, on the data that they are about."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

import torch
from torch.nn.functional import normalize

from graphtheory.lab.bench.rows import Row, Table
from graphtheory.papers.figure import Figure, Verdict, small
from graphtheory.papers.fusion.subspaces import (
    Subspaces,
    cluster_integrity,
    fusion_weights,
    growth_bound,
    noise_bounds,
    sharpness,
)
from graphtheory.papers.grid import Grid, Measured, axis
from graphtheory.papers.pictures import log_axis, value_curves
from graphtheory.papers.pivot import Measurements, Shown, groups, where
from graphtheory.patterns.draw import generator_of

_SHAPE = ("dim", "clusters", "rank", "per_cluster")
_ZERO = 1e-9


@dataclass(frozen=True)
class Theorems(Grid):
    """Attention with W* on clusters in subspaces, without noise and with."""

    models: tuple[Subspaces, ...] = axis("model")  # the subspaces
    seeds: int = 20
    first: int = 0
    layers: int = 3  # blocks whose sharpness is measured, where there is noise


def subspaces(
    shapes: Sequence[tuple[int, int, int, int]], noises: Sequence[float]
) -> tuple[Subspaces, ...]:
    """Each shape (m, K, r, nu) with a half-space and without; then with each noise above 0."""
    exact = [Subspaces(*shape, half) for shape in shapes for half in (True, False)]
    return *exact, *(Subspaces(*shape, noise=noise) for shape in shapes for noise in noises)


def draws(grid: Theorems, model: Subspaces) -> list[Measured]:
    """What is measured on each draw, of kind "noisy" (theorem 2) where there is noise."""
    kind, found = ("noisy", _noisy) if model.noise else ("exact", _exact)
    return [
        asdict(model) | {"kind": kind, "seed": seed} | found(grid, model, seed)
        for seed in range(grid.first, grid.first + grid.seeds)
    ]


def _exact(grid: Theorems, model: Subspaces, seed: int) -> dict[str, Any]:
    """What theorem 1 says of A = (X W*)(X W*)^T, and what is found, entry by entry."""
    generator = generator_of(seed, model.dim, model.clusters)
    sample = model.sample(generator)
    x, y = sample.x, sample.y
    try:
        weights, rho = fusion_weights(x, y)
        one_side = True
    except ValueError:
        one_side = False  # take the greedy search on |x^T u|, which the paper's definition gives
        greedy = cluster_integrity(x, y, generator, own=True)
        weights, rho = greedy.directions.t()[:, y], greedy.rho
    paper = cluster_integrity(x, y, generator)
    projected = x @ weights
    attention = projected @ projected.t()
    same = y[:, None] == y
    bound = model.per_cluster * rho[y] ** 2
    ratio = (torch.where(same, attention, torch.inf).min(1).values / bound).min()
    return {
        "one_side": one_side, "between": float(attention[~same].abs().max()),
        "least": float(attention[same].min()), "ratio": float(ratio), "rho": float(rho.min()),
        "paper_rho": float(paper.rho.min()),
    }  # fmt: skip


def _noisy(grid: Theorems, model: Subspaces, seed: int) -> dict[str, Any]:
    """Sharpness block by block, with the W* of the clean samples, as in the proof of theorem 2."""
    sample = model.sample(generator_of(seed, model.dim, model.clusters))
    try:
        found = fusion_weights(sample.clean, sample.y)
    except ValueError:
        return {"sharpness": [], "rho": 0.0, "separable": False, "bound": None}
    x, sharp = sample.x, []
    for _ in range(grid.layers):
        projected = x @ found.weights
        attention = (projected @ projected.t()).exp()  # without row sums and residual
        sharp.append(sharpness(attention, sample.y))
        x = normalize(attention @ x, dim=1)
    rho = float(found.rho.min())
    delta, kept, separable = noise_bounds(model.noise, min(rho, 1.0))
    bound = growth_bound(len(x), delta, kept)._asdict() if separable else None
    return {"sharpness": sharp, "rho": rho, "separable": separable, "bound": bound}


def _holds(row: Measured) -> bool:
    return row["ratio"] >= 1 - 1e-6 and row["between"] < _ZERO


def _show(grid: Theorems, measured: Measurements) -> Shown:
    lines, rows = [], []
    exact, noisy = (where(measured, kind=kind) for kind in ("exact", "noisy"))
    for (*shape, half), mine in groups(exact, *_SHAPE, "half_space").items():
        lines.append([
            str(tuple(shape)), "yes" if half else "no", f"{max(r['between'] for r in mine):.1g}",
            f"{min(r['least'] for r in mine):+.3g}", f"{min(r['ratio'] for r in mine):+.3g}",
            f"{median(r['rho'] for r in mine):.3f}", f"{median(r['paper_rho'] for r in mine):.3f}",
            f"{100 * fmean(r['one_side'] for r in mine):.0f}",
            f"{100 * fmean(map(_holds, mine)):.0f}",
        ])  # fmt: skip
        about = dict(zip(_SHAPE, shape, strict=True)) | {"half_space": half}
        rows += [
            Row.of(f"theorem-1 {name}", [r[key] for r in mine], "1", **about)
            for key, name in (("ratio", "least entry within / (nu rho'^2)"),
                              ("between", "largest entry between"))
        ]  # fmt: skip
    for (*shape, noise), mine in groups(noisy, *_SHAPE, "noise").items():
        about = dict(zip(_SHAPE, shape, strict=True)) | {"noise": noise}
        for name, values in (
            ("growth of sharpness, block 1 to 2",
             [r["sharpness"][1] / r["sharpness"][0] for r in mine if len(r["sharpness"]) > 1]),
            ("bound of the growth", [r["bound"]["factor"] for r in mine if r["bound"]]),
        ):  # fmt: skip
            if values:
                rows.append(Row.of(f"theorem-2 {name}", values, "1", **about))
    table = Table(
        "without noise",
        ["(m, K, r, nu)", "half-space", "between, largest", "within, least",
         "within / (nu rho'^2)", "rho'", "rho", "one side %", "holds %"],
        lines, words=2,
        note="rho' is of the directions that theorem 1 needs, orthogonal to all other clusters; "
        "rho is the paper's, found by its greedy search with the sign corrected. Medians. One "
        "side: each cluster has a direction with all its samples on one side, as drawing them in a "
        "half-space ensures.",
    )  # fmt: skip
    return Shown(table, rows, own_names=True)


def theorem_1(grid: Theorems, measured: Measurements) -> Verdict:
    """Attention is block-diagonal, with large entries within the blocks."""
    exact = where(measured, kind="exact")

    def held(one_side: bool) -> str:
        mine = [row for row in exact if row["one_side"] == one_side]
        return f"{sum(map(_holds, mine))} of {len(mine)} draws"

    return Verdict(
        f"Theorem 1 holds in {held(True)} where all samples of a cluster lie on one side of a "
        f"direction orthogonal to the other clusters, which the paper does not ask for, and in "
        f"{held(False)} where they do not; entries within a cluster then go down to "
        f"{min(row['least'] for row in exact):.2f}."
    )


def theorem_2(grid: Theorems, measured: Measurements) -> Verdict:
    """Sharpness grows from block to block, at least by a factor."""
    noisy = where(measured, kind="noisy")
    bounds = [row["bound"] for row in noisy if row["bound"]]
    grown = [r["sharpness"][1] > r["sharpness"][0] for r in noisy if len(r["sharpness"]) > 1]
    told = (
        f"its factor is above 1 in {sum(b['factor'] > 1 for b in bounds)} of {len(bounds)} "
        f"separable draws (largest {max(b['factor'] for b in bounds):.1g}) and squares a negative "
        f"number in {sum(b['squares_negative'] for b in bounds)}"
        if bounds
        else "no draw is separable"
    )
    return Verdict(
        f"Theorem 2: {told}. With the W* of theorem 1 in every block sharpness itself grows from "
        f"block 1 to 2 in {sum(grown)} of {len(grown)} noisy draws."
    )


def _picture(grid: Theorems, measured: Measurements, title: str) -> Any:
    return value_curves(
        [
            {"series": f"block {block}", "at": row["noise"], "value": value,
             "panel": str(tuple(row[key] for key in _SHAPE))}
            for row in where(measured, kind="noisy")
            for block, value in enumerate(row["sharpness"], 1)
        ],
        xlabel="noise epsilon", ylabel="sharpness", axis=log_axis, marks=(1.0,),
        title="Sharpness of attention with W*, block by block, for (m, K, r, nu)",
    )  # fmt: skip


_SHAPES = ((4, 2, 1, 2), (16, 3, 2, 8), (20, 4, 3, 8), (64, 10, 4, 16))  # first the paper's example
_NOISES = (1e-4, 1e-3, 1e-2, 0.05, 0.1, 0.2)
FIGURES = (
    Figure(
        "theorem-1", "block-diagonal attention on clusters in subspaces, with noise and without",
        Theorems(subspaces(_SHAPES, _NOISES)), draws, _show, (theorem_1, theorem_2), _picture,
        small(models=subspaces(_SHAPES[:3], _NOISES[::2]), seeds=2),
    ),
)  # fmt: skip
