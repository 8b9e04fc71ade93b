"""`graphtheory bench`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphtheory.cli.bench_images import bench_images
from graphtheory.cli.bench_runs import say_known, told_where_runs_are, train_all
from graphtheory.cli.fitting import of_images, only_images
from graphtheory.cli.show import (
    SMALL,
    Command,
    Count,
    File,
    Folder,
    Name,
    Names,
    RefusedError,
    Screen,
    at_least,
    data_root,
    known_models,
    refusing,
    set_aside,
    threads,
    write_json,
)

if TYPE_CHECKING:
    from graphtheory.bench.node_benchmark import Benchmark, Run
    from graphtheory.bench.search import Judged
    from graphtheory.report import BenchmarkReport

SEEDS = 10


@dataclass(frozen=True)
class Bench(Command):
    """Train models side by side on the same splits and seeds, and compare them.

    Prints a table and the paired differences of the first model, and writes results.json,
    results.csv and report.html (one file with pictures, nothing loaded from elsewhere). Each
    finished run is a line of runs.jsonl at once: after Ctrl-C or a crash the same command with
    --resume goes on; with more --seeds or --models it adds those that are missing.

    Try:  graphtheory bench --dataset Cora --models gt,gt-plain,gat,gcn,mlp --seeds 10 --root DATA
    """

    dataset: str = "digits"
    """Name of a graph or an image set; `graphtheory datasets` lists them."""
    models: Names = ("gt", "gt-plain", "gat", "gcn", "mlp")
    """Names of models, separated by commas; the others are compared with the first. gt is the graph
    transformer with distance encoding, gt-plain without; gat-res and gcn-res add a linear
    term of the node itself to each layer. On images, there without it all: vit, kvt, stvit, swin,
    evit, tome, random-drop, vig, cnn."""
    seeds: Count = None
    """How many seeds; seed s takes the published split s where there are several. Without it 10, of
    image sets 3."""
    split: Name = None
    """Kind of split; without it the data set's own. `graphtheory datasets` lists them."""
    root: Folder = None
    """Folder with the raw files; without it that of $GRAPHTHEORY_DATA. Not for embedded sets."""
    out: Folder = None
    """Where the results go; without it runs/bench-DATASET, of images runs/bench-DATASET-images."""
    resume: bool = False
    """Take finished runs from runs.jsonl there; otherwise that file is set aside, not lost."""
    epochs: Count = None
    """At most so many epochs a run; without it the data set's own number."""
    patience: Count = None
    """Stop a run after so many epochs without a better validation score; without it the data set's
    own number."""
    distances: Count = None
    """Also train, on one seed, models that aggregate only from nodes at distance exactly z, for z
    up to this: what figure 3.8 sets beside the learned bias. Without it 3 on a graph of at most
    5,000 nodes, 0, which is none, on a larger one."""
    search_log: File = None
    """Log of `graphtheory tune` for the report; without it runs/tune-DATASET/search.jsonl."""
    threads: Count = None
    """How many threads compute; without it 1 on a graph of at most 5,000 nodes, where more would
    wait for each other, and one a core on a larger one."""

    def run(self, screen: Screen) -> None:
        """Train, print, write."""
        models = self._models()
        if models and of_images("--models", self.dataset, models):
            at_least(1, seeds=self.seeds, epochs=self.epochs, threads=self.threads)
            bench_images(screen, self, models)
        else:
            self._on_graph(screen)

    def _models(self) -> tuple[str, ...]:
        """Those asked for, each once; where none are, those that fit the data set."""
        from graphtheory.models import image_zoo

        plain = {field.name: field.default for field in fields(self)}["models"]
        if self.models == plain and only_images(self.dataset):
            return image_zoo.NAMES
        return tuple(dict.fromkeys(self.models))

    def _on_graph(self, screen: Screen) -> None:
        from graphtheory.report import difference_table
        from graphtheory.report import differences as paired

        bench, data, log, out = self._prepared(screen)
        with told_where_runs_are(screen, bench, out), threads(self.threads, data.num_nodes):
            runs = train_all(screen, bench, ".1f", ", {whole:.1f} s")
            studied = self._distances(screen, data, out)
            report = self._report(screen, bench, data, runs, studied, log)
        title = f"{data.name}, split {data.split}"
        screen.table(report.scores(title))
        if against := paired(runs, bench.models[0]):
            screen.table(difference_table(against, bench.models[0]))
        _write(report, out)
        screen.say(f"Written to {out}: report.html, results.json, results.csv, runs.jsonl.")

    def _prepared(self, screen: Screen) -> tuple[Benchmark, Any, list[Judged], Path]:
        """Benchmark, data, the search's log and the folder, after all that can be refused."""
        from graphtheory.bench.node_benchmark import Benchmark, FinishedRuns
        from graphtheory.bench.search import SearchLog
        from graphtheory.data import graphs
        from graphtheory.structure.distance import MAX_CUTOFF

        at_least(1, seeds=self.seeds, epochs=self.epochs, patience=self.patience)
        at_least(1, threads=self.threads)
        at_least(0, distances=self.distances)
        if self.distances is not None and self.distances > MAX_CUTOFF:
            raise RefusedError(
                f"--distances: got {self.distances}, expected {MAX_CUTOFF} hops or fewer"
            )
        if self.search_log is not None and not self.search_log.is_file():
            raise RefusedError(f"--search-log: {self.search_log} is not a file")
        models = known_models(self.models)
        root = data_root(self.root)
        with refusing():
            data = graphs.load(self.dataset, root, split=self.split)
            tried = self.search_log or Path(f"runs/tune-{data.name}/search.jsonl")
            log = list(SearchLog(tried))
            out = self.out or Path(f"runs/bench-{data.name}")
            out.mkdir(parents=True, exist_ok=True)
            if not self.resume:
                set_aside(screen, out / "runs.jsonl")
            bench = Benchmark(
                data.name, models, self.seeds or SEEDS, data.split, root, self.epochs,
                self.patience, record=FinishedRuns(out / "runs.jsonl"),
            )  # fmt: skip
            say_known(screen, bench)
        return bench, data, log, out

    def _distances(self, screen: Screen, data: Any, out: Path) -> list[dict[str, Any]]:
        """Rows of the distance-z models; those of an earlier run of the same study are taken."""
        from graphtheory.data.catalogue import describe
        from graphtheory.papers.core_neighborhood.figures_distance import distance_rows

        farthest = self.distances
        if farthest is None:
            farthest = 3 if data.num_nodes <= SMALL else 0
        if farthest == 0 or data.split != describe(data.name).default_split:
            return []
        kept = out / "distances.jsonl"
        if not self.resume:
            set_aside(screen, kept)
        with refusing(), screen.steps("distance-z run") as steps:
            return distance_rows(
                data.name, data_root(self.root), farthest, epochs=self.epochs, progress=steps,
                kept=kept,
            )  # fmt: skip

    def _report(
        self,
        screen: Screen,
        bench: Benchmark,
        data: Any,
        runs: list[Run],
        studied: list[dict[str, Any]],
        log: list[Judged],
    ) -> BenchmarkReport:
        from graphtheory.bench.rows import Environment
        from graphtheory.report import BenchmarkReport

        return BenchmarkReport(
            bench, runs, data.split, data.metric, screen.command, Environment.here(),
            distance_rows=studied, search_log=log,
        )  # fmt: skip


def _write(report: BenchmarkReport, out: Path) -> None:
    """results.json, results.csv and report.html."""
    from graphtheory.bench.rows import write_csv
    from graphtheory.report import differences as paired
    from graphtheory.report import rows, summaries

    against = paired(report.runs, report.first)
    found = {
        "command": report.command, "settings": report.settings(),
        "environment": asdict(report.environment),
        "models": [asdict(s) for s in summaries(report.runs)],
        "differences": {"first": report.first, "others": [asdict(d) for d in against]},
        "runs": [asdict(run) for run in report.runs], "distance_study": report.distance_rows,
    }  # fmt: skip
    write_json(out / "results.json", found)
    shared = {"dataset": report.benchmark.dataset, "split": report.split}
    lines = rows(
        report.runs, report.first, report.metric, not_tuned=report.benchmark.not_tuned(), **shared
    )
    write_csv(out / "results.csv", lines, report.environment)
    report.page().save(out / "report.html")
