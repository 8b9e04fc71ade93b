"""The figures and tables that `graphtheory reproduce` makes again, one entry each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphtheory.cli import (
    figures_fusion,
)
from graphtheory.cli.figure import Asked, Figure

Former = Figure

if TYPE_CHECKING:
    from graphtheory.papers.outcome import StudyReport
    from graphtheory.papers.study import Study

QUICK_EPOCHS = 40


def _printed(name: str, summary: str, *only: str) -> Figure:
    """Appendix B: what is measured on a graph before anything is trained."""

    def study(asked: Asked) -> Study:
        from graphtheory.papers.core_neighborhood.table_study import TABLES

        made = replace(TABLES[name], dataset=asked.dataset, root=asked.root)
        quick = replace(made, max_distance=min(3, made.max_distance))
        return quick if asked.quick else made

    def report(study: Any, rows: list[dict[str, Any]]) -> StudyReport:
        from graphtheory.papers.core_neighborhood.table_report import printed

        return printed(study, rows)

    return Figure(name, summary, study, report, default=only[0], only=only, random=False)


_ENTRIES = (
    _printed("fig-b-5", "winning margin over the distance", "Cora", "PubMed", "Actor"),
    _printed("table-b-1", "discriminative nodes of each class", "Cora"),
    _printed("table-b-2", "discriminative nodes of each class", "PubMed"),
    _printed("table-b-3", "discriminative nodes of each class", "Actor"),
    _printed("table-b-5", "nodes with a winning margin above 0", "Cora", "PubMed", "Actor"),
    _printed("table-b-6", "sizes of the graphs", "Actor", "PubMed"),
    _printed("table-b-8", "how even the classes are", "Cora", "Actor"),
    *figures_fusion.ENTRIES,
)
FIGURES: dict[str, Figure] = {entry.name: entry for entry in _ENTRIES}
