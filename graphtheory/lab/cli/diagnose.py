"""`graphtheory diagnose`, which measures a graph before anything is trained."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from graphtheory.lab import plot, report
from graphtheory.lab.bench.rows import Environment, write_csv
from graphtheory.lab.by_name import paper
from graphtheory.lab.cli import options as opt
from graphtheory.lab.cli import show
from graphtheory.lab.cli.show import Command, RefusedError, Screen


@dataclass(frozen=True)
class Diagnose(Command):
    """Options of `graphtheory diagnose`, of a graph or of a sampler on it."""

    needs = ("graphtheory.lab.report.diagnosis",)

    dataset: str = "core-distance"
    data: opt.File = None
    root: opt.Folder = None
    out: opt.Folder = None
    max_distance: opt.Count = None
    directed: bool = False
    sampling: opt.Name = None
    share: opt.Part = None
    neighbors: opt.Count = None
    groups: opt.Count = None
    p_star: opt.Names = ()
    draws: opt.Count = None

    def check(self) -> None:
        alone, beside = "got {}, expected none without --sampling", "got {}, expected none with "
        options = ("share", "neighbors", "groups", "p_star", "draws")
        self.refuse(self.sampling is None, alone, *options)
        self.refuse(self.sampling, f"{beside}--sampling", "data", "directed", "max_distance")
        show.at_least(
            1, max_distance=self.max_distance, groups=self.groups, neighbors=self.neighbors
        )
        show.at_least(2, draws=self.draws)
        show.file_there("--data", self.data)
        self.refuse(self.data, "got {}, expected none with --data", "dataset")
        opt.kinds(self.dataset, show.data_root(self.root))

    def run(self, screen: Screen) -> None:
        found = (opt.GRAPH,) if self.data else opt.kinds(self.dataset, show.data_root(self.root))
        if opt.GRAPH not in found:
            raise RefusedError(f"--dataset: {self.dataset} {found[0]}, expected one graph")
        if self.sampling is None:
            self._features(screen)
        else:
            self._sampling(screen, self.sampling)

    def _features(self, screen: Screen) -> None:
        from graphtheory.lab.bench.benchmark import bench_task
        from graphtheory.lab.bench.diagnose import Diagnosis
        from graphtheory.lab.report.page import CAPTIONS
        from graphtheory.structure.distance import MAX_CUTOFF

        thesis = "core_neighborhood.printed"
        distance = 12 if self.max_distance is None else self.max_distance
        if distance >= MAX_CUTOFF:
            raise RefusedError(f"--max-distance: got {distance}, expected {MAX_CUTOFF - 1} or less")
        with show.usage_errors():
            where = (self.dataset, show.data_root(self.root), distance, self.directed)
            own: Any = None if self.data is None else bench_task(self.data, kind="node")
            study = Diagnosis(*where, own=own)
            out = self._folder(study.name)
            with screen.steps("margins") as steps:
                rows = study.run(steps)
            with screen.working("linear classifiers"):
                rows += study.hops()
        printed = paper(f"{thesis}.beside")(rows)
        screen.say(report.reading(rows) or CAPTIONS["no features"], wrap=True)
        for table in report.tables(rows, printed):
            screen.table(table)
        verdicts = [asdict(v) for v in paper(f"{thesis}.verdicts")(rows)]
        _write(screen, out, "diagnosis", rows, verdicts=verdicts)
        with screen.working("pictures"):
            page = report.diagnosis_page(rows, screen.command, Environment.here(), printed)
            page.save(out / "report.html")
            for drawn, figure, _ in report.pictures(rows, printed):
                plot.save(figure, out / f"{drawn}.png")
        screen.say(
            f"Written to {out}: report.html, diagnosis.json, diagnosis.csv and pictures.", wrap=True
        )

    def _sampling(self, screen: Screen, name: str) -> None:
        diagnosis = "topology.diagnosis"
        show.known("--sampling", name, tuple(paper(f"{diagnosis}.SAMPLERS")))
        where, graphsage = f"got {{}}, expected none with --sampling {name}", name == "graphsage"
        self.refuse(graphsage, f"{where}, which takes --neighbors", "share")
        self.refuse(not graphsage, f"{where}, only with graphsage", "neighbors")
        by_groups = name.startswith("degree-groups")
        self.refuse(not by_groups, f"{where}, only with samplers by degree groups", "p_star")
        given = {n: getattr(self, n) for n in ("share", "neighbors", "groups", "draws")}
        options: dict[str, Any] = {n: value for n, value in given.items() if value is not None}
        try:
            options["p_star"] = tuple(map(float, self.p_star))
        except ValueError as error:
            got = repr(",".join(self.p_star))
            raise RefusedError(f"--p-star: got {got}, expected numbers such as 0.9,0.1") from error
        with show.usage_errors():
            study = paper(f"{diagnosis}.SamplingDiagnosis")(
                self.dataset, name, show.data_root(self.root), **options
            )
            out = self._folder(f"{study.name}-{name}")
            with screen.steps(f"{name} on {study.name}") as steps:
                steps.before("effective adjacency", 0, 1)
                rows = study.run(steps.draw)
        for table in paper(f"{diagnosis}.sampling_tables")(rows):
            screen.table(table)
        _write(screen, out, "sampling", rows)
        picture, here = paper(f"{diagnosis}.sampling_picture")(rows), Environment.here()
        page = paper(f"{diagnosis}.sampling_page")(rows, picture, screen.command, here)
        page.save(out / "report.html")
        plot.save(picture, out / "influence.png")
        screen.say(
            f"Written to {out}: report.html, sampling.json, sampling.csv, influence.png.", wrap=True
        )

    def _folder(self, name: str) -> Path:
        out = self.out or Path(f"runs/diagnose-{name}")
        out.mkdir(parents=True, exist_ok=True)
        return out


def _write(screen: Screen, out: Path, name: str, rows: Sequence[Any], **more: Any) -> None:
    here = Environment.here()
    write_csv(out / f"{name}.csv", rows, here)
    more |= {"command": screen.command, "environment": asdict(here), "rows": [*map(asdict, rows)]}
    show.write_json(out / f"{name}.json", more)
    screen.result({"folder": out, **more})
