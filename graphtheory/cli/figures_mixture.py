"""Chapter 4: the one-hidden-layer network on Gaussian mixtures, and images with a minority."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphtheory.cli.figure import Asked, Figure, find_images

if TYPE_CHECKING:
    from graphtheory.papers.outcome import StudyReport
    from graphtheory.papers.study import Study


def _mixture(name: str, summary: str) -> Figure:
    def study(asked: Asked) -> Study:
        from graphtheory.papers.mixture.claims import STUDIES, quick

        return asked.sized(replace(STUDIES[name], first=asked.first), quick)

    def report(study: Any, rows: list[dict[str, Any]]) -> StudyReport:
        from graphtheory.papers.mixture.report import mixture

        return mixture(name, study, rows)

    return Figure(name, summary, study, report)


def _images(name: str, summary: str) -> Figure:
    def study(asked: Asked) -> Study:
        from graphtheory.papers.mixture.image_study import on, quick

        return asked.sized(on(name, asked.dataset.lower(), asked.root), quick)

    def report(study: Any, rows: list[dict[str, Any]]) -> StudyReport:
        from graphtheory.papers.mixture.image_report import group_images

        return group_images(name, study, rows)

    return Figure(name, summary, study, report, default="digits", only=_SETS, find=find_images)


_SETS = ("digits", "mnist")
ENTRIES: tuple[Figure, ...] = (
    _images("fig-4-1", "accuracy on a minority of images, over the noise added to some of it"),
    _mixture("fig-4-2", "which trials end alike, over d and the number of examples"),
    _mixture("fig-4-3a", "which trials end alike, over a group's mean and the number of examples"),
    _mixture("fig-4-3b", "which trials end alike, over a group's spread and the examples"),
    _mixture("fig-4-4a", "rate of gradient descent, over the norm of the means"),
    _mixture("fig-4-4b", "rate of gradient descent, over the spread of the groups"),
    _mixture("fig-4-5a", "rate of gradient descent, over the number of neurons"),
    _mixture("fig-4-5b", "distance to the teacher, over the number of examples"),
    _mixture("fig-4-6a", "risk of a minority and of all, over the spread of the minority"),
    _mixture("fig-4-6b", "risk of a minority and of all, over the mean of the minority"),
    _mixture("fig-4-7a", "risk of a minority and of all, over its fraction; it spreads less"),
    _mixture("fig-4-7b", "risk of a minority and of all, over its fraction; it spreads more"),
    _images("fig-4-8", "accuracy on a minority of images, over its fraction; of two minorities"),
    _mixture("fig-c-1", "descent from a tensor initialisation, a near start and a far one"),
)
