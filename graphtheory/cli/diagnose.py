"""`graphtheory diagnose`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from graphtheory.cli.show import Command, Folder, Screen, at_least, data_root, refusing, write_json


@dataclass(frozen=True)
class Diagnose(Command):
    """Measure what a graph offers before anything is trained.

    Which nodes carry a feature that tells their class, at which distance they outnumber those of
    other classes (winning margin, core distance), and how balanced the classes are: tables B.1 to
    B.3, B.5, B.6, B.8 and figure B.5 of Li (2024), beside the printed numbers where there are some.
    Writes diagnosis.json, diagnosis.csv, report.html and the pictures.

    Try:  graphtheory diagnose --dataset Cora --root DATA
    """

    dataset: str = "Cora"
    """Name of a graph; `graphtheory datasets` lists them."""
    root: Folder = None
    """Folder with the raw files; without it that of $GRAPHTHEORY_DATA. Not for embedded graphs."""
    out: Folder = None
    """Where the results go; without it runs/diagnose-DATASET."""
    max_distance: int = 12
    """Largest distance of the margins, hops, 1 to 253."""
    directed: bool = False
    """Follow edges in their own direction only, where a graph is directed."""

    def run(self, screen: Screen) -> None:
        """Measure, print, write."""
        from graphtheory.experiments.diagnose import Diagnosis
        from graphtheory.experiments.rows import Environment, write_csv
        from graphtheory.experiments.thesis_tables import verdicts
        from graphtheory.plot import save
        from graphtheory.report import diagnosis_page, pictures, tables

        at_least(1, max_distance=self.max_distance)
        root = data_root(self.root)
        with refusing():
            study = Diagnosis(self.dataset, root, self.max_distance, self.directed)
            out = self.out or Path(f"runs/diagnose-{study.name}")
            out.mkdir(parents=True, exist_ok=True)
            rows = study.run()
        here = Environment.here()
        for table in tables(rows):
            screen.table(table)
        if not any(row.name == "margin" for row in rows):
            screen.say("The features are missing: shares and margins are not measured.")
        write_csv(out / "diagnosis.csv", rows, here)
        found = {
            "command": screen.command, "environment": asdict(here),
            "rows": [asdict(row) for row in rows], "verdicts": [asdict(v) for v in verdicts(rows)],
        }  # fmt: skip
        write_json(out / "diagnosis.json", found)
        for name, figure, _ in pictures(rows):
            save(figure, out / f"{name}.png")
        diagnosis_page(rows, screen.command, here).save(out / "report.html")
        screen.say(f"Written to {out}: report.html, diagnosis.json, diagnosis.csv and pictures.")
