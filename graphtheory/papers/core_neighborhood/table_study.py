"""Tables of appendix B of Li (2024) on real graphs: a diagnosis, as far as a table needs it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from graphtheory.bench.diagnose import MOMENTS, Diagnosis
from graphtheory.papers.study import Step, Study


@dataclass(frozen=True)
class TableStudy(Study):
    """The rows of one table.

    Attributes:
        table: As `thesis_tables.Verdict` names it.
        wanted: Names of the rows that it is made of.
        max_distance: Largest distance z of the margins, hops.
        moments: Definitions of discriminative nodes; none where no feature is needed.
        dataset: Name of a graph.
        root: Folder with the raw files.
    """

    table: str
    wanted: tuple[str, ...]
    max_distance: int = 12
    moments: tuple[str, ...] = MOMENTS
    dataset: str = "Cora"
    root: Path | None = None

    def steps(self) -> list[Step]:
        """One, whose rows are result rows as plain values."""
        chosen = Diagnosis(self.dataset, self.root, self.max_distance, moments=self.moments)
        settings = {
            "dataset": chosen.name, "max_distance": self.max_distance, "moments": self.moments,
        }  # fmt: skip
        return [Step(chosen.name, settings, lambda: [asdict(row) for row in chosen.run()])]


_SHARE = ("discriminative share",)

TABLES: dict[str, TableStudy] = {
    "fig-b-5": TableStudy("fig. B.5", ("normalised margin", "pooled margin", "reach")),
    "table-b-1": TableStudy("B.1", _SHARE, max_distance=1),
    "table-b-2": TableStudy("B.2", _SHARE, max_distance=1),
    "table-b-3": TableStudy("B.3", _SHARE, max_distance=1),
    "table-b-5": TableStudy("B.5", ("positive margin",)),
    "table-b-6": TableStudy("B.6", ("nodes", "edges", "classes", "features"), moments=()),
    "table-b-8": TableStudy(
        "B.8", ("class size", "balance mean", "balance largest_gap"), moments=()
    ),
}
"""By ID."""
