"""The figures and tables that `graphtheory reproduce` makes again, one entry each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphtheory.cli import (
    figures_fusion,
    figures_shallow_vit,
)
from graphtheory.cli.figure import Asked, Figure

Former = Figure

if TYPE_CHECKING:
    from graphtheory.papers.outcome import StudyReport
    from graphtheory.papers.study import Study

QUICK_EPOCHS = 40


def _distances() -> Figure:
    def study(asked: Asked) -> Study:
        from graphtheory.papers.core_neighborhood.distance_study import DistanceStudy

        made = DistanceStudy(asked.dataset, asked.root, seeds=asked.seeds or DistanceStudy.seeds)
        quick = replace(made, seeds=1, epochs=QUICK_EPOCHS, patience=15)
        return quick if asked.quick else made

    def report(study: Any, rows: list[dict[str, Any]]) -> StudyReport:
        from graphtheory.papers.core_neighborhood.real_report import distances

        return distances(study, rows)

    summary = "accuracy of models that hear distance z alone, beside the learned bias b_z"
    return Figure("fig-3-8", summary, study, report, default="Cora")


def _labels() -> Figure:
    def study(asked: Asked) -> Study:
        from graphtheory.papers.core_neighborhood.label_study import LabelStudy

        made = LabelStudy(asked.dataset, asked.root, seeds=asked.seeds or LabelStudy.seeds)
        return replace(made, seeds=1, epochs=QUICK_EPOCHS) if asked.quick else made

    def report(study: Any, rows: list[dict[str, Any]]) -> StudyReport:
        from graphtheory.papers.core_neighborhood.real_report import labels

        return labels(study, rows)

    summary = "accuracy over the number of labels: with encoding, without, GCN"
    return Figure("fig-3-9", summary, study, report, default="Cora")


def _encoding() -> Figure:
    def study(asked: Asked) -> Study:
        from graphtheory.data.catalogue import key
        from graphtheory.papers.core_neighborhood.encoding_study import CASES, EncodingStudy

        cases = tuple(n for n, c in CASES.items() if key(c.dataset) == key(asked.dataset))
        made = EncodingStudy(cases, asked.root, asked.seeds)
        quick = replace(made, cases=cases[:1], seeds=1, epochs=QUICK_EPOCHS)
        return quick if asked.quick else made

    def report(study: Any, rows: list[dict[str, Any]]) -> StudyReport:
        from graphtheory.papers.core_neighborhood.real_report import encoding

        return encoding(study, rows)

    summary = "the same configurations with and without the encoding, paired by seed"
    only = ("Cora", "minesweeper")
    return Figure("encoding", summary, study, report, default="Cora", only=only)


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
    *figures_shallow_vit.ENTRIES,
    _distances(),
    _labels(),
    _encoding(),
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
