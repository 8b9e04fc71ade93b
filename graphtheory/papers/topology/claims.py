"""What became of the claims of figures 5.1 to 5.4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf
from statistics import mean

from graphtheory.papers.stats import SURE, Correlation, means, trend
from graphtheory.papers.study import Row
from graphtheory.papers.topology.study import GROUPS, Pair


@dataclass(frozen=True)
class Best:
    """Where a mean over seeds is lowest.

    Attributes:
        at: There; None where all diverged.
        seeds: In how many of them it is lowest there.
        of: How many there are.
        share: Of the resamples of the seeds, those in which the mean is lowest there.
    """

    at: Pair | None
    seeds: int
    of: int
    share: float

    def holds(self, claimed: Pair) -> bool:
        """Whether it is lowest where it is claimed to be, in 95 of 100 resamples."""
        return self.at == claimed and self.share >= SURE


def averages(
    rows: Sequence[Row], axis: str, measure: str = "error"
) -> dict[str, dict[float, float]]:
    """Name of a task -> labels or width -> mean over seeds."""
    return {
        name: {at: mean(of) for at, of in cells.items()}
        for name, cells in _cells(rows, axis, measure).items()
    }


def falling(rows: Sequence[Row], axis: str, measure: str = "error") -> dict[str, Correlation]:
    """Claim of figures 5.1 and 5.2: of each task, how the measure goes with labels or width."""
    return {
        name: trend(list(cells), means(cells))
        for name, cells in _cells(rows, axis, measure).items()
    }


def over_norm(rows: Sequence[Row], axis: str, measure: str = "error") -> Correlation:
    """The other one: how the measure goes with the norm of A*, at the most labels or width."""
    by = {
        mean(r["norm"] for r in rows if r["name"] == name): cells[max(cells)]
        for name, cells in _cells(rows, axis, measure).items()
    }
    return trend(sorted(by), means(by))


def _cells(rows: Sequence[Row], axis: str, measure: str) -> dict[str, dict[float, list[float]]]:
    """Name of a task -> labels or width -> the measure of each seed, seeds in order."""
    cells: dict[str, dict[float, list[float]]] = {}
    for row in sorted(rows, key=lambda r: (r[axis], r["seed"])):
        cells.setdefault(row["name"], {}).setdefault(row[axis], []).append(row[measure])
    return {name: cells[name] for name in dict.fromkeys(r["name"] for r in rows)}


def best_target(rows: Sequence[Row], measure: str = "error") -> dict[str, Best]:
    """Claim of figures 5.3 and 5.4: learner -> the p^ that it learns best of the most labels."""
    return {
        learner: _lowest([r for r in rows if r["learner"] == learner], "p_hat", measure)
        for learner in dict.fromkeys(r["learner"] for r in rows)
    }


def best_sampler(rows: Sequence[Row]) -> dict[Pair, Best]:
    """The same the other way round: p^ -> the p* that learns it best.

    Errors of one p^ are of the same targets, whose variance then decides nothing.
    """
    ours = [r for r in rows if r["sampler"] == GROUPS]
    targets = dict.fromkeys(_pair(r["p_hat"]) for r in ours)
    return {p: _lowest([r for r in ours if _pair(r["p_hat"]) == p], "p_star") for p in targets}


def _lowest(rows: Sequence[Row], key: str, measure: str = "error") -> Best:
    most = max(r["labels"] for r in rows)
    by: dict[Pair, list[float]] = {}
    for row in sorted((r for r in rows if r["labels"] == most), key=lambda r: r["seed"]):
        by.setdefault(_pair(row[key]), []).append(row[measure])
    pairs = list(by)
    whole, drawn = means(dict(enumerate(by.values())))
    first, of = int(whole.argmin()), len(by[pairs[0]])
    if isinf(whole[first]):
        return Best(None, 0, of, 0.0)
    seeds = sum(min(pairs, key=lambda p: by[p][i]) == pairs[first] for i in range(of))
    return Best(pairs[first], seeds, of, float((drawn.argmin(1) == first).mean()))


def _pair(of: Sequence[float]) -> Pair:
    return (of[0], of[1])
