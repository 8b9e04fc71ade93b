"""Runs of a benchmark in a few numbers: each model's mean, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from graphtheory.bench.node_benchmark import Run
from graphtheory.bench.rows import Row
from graphtheory.report.table import Table, counted


@dataclass(frozen=True)
class Summary:
    """A model over its seeds.

    Attributes:
        model: Name.
        seeds: How many.
        mean: Of the test scores, 0..1.
        std: Standard deviation of the test scores (n - 1); nan of one seed.
        parameters: Trainable numbers.
        seconds_per_epoch: Median.
        peak_mb: Median.
    """

    model: str
    seeds: int
    mean: float
    std: float
    parameters: int
    seconds_per_epoch: float
    peak_mb: float


@dataclass(frozen=True)
class Difference:
    """By how much the first model is ahead of another on the same seeds.

    Attributes:
        model: The other one.
        difference: Mean over the seeds that both have, 0..1.
        standard_error: Of that mean; nan of one seed.
        ahead: Seeds on which the first model is strictly better.
        seeds: Seeds that both have.
    """

    model: str
    difference: float
    standard_error: float
    ahead: int
    seeds: int


def summaries(runs: Iterable[Run]) -> list[Summary]:
    """One line a model, in the order in which they come."""
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(run.model, []).append(run)
    return [
        Summary(
            model,
            len(own),
            fmean(run.test for run in own),
            _std([run.test for run in own]),
            own[0].parameters,
            median(run.seconds_per_epoch for run in own),
            median(run.peak_mb for run in own),
        )
        for model, own in grouped.items()
    ]


def differences(runs: Iterable[Run], first: str) -> list[Difference]:
    """The model `first` against each other one, paired by seed; none where no seed is shared."""
    scores: dict[str, dict[int, float]] = {}
    for run in runs:
        scores.setdefault(run.model, {})[run.seed] = run.test
    mine = scores.pop(first, {})
    out = []
    for model, other in scores.items():
        gaps = [mine[seed] - other[seed] for seed in mine if seed in other]
        if gaps:
            error = _std(gaps) / math.sqrt(len(gaps))
            wins = sum(gap > 0 for gap in gaps)
            out.append(Difference(model, fmean(gaps), error, wins, len(gaps)))
    return out


def score_table(
    found: list[Summary], metric: str, title: str = "", *, not_tuned: Sequence[str] = ()
) -> Table:
    """`model | test mean ± std | params | s/epoch | peak MB`.

    Args:
        found: A line each.
        metric: "accuracy" or "rocauc".
        title: Above the table.
        not_tuned: Models whose options no search has chosen; the note names them.
    """
    rows = [
        (
            s.model, percent(s.mean, s.std), f"{s.parameters:,}",
            f"{s.seconds_per_epoch:.3f}", "-" if math.isnan(s.peak_mb) else f"{s.peak_mb:.0f}",
        )
        for s in found
    ]  # fmt: skip
    columns = ("model", "test mean ± std", "params", "s/epoch", "peak MB")
    seeds = " or ".join(str(n) for n in sorted({s.seeds for s in found}))
    note = (
        f"Test {metric_name(metric)} (%) at the epoch of best validation; {counted(seeds, 'seed')}."
    )
    return Table(
        title, columns, rows, note=" ".join(filter(None, [note, _untold(found, not_tuned)]))
    )


def _untold(found: list[Summary], not_tuned: Sequence[str]) -> str:
    """Which options are defaults, in words."""
    if not not_tuned:
        return ""
    alike = "one residual stack, width, dropout and step size"
    if all(s.model in not_tuned for s in found):
        return f"Options: defaults, not tuned ({alike} for all models)."
    return (
        f"Options: defaults, not tuned, for {', '.join(not_tuned)} ({alike}); tuned for the others."
    )


def difference_table(found: list[Difference], first: str, title: str = "") -> Table:
    """`first - other | mean ± standard error | seeds ahead | reading`."""
    rows = [
        (
            f"{first} - {d.model}", percent(d.difference, d.standard_error, sign="+"),
            f"{d.ahead} of {d.seeds}", reading(d),
        )
        for d in found
    ]  # fmt: skip
    columns = ("paired by seed", "points ± s.e.", "seeds ahead", "beyond 2 s.e.")
    return Table(title, columns, rows)


def reading(found: Difference) -> str:
    """Whether a difference is beyond two standard errors."""
    if math.isnan(found.standard_error):
        return "one seed"
    if abs(found.difference) <= 2 * found.standard_error:
        return "no"
    return "ahead" if found.difference > 0 else "behind"


def percent(mean: float, spread: float, sign: str = "") -> str:
    """Shares as "91.20 ± 0.51"; without the spread where that is nan."""
    shown = f"{100 * mean:{sign}.2f}"
    return shown if math.isnan(spread) else f"{shown} ± {100 * spread:.2f}"


def rows(
    runs: Iterable[Run], first: str, metric: str, not_tuned: Sequence[str] = (), **shared: object
) -> list[Row]:
    """The same numbers as rows for the CSV file; models of `not_tuned` are marked."""
    runs, out = list(runs), []
    for model in dict.fromkeys(run.model for run in runs):
        own = [run for run in runs if run.model == model]
        where = shared | {"model": model}
        if model in not_tuned:
            where["options"] = "defaults, not tuned"
        for name, unit, values in (
            (f"test {metric}", "1", [run.test for run in own]),
            (f"validation {metric}", "1", [run.val for run in own]),
            ("parameters", "1", [run.parameters for run in own]),
            ("epochs", "1", [run.epochs for run in own]),
            ("time per epoch", "s", [run.seconds_per_epoch for run in own]),
            ("peak memory", "MB", [run.peak_mb for run in own]),
        ):
            out.append(Row.of(name, values, unit, **where))
        if model != first:
            base = {run.seed: run.test for run in runs if run.model == first}
            gaps = [base[run.seed] - run.test for run in own if run.seed in base]
            if gaps:
                name = f"paired difference of test {metric}, {first} - model"
                out.append(Row.of(name, gaps, "1", **where))
    return out


def metric_name(metric: str) -> str:
    """As it is written in a sentence."""
    return {"rocauc": "ROC AUC"}.get(metric, metric)


def _std(values: list[float]) -> float:
    return stdev(values) if len(values) > 1 else math.nan
