"""Figures of chapter 6 and appendix E: in-context learning."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphtheory.cli.figure import Asked, Figure

if TYPE_CHECKING:
    from graphtheory.papers.outcome import StudyReport
    from graphtheory.papers.study import Study


def _icl(name: str, summary: str) -> Figure:
    """Chapter 6: the shallow network on prompts."""

    def study(asked: Asked) -> Study:
        from graphtheory.papers.icl.studies import STUDIES, quick

        return asked.sized(replace(STUDIES[name], first=STUDIES[name].first + asked.first), quick)

    def report(study: Any, rows: list[dict[str, Any]]) -> StudyReport:
        from graphtheory.papers.icl.report import icl

        return icl(name, study, rows)

    return Figure(name, summary, study, report)


ENTRIES = (
    _icl("steps-6", "step sizes for chapter 6, losses on seeds that no figure uses"),
    _icl("steps-6-gpt", "step sizes and tokens for figure 6.3a's GPT-2-style network, likewise"),
    _icl("fig-6-2", "keys, queries, attention and neurons of an in-context learner"),
    _icl("fig-6-3a", "its error out of the domain, over the sum S_1"),
    _icl("fig-6-3a-gpt", "the same of a GPT-2-style network of three layers and two heads"),
    _icl("fig-6-3b", "its error over the number of contexts, for several alpha'"),
    _icl("fig-6-4a", "its error beside methods fitted to each prompt, alpha' = 0.8"),
    _icl("fig-6-4b", "its error beside methods fitted to each prompt, alpha' = 0.6"),
    _icl("fig-6-5a", "its error over the share of neurons pruned, by magnitude and at random"),
    _icl("fig-6-5b", "its error over the share of neurons pruned, for several alpha'"),
    _icl("fig-e-1", "prompt length and steps that its training needs, over alpha"),
    _icl("fig-e-2", "its error on unseen tasks over the number of training tasks"),
)
