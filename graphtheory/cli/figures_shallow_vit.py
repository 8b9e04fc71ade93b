"""Chapter 2: the shallow vision transformer on sets of tokens, a deep one on pasted images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphtheory.cli.figure import Asked, Figure, find_images

if TYPE_CHECKING:
    from graphtheory.papers.outcome import StudyReport
    from graphtheory.papers.study import Study


_IMAGES = ("digits", "cifar10", "cifar10-jpeg")


def _pasted(name: str, summary: str) -> Figure:
    def study(asked: Asked) -> Study:
        from graphtheory.papers.shallow_vit import background_study as studies

        return asked.sized(studies.study(name, asked.dataset, asked.root), studies.quick)

    def report(study: Any, rows: list[dict[str, Any]]) -> StudyReport:
        from graphtheory.papers.shallow_vit.background_report import backgrounds

        return backgrounds(name, study, rows)

    return Figure(name, summary, study, report, default=_IMAGES[0], only=_IMAGES, find=find_images)


ENTRIES: tuple[Figure, ...] = (
    _pasted("fig-2-6a", "accuracy of a vision transformer over alpha_*, images on backgrounds"),
    _pasted("fig-2-6b", "accuracy over the number of training images, images on backgrounds"),
    _pasted("fig-2-6c", "backgrounds that give the class away, removed token by token"),
)
