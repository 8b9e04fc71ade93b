"""`graphtheory bench`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphtheory.lab.by_name import paper
from graphtheory.lab.cli.bench_images import bench_images
from graphtheory.lab.cli.bench_runs import say_known, search_all, told_where_runs_are, train_all
from graphtheory.lab.cli.fitting import IMAGES, compared, fitting
from graphtheory.lab.cli.on_data import OnData
from graphtheory.lab.cli.options import Count, File, Folder, Names, Settings
from graphtheory.lab.cli.show import (
    SMALL,
    RefusedError,
    Screen,
    at_least,
    data_root,
    file_there,
    refusing,
    set_aside,
    threads,
)

if TYPE_CHECKING:
    from graphtheory.lab.bench.node_benchmark import Benchmark
    from graphtheory.lab.bench.problem import Problem
    from graphtheory.lab.bench.search import Judged

SEEDS = 10
NODES = "the nodes of one graph"


@dataclass(frozen=True)
class Bench(OnData):
    """Train models side by side on the same splits and seeds, and compare them.

    Works on the nodes of one graph, on sets of graphs such as molecules, on images, and on your own
    PyG data (--data FILE).

    Prints a table and the paired differences of the first model, and writes results.json,
    results.csv and report.html (one file with pictures, nothing loaded from elsewhere). Each
    finished run is a line of runs.jsonl at once: after Ctrl-C or a crash the same command with
    --resume goes on; with more --seeds or --models it adds those that are missing.

    Try:  graphtheory bench --dataset Cora --models gt,gt-plain,gat,gcn,mlp --seeds 10 --root DATA
          graphtheory bench --dataset ogbg-molesol --models gt,gine,ecfp --seeds 3 --root DATA
          graphtheory bench --data graph.pt --budget 16
          graphtheory bench --data graphs.pt --set walk=16,layers=5
    """

    image_size: Count = None
    """Rows and columns that images of a folder are cut and resized to; without it they stay as they
    are, which have to be squares of one size."""
    models: Names = ("gt", "gt-plain", "gat", "gcn", "mlp")
    """Names of models, separated by commas; the others are compared with the first. One graph: gt
    (graph transformer with distance encoding), gt-plain (without), gat, gcn, mlp, gat-res and
    gcn-res (with a linear term of the node itself in each layer), gt-gcn (gt with a graph
    convolution beside each attention layer), sage (GraphSAGE), sgformer, sampled-gcn (learns on
    draws of a sampler: --set sampler=fastgcn,share=0.1). Sets of graphs: gt, gt-plain, gine, gcn,
    gatv2, mlp, all of them by default, and for molecules ecfp (fingerprints with boosted trees).
    Images: vit, kvt, stvit, swin, evit, tome, random-drop, vig, cnn, all of them by default."""
    seeds: Count = None
    """How many seeds; seed s takes the published split s where there are several. Without it 10, of
    image sets 3."""
    out: Folder = None
    """Where the results go; without it runs/bench-DATASET, of images runs/bench-DATASET-images."""
    resume: bool = False
    """Take finished runs from runs.jsonl there; otherwise that file is set aside, not lost."""
    epochs: Count = None
    """At most so many epochs a run; without it the data set's own number."""
    patience: Count = None
    """Stop a run after so many epochs without a better validation score; without it the data set's
    own number."""
    budget: Count = None
    """Before, try so many candidates of each model's options on validation, of the models for which
    no search has chosen any; most tables of the documentation have 16, some of sets of graphs 4.
    Tried candidates are lines of search.jsonl and are not tried again. Without it such a model has
    default options, and the output says so."""
    no_kept: bool = False
    """Treat a named set as a graph that nobody has seen: without the options that searches have
    chosen for it before."""
    set: Settings = ()
    """Options of the models, instead of tuned or default ones, such as
    walk=16,readout=token,paths=5,resistance=true,laplacian=8,value_encoding=true,lr=0.001;
    of images lr=0.001,batch_size=64,flip=true,width=128,depth=8,k=20,tokens=25,keep=0.7. A model
    without such an option is left as it is, and the output says so. An unknown name is answered
    with the list of all."""
    distances: Count = None
    """Also train, on one seed, models that aggregate only from nodes at distance exactly z, for z
    up to this: what figure 3.8 sets beside the learned bias. Without it 3 on a graph of at most
    5,000 nodes, 0, which is none, on a larger one."""
    search_log: File = None
    """Log of `graphtheory tune` for the report; without it runs/tune-DATASET/search.jsonl."""

    def check(self) -> None:
        """The options alone."""
        at_least(1, seeds=self.seeds, epochs=self.epochs, patience=self.patience)
        at_least(0, distances=self.distances)
        file_there("--search-log", self.search_log)
        super().check()

    def run(self, screen: Screen) -> None:
        """Train, print, write."""
        root = data_root(self.root)
        models = self.models
        if self.data is None:
            models = compared(self.dataset, self.models, type(self).models, root)
        if not models:
            raise RefusedError("--models: no name, expected one or more separated by commas")
        if self.data is None and fitting("--models", self.dataset, models, root) == IMAGES:
            if self.budget is not None:
                raise RefusedError(f"--budget: got {self.budget}, not for images: a fixed recipe")
            bench_images(screen, self, models)
        elif self.image_size is not None:
            raise RefusedError(f"--image-size: got {self.image_size}, only for a folder of images")
        else:
            self._on_graphs(screen, models)

    def _on_graphs(self, screen: Screen, models: tuple[str, ...]) -> None:
        from graphtheory.lab.bench.rows import Environment
        from graphtheory.lab.report import BenchmarkReport

        bench, log, out = self._prepared(screen, models)
        problem, nodes = bench.problem, bench.problem.num_nodes
        with told_where_runs_are(screen, bench, out), threads(self.threads, nodes):
            runs = train_all(screen, bench, problem.measure, ".1f", ", {whole:.1f} s")
            studied = self._distances(screen, problem, nodes, out)
            report = BenchmarkReport(
                bench, runs, str(problem.split), problem.measure.name, screen.command,
                Environment.here(), distance_rows=studied, search_log=log,
            )  # fmt: skip
        for table in report.tables():
            screen.table(table)
        with screen.working("report.html"):
            report.save(out)
        screen.result({"folder": out, **report.results()})
        screen.say(f"Written to {out}: report.html, results.json, results.csv, runs.jsonl.")

    def _prepared(
        self, screen: Screen, models: tuple[str, ...]
    ) -> tuple[Benchmark, list[Judged], Path]:
        """Benchmark, the search's log and the folder, after all that can be refused."""
        from graphtheory.lab.bench.node_benchmark import Benchmark, FinishedRuns
        from graphtheory.lab.bench.options import read_options
        from graphtheory.lab.bench.search import SearchLog
        from graphtheory.lab.datasets.catalogue import describe
        from graphtheory.structure.distance import MAX_CUTOFF

        if self.budget is not None and self.budget < 2:
            raise RefusedError(
                f"--budget: got {self.budget}, expected 2 or more candidates; the first is the "
                "defaults, which are taken without it"
            )
        if self.data is not None and self.dataset != type(self).dataset:
            raise RefusedError(f"--dataset: got {self.dataset}, expected none beside --data")
        if self.budget is not None and self.set:
            raise RefusedError(f"--budget: got {self.budget}, expected none beside --set")
        if self.distances is not None and self.distances > MAX_CUTOFF:
            raise RefusedError(
                f"--distances: got {self.distances}, expected {MAX_CUTOFF} hops or fewer"
            )
        root = data_root(self.root)
        with refusing():
            problem = self.problem(root)
            problem.kept = not self.no_kept
            if self.data is not None and models == type(self).models:
                models = problem.compared
            if self.distances and (problem.reads != NODES or self.data is not None):
                raise RefusedError(f"--distances: got {self.distances}, only for {NODES} by name")
            if self.distances and describe(problem.name).kind != "multiclass":
                raise RefusedError(f"--distances: got {self.distances}, only for one class a node")
            for model in models:
                problem.known_model(model)
            with screen.working(f"reading {problem.name}"):
                assert problem.num_nodes and problem.measure  # the files are read
                for model in models:  # default options ask the features of a graph
                    problem.trial(model)
            tried = self.search_log or Path(f"runs/tune-{problem.name}/search.jsonl")
            log = list(SearchLog(tried))
            out = self.out or Path(f"runs/bench-{problem.name}")
            bench = Benchmark(
                problem, models, self.seeds or SEEDS, problem.split, root, self.epochs,
                self.patience, options=read_options(self.set),
            )  # fmt: skip
            if told := bench.set_by_hand:
                screen.note(f"Set by hand: {told}.")
            out.mkdir(parents=True, exist_ok=True)
        if self.budget is not None and (todo := bench.not_tuned()):
            searched, chosen = self._searched(screen, problem, todo, out)
            bench = replace(bench, chosen=chosen, budget=self.budget)
            log = [*log, *searched]
        if default := bench.not_tuned():
            screen.note(
                f"Options: defaults, not tuned: {', '.join(default)}. --budget 16 chooses them on "
                "validation first."
            )
        with refusing():
            if not self.resume:
                set_aside(screen, out / "runs.jsonl")
            bench = replace(bench, record=FinishedRuns(out / "runs.jsonl"))
            say_known(screen, bench)
        return bench, log, out

    def _searched(
        self, screen: Screen, problem: Problem, models: tuple[str, ...], out: Path
    ) -> tuple[list[Judged], dict[str, Any]]:
        """What a search tried, and the best trial of each model."""
        from graphtheory.lab.bench.search import Search, best

        with refusing():
            study = Search(
                problem, models, self.budget or 0, log=out / "search.jsonl", epochs=self.epochs
            )
            len(study.tried)  # a damaged line is told before anything is tried
        found = search_all(screen, study, self.threads, problem.num_nodes)
        return found, {m: judged.trial for m, judged in best(found, problem.measure).items()}

    def _distances(
        self, screen: Screen, problem: Problem, nodes: int, out: Path
    ) -> list[dict[str, Any]]:
        """Rows of the distance-z models; those of an earlier run of the same study are taken."""
        from graphtheory.lab.datasets.catalogue import describe

        farthest = self.distances
        if farthest is None:
            named = self.data is None and problem.reads == NODES
            fits = named and nodes <= SMALL and describe(problem.name).kind == "multiclass"
            farthest = 3 if fits else 0
        if (
            self.data is not None
            or farthest == 0
            or problem.split != describe(problem.name).default_split
        ):
            return []
        kept = out / "distances.jsonl"
        if not self.resume:
            set_aside(screen, kept)
        with refusing(), screen.steps("one distance alone, run") as steps:
            return paper("core_neighborhood.figures_distance.distance_rows")(
                problem.name, data_root(self.root), farthest, epochs=self.epochs, progress=steps,
                kept=kept,
            )  # fmt: skip
