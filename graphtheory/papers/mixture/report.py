"""Figures 4.2 to 4.7 and C.1 as a table, a picture and a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from graphtheory import plot
from graphtheory.bench.rows import Row
from graphtheory.papers.mixture import claims
from graphtheory.papers.mixture import study as studies
from graphtheory.papers.outcome import StudyReport
from graphtheory.papers.power_law import Exponent, halves
from graphtheory.report.table import Table, counted

Rows = list[dict[str, Any]]
_NAMES = {
    "n": "examples at which half of the trials succeed", "rate": "rate v", "speed": "1 - v",
    "off": "distance to W*", "average": "risk", "minority": "risk of group 2",
    "excess": "risk above the teacher's", "excess minority": "the same of group 2",
}  # fmt: skip
_STEPS = "steps of gradient descent"
_PANELS = {
    "cross-entropy": {"average": "mixture", "minority": "group 2"},
    "above the teacher's": {"excess": "mixture", "excess minority": "group 2"},
}


def mixture(figure: str, study: studies.MixtureStudy, rows: Rows) -> StudyReport:
    """One of the figures from its study's rows."""
    if isinstance(study, studies.StartStudy):
        return starts(figure, study, rows)
    claim = claims.CLAIMS[figure]
    places = sorted({claims.shown(study, value) for value in study.values})
    lines, results, told = [], [], []
    for learner in study.learners:
        own = claims.of_learner(rows, learner.name)
        for measure in claim.measures:
            found, holds = claims.verdict(claim, study, own, measure)
            about = f"{learner.name}, {_NAMES[measure]}"
            cells = _cells(study, own, measure)
            shown = (_number(cells[v]) if v in cells else "-" for v in places)
            lines.append([about, *shown, _short(found)])
            told.append(f"{about}: {_told(claim, found)}: {'holds' if holds else 'not found'}.")
            results += _results(figure, study, own, measure, learner.name)
            results += _ends(figure, found, about)
        if isinstance(study, studies.RateStudy):
            told.append(_straight(learner.name, own))
        if not isinstance(study, studies.SampleStudy):
            share = fmean(r["ended"] for r in own)
            told.append(f"{learner.name}: {_counting(claim, study, own, share)}")
            name = f"{figure} share that ends at a minimum"
            results.append(Row.of(name, share, "1", learner=learner.name))
    heads = [f"{claim.letter} = {v:.3g}" for v in places]
    table = Table(_title(figure, study), ["measure", *heads, "found"], lines, words=1)
    return StudyReport(table, results, " ".join(told), _picture(figure, study, rows))


def _title(figure: str, study: studies.MixtureStudy) -> str:
    number = figure.removeprefix("fig-").replace("-", ".").replace("c.", "C.")
    return f"Figure {number}, {counted(study.seeds, 'trial')}"


def _cells(study: studies.MixtureStudy, rows: Rows, measure: str) -> dict[float, float]:
    """Value -> the median, or of successes the boundary."""
    if isinstance(study, studies.SampleStudy):
        grid = claims.successes(study, rows)
        return dict(zip(grid.values.tolist(), halves(grid).tolist(), strict=True))
    found = claims.cells(study, rows, measure)
    return {v: median(of) for v, of in found.items()}


def _known(values: Sequence[float]) -> list[float]:
    return [v for v in values if not math.isnan(v)]


def _counting(claim: claims.Claim, study: studies.MixtureStudy, rows: Rows, share: float) -> str:
    """Which trials a verdict is of."""
    ends = f"{100 * share:.0f} % of trials end at a minimum"
    if claim.measures == claims.RISKS:
        return f"{ends}, the risks of the others are those of the last step."
    cells = claims.cells(study, rows, claim.measures[0])
    seeds = max(map(len, cells.values()), default=0)
    places = sorted({claims.shown(study, value) for value in study.values} - set(cells))
    out = f" {claim.letter} = {', '.join(f'{v:.3g}' for v in places)} left out;" if places else ""
    return f"{ends};{out} the {seeds} of {study.seeds} seeds that do at every other value count."


def _number(value: float) -> str:
    return "none" if math.isinf(value) else "all" if value == 0 else f"{value:.4g}"


def _short(found: claims.Exponent | claims.Correlation | claims.Minimum) -> str:
    if isinstance(found, claims.Minimum):
        return f"{found.at:g} ({100 * found.inside:.0f} %)"
    return "-" if isinstance(found, Exponent) and math.isnan(found.exponent) else str(found)


def _told(claim: claims.Claim, found: claims.Exponent | claims.Correlation | claims.Minimum) -> str:
    if isinstance(found, Exponent):
        if math.isnan(found.exponent):
            return "nothing to fit inside the grid"
        fits = "" if math.isnan(found.misfit) else f", p = {found.misfit:.2g} of a power law"
        return f"~ ({claim.letter})^{found}, claimed {claim.wanted:g}{fits}"
    if math.isnan(found.rho if isinstance(found, claims.Correlation) else found.at):
        return f"fewer than {claims.FEWEST_SEEDS} seeds to compare"
    if isinstance(found, claims.Correlation):
        return f"{found.direction} with {claim.letter} ({found}), claimed {claim.wanted}"
    return f"{found}, claimed to fall and then to rise"


def _ends(figure: str, found: Any, about: str) -> list[Row]:
    """What was fitted, as rows."""
    parts = {
        Exponent: ("exponent", "low", "high"), claims.Correlation: ("rho", "low", "high"),
        claims.Minimum: ("at", "inside"),
    }[type(found)]  # fmt: skip
    values = {part: getattr(found, part) for part in parts}
    if any(math.isnan(v) for v in values.values()):
        return []
    return [Row.of(f"{figure} {part}", v, "1", measure=about) for part, v in values.items()]


def _results(
    figure: str, study: studies.MixtureStudy, rows: Rows, measure: str, learner: str
) -> list[Row]:
    letter = claims.CLAIMS[figure].letter
    if not isinstance(study, studies.SampleStudy):
        return [
            Row.of(f"{figure} {_NAMES[measure]}", of, "1", learner=learner,
                   **{letter: round(v, 6)})
            for v, of in claims.cells(study, rows, measure).items()
        ]  # fmt: skip
    out = []
    for value in study.values:
        for n in study.examples:
            cell = [r for r in rows if (r["value"], r["n"]) == (value, n)]
            about = {letter: round(claims.shown(study, value), 6), "n": n}
            share = fmean(r["spread"] <= studies.SUCCESS for r in cell)
            out.append(Row.of(f"{figure} share of successes", share, "1", **about))
            for key, name in (("spread", "V_W"), ("off", "distance to W*")):
                out.append(Row.of(f"{figure} {name}", [r[key] for r in cell], "1", **about))
    return out


def _straight(learner: str, rows: Rows) -> str:
    """Whether convergence is linear."""
    fits = _known([r["straight"] for r in rows if r["ended"]])
    if not fits:
        return f"{learner}: no curve is long enough for a line."
    return f"{learner}: log distances are straight lines with R^2 of {min(fits):.3f} and more."


def _picture(figure: str, study: studies.MixtureStudy, rows: Rows) -> Any:
    claim, title = claims.CLAIMS[figure], _title(figure, study)
    if isinstance(study, studies.SampleStudy):
        return _phase(claim, study, rows, title)
    if claim.kind == "power":
        return _laws(claim, study, rows, title)
    if isinstance(study, studies.RateStudy):
        curves = [
            {"case": r["learner"], "step": step, "gap": max(gap / r["gap"][0], 1e-12),
             "series": f"{claim.letter} = {claims.shown(study, r['value']):.3g}"}
            for learner in study.learners
            for r in claims.counted(study, claims.of_learner(rows, learner.name), "rate")
            for step, gap in zip(r["steps"], r["gap"], strict=True)
        ]  # fmt: skip
        if not curves:
            return None
        return plot.step_curves(
            curves, value="gap", ylabel="distance to the end", xlabel=_STEPS, title=title, log=True
        )
    lines = [
        {"series": name, "at": f"{v:.3g}", "panel": panel, "error": error}
        for panel, keys in _PANELS.items()
        for key, name in keys.items()
        for v, of in claims.cells(study, rows, key).items()
        for error in of
    ]
    if not lines:
        return None
    return plot.error_curves(lines, xlabel=claim.letter, title=title, from_zero=False)


def _phase(claim: claims.Claim, study: studies.SampleStudy, rows: Rows, title: str) -> Any:
    cells, laws = [], {}
    for learner in study.learners:
        own = claims.of_learner(rows, learner.name)
        grid = claims.successes(study, own)
        half = halves(grid)
        cells += [
            {"case": learner.name, "value": v, "labels": n, "half": half[i],
             "share": grid.counts[i, j] / grid.trials}
            for i, v in enumerate(grid.values.tolist())
            for j, n in enumerate(grid.labels.tolist())
        ]  # fmt: skip
        found = claims.verdict(claim, study, own, "n")[0]
        if isinstance(found, Exponent) and not math.isnan(found.exponent):
            laws[learner.name] = _law(found, claim)
    return plot.phase_diagram(cells, laws, xlabel=claim.letter, ylabel="examples", title=title)


def _laws(claim: claims.Claim, study: studies.MixtureStudy, rows: Rows, title: str) -> Any:
    (measure,), points, laws = claim.measures, [], {}
    for learner in study.learners:
        own = claims.of_learner(rows, learner.name)
        found = claims.verdict(claim, study, own, measure)[0]
        if isinstance(found, Exponent) and not math.isnan(found.exponent):
            laws[learner.name] = _law(found, claim)
        points += [
            {"case": learner.name, "value": v, "number": number}
            for v, of in claims.cells(study, own, measure).items()
            for number in of
        ]
    if not points:
        return None
    return plot.power_laws(points, laws, xlabel=claim.letter, ylabel=_NAMES[measure], title=title)


def _law(found: Exponent, claim: claims.Claim) -> dict[str, float]:
    assert isinstance(claim.wanted, float)
    return {"factor": found.factor, "exponent": found.exponent, "claimed": claim.wanted}


def starts(figure: str, study: studies.StartStudy, rows: Rows) -> StudyReport:
    """Figure C.1: relative errors of each start, before and after descent."""
    lines, results, curves, told = [], [], [], []
    for value in study.values:
        at = f"|Sigma| = {value:g}"
        for start in dict.fromkeys(r["start"] for r in rows):
            own = [r for r in rows if (r["value"], r["start"]) == (value, start)]
            parts = {
                "relative error of the start": [r["error"][0] for r in own],
                "relative error at the end": [r["error"][-1] for r in own],
                "relative distance from the minimum": [r["gap"][-1] for r in own if r["ended"]],
                "rate v": _known([r["rate"] for r in own if r["ended"]]),
            }
            shown = [f"{median(of):.4f}" if of else "-" for of in parts.values()]
            lines.append([at, start, *shown])
            for name, of in parts.items():
                if of:
                    results.append(Row.of(f"{figure} {name}", of, "1", start=start, sigma=value))
            curves += [
                {"case": at, "series": start, "step": step, "error": error}
                for r in own
                for step, error in zip(r["steps"], r["error"], strict=True)
            ]
        told.append(f"{at}: {_of_starts(claims.of_starts(rows, value))}")
    table = Table(
        f"{_title(figure, study)}: relative error |W - W* P| / |W*|",
        ["mixture", "start", "before", "after", "from the minimum", "rate v"], lines, words=2,
        note="Claimed: 0.65 at the tensor start, which converges like a near one; N(0, 25) fails. "
        "The minimum is that which Newton's method finds from the near start's end, if any.",
    )  # fmt: skip
    picture = plot.step_curves(
        curves, value="error", ylabel="relative error", xlabel=_STEPS,
        title=_title(figure, study), log=True,
    )  # fmt: skip
    return StudyReport(table, results, " ".join(told), picture)


def _of_starts(found: claims.Starts) -> str:
    parts = (
        ("relative error of the tensor start", found.error, "0.65 or less"),
        ("its 1 - v over that of the near start", found.speed, "1"),
        ("relative error where N(0, 25) ends", found.far, "large"),
    )
    told = [
        f"{name} not defined, for the near start comes to no minimum: not found"
        if math.isnan(of[0])
        else f"{name} {of[0]:.2f} [{of[1]:.2f}, {of[2]:.2f}], claimed {wanted}: "
        f"{'holds' if holds else 'not found'}"
        for (name, of, wanted), holds in zip(parts, found.holds, strict=True)
    ]
    return "; ".join(told) + "."
