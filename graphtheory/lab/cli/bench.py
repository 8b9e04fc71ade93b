"""`graphtheory bench`, on any data or a published recipe, `tune` and `recipes`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphtheory.lab import report, train
from graphtheory.lab.bench.config import Budget, read_options
from graphtheory.lab.bench.rows import Environment, Table, joined
from graphtheory.lab.by_name import paper
from graphtheory.lab.cli import options as opt
from graphtheory.lab.cli import show
from graphtheory.lab.cli.show import Command, RefusedError, Screen
from graphtheory.lab.cli.train import write_image_run
from graphtheory.lab.datasets.catalogue import describe

if TYPE_CHECKING:
    from graphtheory.lab.bench.benchmark import Benchmark
    from graphtheory.lab.bench.recipes import Verdict
    from graphtheory.lab.bench.search import SearchResult
    from graphtheory.lab.bench.task import BenchTask

RUNS = Path("runs")  # has the runs of all recipes
SEEDS, IMAGE_SEEDS = 10, 3
_TRAINED_BY = ("precision", "accumulate")  # which a recipe fixes
NODES = "the nodes of one graph"


@dataclass(frozen=True)
class Bench(opt.OnTrainer):
    """Options of `graphtheory bench`, which trains models side by side."""

    image_size: opt.Count = None
    recipe: opt.Name = None
    models: opt.Names = ("gt", "gt-plain", "gat", "gcn", "mlp")
    seeds: opt.Count = None
    out: opt.Folder = None
    resume: bool = False
    epochs: opt.Count = None
    patience: opt.Count = None
    budget: opt.Length = None
    no_kept: bool = False
    set: opt.Settings = ()
    distances: opt.Count = None
    search_log: opt.File = None

    def check(self) -> None:
        show.at_least(1, seeds=self.seeds, epochs=self.epochs, patience=self.patience)
        show.at_least(0, distances=self.distances)
        show.file_there("--search-log", self.search_log)
        names = ("dataset", "data", "split", "models", "epochs", "patience", "budget", "set")
        others = (*names, "image_size", "no_kept", "distances", "search_log", *_TRAINED_BY)
        self.refuse(self.recipe, "got {}, expected none with --recipe", *others)
        with show.usage_errors():
            self.length()
        super().check()

    def length(self) -> Budget | None:
        """How long the search is, if there is one."""
        return None if self.budget is None else Budget.of(self.budget, least=2)

    def run(self, screen: Screen) -> None:
        if self.recipe is not None:
            return self._repeat(screen, self.recipe)
        from graphtheory.lab.bench.benchmark import train_all
        from graphtheory.lab.report.benchmark import ImageReport
        from graphtheory.lab.train.score import UndefinedScoreError

        bench, log, out = self._prepared(screen)
        task, images = bench.task, bench.task.has_folders

        def stopped() -> None:
            more = ", and the interrupted run from its last epoch" if images else ""
            screen.note(
                f"\n{bench.count_known()} of {bench.total} runs are in {out / 'runs.jsonl'}; the "
                f"same command with --resume continues{more}."
            )

        on_images = (train.CheckpointError, ValueError, OSError, ImportError)
        wrong = on_images if images else (UndefinedScoreError,)
        with show.on_interrupt(stopped), bench.computing():
            with show.usage_errors(*wrong):
                runs = train_all(bench, screen.steps("run"))
            found = (ImageReport if images else report.BenchmarkReport)(
                bench, runs, screen.command, Environment.here(),
                distance_rows=self._distances(screen, task, out), search_log=log,
            )  # fmt: skip
        for table in found.tables():
            screen.table(table)
        with screen.working("report.html"):
            found.save(out)
        screen.result({"folder": out, **found.results()})
        more = ", and a folder for each run" if images else ""
        screen.say(f"Written to {out}: report.html, results.json, results.csv, runs.jsonl{more}.")

    def _repeat(self, screen: Screen, name: str) -> None:
        """Repeat a recipe, and print what it says of the score."""
        from graphtheory.lab.bench.benchmark import thread_limit
        from graphtheory.lab.bench.recipes import COLUMNS, RECIPES, run_recipe

        recipe = RECIPES[show.known("--recipe", name, tuple(RECIPES), "graphtheory recipes")]
        folder = self.out or RUNS
        stopped = f"\nFinished runs are in {folder / 'recipes.csv'}; --resume continues from them."
        with (
            show.on_interrupt(lambda: screen.note(stopped)), thread_limit(self.threads, None),
            show.usage_errors(), screen.steps("run") as steps,
        ):  # fmt: skip
            found = run_recipe(
                recipe, folder, root=show.data_root(self.root), seeds=self.seeds,
                resume=self.resume, trainer=self.trainer(), before=steps.before,
                finished=steps.finished,
            )  # fmt: skip
        screen.table(Table("", COLUMNS, [found.cells()]))
        for text in filter(None, (recipe.note, recipe.others)):
            screen.say(text)
        screen.result(_plain(found))

    def _refuse(self, images: bool) -> None:
        from graphtheory.structure.distance import MAX_CUTOFF

        self.refuse(images, "got {}, not for images: a fixed recipe", "budget")
        self.refuse(images, "not for images", "patience", "distances", "search_log")
        self.refuse(not images, "got {}, only for a folder of images", "image_size")
        self.refuse(self.data, "got {}, expected none with --data", "dataset")
        self.refuse(self.set, "got {}, expected none with --set", "budget")
        far = f"got {{}}, expected {MAX_CUTOFF} hops or fewer"
        self.refuse((self.distances or 0) > MAX_CUTOFF, far, "distances")

    def _refuse_distances(self, task: BenchTask) -> None:
        if self.distances:
            other = task.reads != NODES or self.data is not None
            self.refuse(other, f"got {{}}, only for {NODES} by name", "distances")
            several = describe(task.name).kind != "multiclass"
            self.refuse(several, "got {}, only for one class a node", "distances")

    def _prepared(self, screen: Screen) -> tuple[Benchmark, list[SearchResult], Path]:
        """Benchmark, the search's log and the folder, after all that can be refused."""
        from graphtheory.lab.bench.benchmark import Benchmark, FinishedRuns

        images = self.on_images(self.models, "--models")
        self._refuse(images)

        def keep(config: Any, result: Any, seed: int, folder: Path) -> None:
            write_image_run(task.images, config, result, seed, folder, screen.command)

        with show.usage_errors(model="--models"):
            task: Any = self.bench_task(images)
            task.kept, task.trainer = not self.no_kept, self.trainer()
            self._refuse_distances(task)
            models = self.known_models(self.models, task)
            with screen.working(f"reading {task.name}"):
                assert task.settings() and task.num_nodes != 0 and task.measure  # files are read
                for model in models:  # default options depend on the features of a graph
                    task.config(model)
            log = [] if images else self._tried(task)
            out = self.out or Path(f"runs/bench-{task.name}{'-images' if images else ''}")
            seeds = self.seeds or (IMAGE_SEEDS if images else SEEDS)
            bench = Benchmark(
                task, models, seeds, self.epochs, self.patience, options=read_options(self.set),
                kept=keep, threads=self.threads,
            )  # fmt: skip
            if by_hand := bench.set_by_hand:
                screen.note(f"Set by hand: {by_hand}.")
            out.mkdir(parents=True, exist_ok=True)
        if (length := self.length()) is not None:
            from graphtheory.lab.bench.search import choose  # which imports Optuna

            place = out / "search.log"
            bench, searched = choose(bench, length, place, self.searching(screen, place))
            log += searched
        if default := bench.not_tuned():
            screen.note(
                f"{joined(default, 'uses', 'use')} default hyperparameters. Add --budget 16 to "
                "tune them on validation data."
            )
        with show.usage_errors():
            if not self.resume:
                folders = [f"{m}-{s}" for m in models for s in range(bench.seeds) if images]
                for earlier in ("runs.jsonl", *folders):
                    show.set_aside(screen, out / earlier)
            bench = replace(bench, record=FinishedRuns(out / "runs.jsonl"))
            if known := bench.count_known():
                screen.note(f"{known} of {bench.total} runs are known from earlier.")
        return bench, log, out

    def _tried(self, task: BenchTask) -> list[SearchResult]:
        """What `tune` has tried on the same data, for the report."""
        log = self.search_log or Path(f"runs/tune-{task.name}/search.log")
        if not log.exists() and not log.with_suffix(".jsonl").exists():
            return []
        from graphtheory.lab.bench.search import read_log  # which imports Optuna

        return read_log(log)

    def _distances(self, screen: Screen, task: BenchTask, out: Path) -> list[dict[str, Any]]:
        """Rows of the distance-z models; those of an earlier run of the same study are taken."""
        from graphtheory.lab.bench.benchmark import SMALL

        if self.data is not None or task.reads != NODES:
            return []
        info, farthest = describe(task.name), self.distances
        if farthest is None:
            fits = (task.num_nodes or 0) <= SMALL and info.kind == "multiclass"
            farthest = 3 if fits and self.models == type(self).models else 0
        if farthest == 0 or task.split != info.default_split:
            return []
        kept = out / "distances.jsonl"
        if not self.resume:
            show.set_aside(screen, kept)
        with show.usage_errors(), screen.steps("one distance alone, run") as steps:
            return paper("core_neighborhood.figures_distance.distance_rows")(
                task.name, show.data_root(self.root), farthest, epochs=self.epochs, progress=steps,
                kept=kept,
            )  # fmt: skip


@dataclass(frozen=True)
class Tune(opt.OnData):
    """Options of `graphtheory tune`, which searches on validation scores."""

    models: opt.Names = ("gt", "gt-plain", "gat", "gcn", "mlp")
    budget: opt.Length = "8"
    out: opt.Folder = None
    keep: bool = False

    def check(self) -> None:
        with show.usage_errors():
            Budget.of(self.budget)
        super().check()

    def run(self, screen: Screen) -> None:
        from graphtheory.lab.bench.search import best, search
        from graphtheory.lab.bench.task import keep, user_file

        own = ":" in "".join(self.models)
        self.refuse(own, "got {}, expected ours; `bench` takes yours", "models")
        if self.on_images(self.models, "--models"):
            raise RefusedError(f"--dataset: {self.dataset} holds images, whose recipe is fixed")
        with show.usage_errors(model="--models"):
            task = self.bench_task()
            models = self.known_models(self.models, task)
            with screen.working(f"reading {task.name}"):
                assert task.num_nodes and task.measure  # the files are read
            out = self.out or Path(f"runs/tune-{task.name}")
            out.mkdir(parents=True, exist_ok=True)
        where = out / "search.log"
        with self.searching(screen, where) as steps:
            how: dict[str, Any] = {"threads": self.threads, "progress": steps}
            log = search(task, models, Budget.of(self.budget), log=where, **how)
        chosen = best(log, task.measure)
        screen.table(report.search_table(log, task.measure))
        with show.usage_errors(ValueError):
            for file in (out / "tuned.json", *([user_file()] if self.keep else [])):
                keep(chosen, file)
        options = {model: found.config.as_dict() for model, found in chosen.items()}
        tried = [found.as_dict() for found in log]
        screen.result({"folder": out, "best": options, "candidates": tried})
        screen.say(f"Written to {out}: search.log, tuned.json.")
        if self.keep:
            screen.say(f"Kept for `train` and `bench` in {user_file()}.")


@dataclass(frozen=True)
class Recipes(Command):
    """Options of `graphtheory recipes`, which trains nothing."""

    source: opt.Name = None
    out: opt.Folder = None

    def run(self, screen: Screen) -> None:
        from graphtheory.lab.bench.recipes import COLUMNS, RECIPES, verdicts

        sources = tuple(dict.fromkeys(name.split("/")[0] for name in RECIPES))
        if self.source is not None:
            show.known("--source", self.source, sources)
        every = verdicts(self.out or RUNS)
        for source in sources if self.source is None else (self.source,):
            found = [v for v in every if v.recipe.name.startswith(f"{source}/")]
            title = f"{found[0].recipe.paper} ({found[0].recipe.code})"
            screen.table(Table(title, COLUMNS, [v.cells() for v in found]))
        screen.result([_plain(v) for v in every])


def _plain(found: Verdict) -> dict[str, Any]:
    judged = {name: getattr(found, name) for name in ("difference", "interval", "reproduced")}
    return asdict(found.recipe) | judged | {"test": list(found.runs)}
