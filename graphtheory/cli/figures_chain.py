"""Chapter 7: reasoning in steps, from prompts of examples."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphtheory.cli.figure import Asked, Figure

if TYPE_CHECKING:
    from graphtheory.papers.outcome import StudyReport
    from graphtheory.papers.study import Study


def _chain(name: str, summary: str) -> Figure:
    def study(asked: Asked) -> Study:
        from graphtheory.papers.chain.study import quick, study

        return asked.sized(replace(study(name), first=asked.first), quick)

    def report(study: Any, rows: list[dict[str, Any]]) -> StudyReport:
        from graphtheory.papers.chain.report import chain

        return chain(name, study, rows)

    return Figure(name, summary, study, report)


ENTRIES: tuple[Figure, ...] = (
    _chain("fig-7-3a", "error of chain of thought over the examples, for several alpha'"),
    _chain("fig-7-3b", "error of chain of thought over the examples, for several tau"),
    _chain("fig-7-3c", "error of chain of thought over the examples, for several rho"),
    _chain("fig-7-4a", "error of in-context learning over the examples, for several alpha'"),
    _chain("fig-7-4b", "error of in-context learning over the examples, for several tau_o"),
    _chain("fig-7-4c", "error of in-context learning over the examples, for several rho_o"),
    _chain("fig-7-5", "both where condition 7.3.2 holds and where it fails"),
    _chain("fig-7-6", "attention of the query in the course of training, one layer"),
    _chain("fig-7-7", "the same in three layers of two heads, two reasoning steps"),
    _chain("fig-f-1", "the same in three layers of one head, with sinusoidal positions"),
)
