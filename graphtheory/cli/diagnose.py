"""`graphtheory diagnose`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from graphtheory.cli.show import (
    Command,
    Folder,
    Name,
    Names,
    RefusedError,
    Screen,
    at_least,
    data_root,
    known,
    refusing,
    write_json,
)


@dataclass(frozen=True)
class Diagnose(Command):
    """Measure what a graph offers before anything is trained.

    Which nodes carry a feature that tells their class, at which distance they outnumber those of
    other classes (winning margin, core distance), and how balanced the classes are: tables B.1 to
    B.3, B.5, B.6, B.8 and figure B.5 of Li (2024), beside the printed numbers where there are some.
    Writes diagnosis.json, diagnosis.csv, report.html and the pictures.

    With --sampling NAME instead what a sampler makes of the graph (chapter 5): the norm of its
    effective adjacency, how far draws are from it, what the theory admits for each degree group,
    and who gains and loses influence. NAME is one of degree-groups, degree-groups-symmetric,
    fastgcn, fastgcn-biased, ladies, ladies-normalized, graphsage, uniform. Writes sampling.json,
    sampling.csv and influence.png.

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
    """Follow edges in their own direction only, where a graph is directed; not with --sampling."""
    sampling: Name = None
    """A sampler to look at instead."""
    share: float = 0.5
    """Part of the nodes that the sampler draws, above 0 and at most 1."""
    groups: int = 3
    """Degree groups, evenly on a log scale of the degree."""
    p_star: Names = ()
    """Scaling of each degree group, such as 0.9,0.1,0.5, for samplers by degree groups; else 1."""
    draws: int = 20
    """Draws for what is estimated."""

    def run(self, screen: Screen) -> None:
        """Measure, print, write."""
        if self.sampling is None:
            self._features(screen)
        else:
            self._sampling(screen, self.sampling)

    def _features(self, screen: Screen) -> None:
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

    def _sampling(self, screen: Screen, name: str) -> None:
        from graphtheory.experiments.rows import Environment, write_csv
        from graphtheory.experiments.sampling import SAMPLERS, SamplingDiagnosis
        from graphtheory.plot import save
        from graphtheory.report import sampling_picture, sampling_tables

        known("--sampling", name, tuple(SAMPLERS))
        at_least(1, groups=self.groups)
        at_least(2, draws=self.draws)
        root = data_root(self.root)
        with refusing():
            study = SamplingDiagnosis(
                self.dataset, name, root, self.share, self.groups, _numbers(self.p_star), self.draws
            )
            out = self.out or Path(f"runs/diagnose-{study.name}-{name}")
            out.mkdir(parents=True, exist_ok=True)
            rows = study.run()
        here = Environment.here()
        for table in sampling_tables(rows):
            screen.table(table)
        write_csv(out / "sampling.csv", rows, here)
        found = {"command": screen.command, "environment": asdict(here)}
        write_json(out / "sampling.json", found | {"rows": [asdict(row) for row in rows]})
        save(sampling_picture(rows), out / "influence.png")
        screen.say(f"Written to {out}: sampling.json, sampling.csv and influence.png.")


def _numbers(words: tuple[str, ...]) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in words)
    except ValueError as error:
        got = ",".join(words)
        raise RefusedError(f"--p-star: got {got!r}, expected numbers such as 0.9,0.1") from error
