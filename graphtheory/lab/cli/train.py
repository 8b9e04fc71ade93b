"""`graphtheory train` on graphs, sets of graphs and images."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console

from graphtheory import nn
from graphtheory.disk import replace_file
from graphtheory.lab import plot, report, train
from graphtheory.lab.bench.config import describe_options, read_options, with_options
from graphtheory.lab.bench.rows import Environment
from graphtheory.lab.by_name import paper
from graphtheory.lab.cli import show
from graphtheory.lab.cli.options import Count, File, Folder, Name, Names, OnTrainer, Settings, Whole
from graphtheory.lab.cli.show import RefusedError, Screen

if TYPE_CHECKING:
    from graphtheory.lab.bench.image_task import ImageRunConfig, ImageRunResult
    from graphtheory.lab.datasets.image_sets import ImageSet

EXPLORER = "explorer.html"
_LOGGERS = {"csv": "CSVLogger", "tensorboard": "TensorBoardLogger", "wandb": "WandbLogger"}


@dataclass(frozen=True)
class Train(OnTrainer):
    """Options of `graphtheory train`, which trains one model on one split."""

    task: str = "classify"
    head: str = "transformer"
    image_size: Count = None
    model: str = "gt"
    seed: Whole = 0
    out: Folder = None
    resume: bool = False
    epochs: Count = None
    patience: Count = None
    set: Settings = ()
    explorer: bool = False
    predict: File = None
    devices: Count = None
    num_nodes: Count = None
    strategy: Name = None
    logger: Names = ()

    def check(self) -> None:
        contrastive = show.known("--task", self.task, ("classify", "contrastive")) == "contrastive"
        none = "got {}, expected none of a contrastive task"
        self.refuse(contrastive, none, "explorer", "data", "predict")
        self.refuse(not contrastive, "got {}, expected none without --task contrastive", "head")
        show.at_least(0, seed=self.seed)
        show.at_least(1, epochs=self.epochs, patience=self.patience)
        show.at_least(1, devices=self.devices, num_nodes=self.num_nodes)
        for name in self.logger:
            show.known("--logger", name, tuple(_LOGGERS))
        super().check()

    def trainer_options(self, out: Path) -> train.TrainerOptions:
        """The options of Lightning's `Trainer`; loggers write into the folder of the run."""
        from lightning.pytorch import loggers

        try:
            made = [getattr(loggers, _LOGGERS[name])(save_dir=out) for name in self.logger]
        except ModuleNotFoundError as error:
            raise RefusedError(f"--logger: {error}") from error
        more = {"devices": self.devices, "num_nodes": self.num_nodes, "strategy": self.strategy}
        return self.trainer(**more, loggers=made)

    @property
    def follows(self) -> bool:
        """Whether another process of the same training shows and writes what there is."""
        from lightning.pytorch.utilities import rank_zero_only

        rank = getattr(rank_zero_only, "rank", 0)
        return (self.devices or 1) * (self.num_nodes or 1) > 1 and rank > 0

    def run(self, screen: Screen) -> None:
        if self.follows:
            screen = replace(screen, out=Console(quiet=True), err=Console(quiet=True))
        if self.task == "contrastive":
            return paper("fusion.command.learn")(self, screen)
        images = self.on_images((self.model,), "--model")
        self.refuse(images, "only for networks on graphs, not on images", "explorer")
        self.refuse(images, "not for images, whose recipe fixes the number of epochs", "patience")
        self.refuse(not images, "got {}, only for a folder of images", "image_size")
        run = self._prepared(screen, images)
        if run.by_hand:
            screen.note(f"Set by hand: {run.by_hand}.")
        (self._on_images if images else self._on_graph)(screen, run)

    def _prepared(self, screen: Screen, images: bool) -> _Prepared:
        """The run, after all that can be refused."""
        wrong = (ValueError, TypeError, OSError, ImportError)
        with show.usage_errors(*wrong, model="--model", models="--model"):
            self.trainer()  # what is wrong with these options is said before anything is read
            bench = self.bench_task(images)
            (model,) = bench.take_models([self.model])
            with screen.working(f"reading {bench.name}"):
                config, epochs, patience = bench.config(model, self.epochs)
            options = bench.checked_options([config], read_options(self.set))
            config = with_options(config, options)
            with screen.working(f"reading {bench.name}"):
                task, data = bench.prepare(config, self.seed)
        name = f"{bench.name}-{model}-{bench.split}-{self.seed}"
        out = self.out or Path(f"runs/train-{name}")
        show.refuse_earlier(screen, out, self.resume)
        file = self.predict
        there = file is None or file.parent.is_dir() or file.parent.resolve() == out.resolve()
        if not there or (file and file.is_dir()):  # said before the training, not after it
            raise RefusedError(f"--predict: {file}, expected a file in a folder that is there")
        by_hand = describe_options(options, [config])
        length = epochs, self.patience or patience
        return _Prepared(bench, model, config, *length, by_hand, task, data, out)

    @contextmanager
    def training(
        self, screen: Screen, out: Path, num_nodes: int | None, *wrong: type[Exception]
    ) -> Iterator[dict[str, Any]]:
        """The training itself, for which it yields the options that `fit` has in any case."""
        from graphtheory.lab.bench.benchmark import thread_limit

        where = f"\nCheckpoint in {out}; --resume continues from it."
        options = {"out_dir": out, "resume": self.resume, "seed": self.seed}
        with (
            show.on_interrupt(lambda: screen.note(where)),
            show.usage_errors(train.CheckpointError, OSError, *wrong),
            thread_limit(self.threads, num_nodes),
        ):
            trainer = self.trainer_options(out)
            yield options | {"progress": screen.progress, "trainer": trainer}

    def _on_images(self, screen: Screen, run: _Prepared) -> None:
        from graphtheory.lab.bench.image_task import train_images

        images, config = run.bench.images, run.config
        name = f"{images.info.name} ({files_of(images)})"
        screen.note(f"{self.model} on {name}, split {run.bench.split}, seed {self.seed}")
        if images.listing:
            screen.note(f"classes: {', '.join(images.listing.classes)}")
        screen.note(f"{config.recipe}, batches of {config.batch_size}")
        with self.training(screen, run.out, None, ValueError) as options:
            result = train_images(run.task, run.data, images, **options)
            if self.follows:
                return
            with screen.working("pictures"):
                if self.predict is not None:
                    found = run.task.probabilities(run.task.logits(images.test().pixels)).cpu()
                    every = range(len(found))
                    names = {"image": images.listing.test_files() if images.listing else every}
                    parts = {"test": torch.arange(len(found))}
                    train.write_predictions(self.predict, run.task.kind, found, names, parts)
                kept, drawn = write_image_run(
                    images, config, result, self.seed, run.out, screen.command
                )
        screen.result({"folder": run.out, **kept})
        more = f", pictures/ ({', '.join(drawn)})" if drawn else ""
        _say(
            screen, run, result.fit, f"; data {files_of(images)}",
            f"{result.gmacs:.4f} GMACs an image, {result.parameters:,}",
            f"result.json, predictions.csv{more}",
        )  # fmt: skip

    def _on_graph(self, screen: Screen, run: _Prepared) -> None:
        from graphtheory.lab.bench.task import CONSTANT, constant_of
        from graphtheory.lab.report.benchmark import graph_run_page
        from graphtheory.lab.train.score import UndefinedScoreError

        bench, task = run.bench, run.task
        if self.explorer:
            _refuse_explorer(run.model, task, bench.num_nodes)
        title = f"{run.model} on {bench.name}, split {bench.split}, seed {self.seed}"
        shown = report.options(run.config)
        screen.note(f"{title}: {shown}")
        untuned, measure = not bench.is_tuned(run.model), bench.measure
        with self.training(screen, run.out, bench.num_nodes, UndefinedScoreError) as options:
            if run.model in bench.own_models:
                screen.say(f"{run.model} is your own network, which is not tuned.")
            elif untuned:
                screen.say(
                    f"All{' other' if run.by_hand else ''} hyperparameters are defaults, not "
                    "tuned. `graphtheory tune --keep` chooses them on validation data."
                )
            result = train.fit(task, run.data, epochs=run.epochs, patience=run.patience, **options)
        if self.follows:
            return
        if self.predict is not None:
            _predict(self.predict, task, run.data)
        parameters = sum(p.numel() for p in task.model.parameters())
        chosen_by = "defaults, not tuned" if untuned else "search"
        setting = [("options", f"{chosen_by}; {shown}"), ("parameters", f"{parameters:,}")]
        kept = {"command": screen.command, "options": run.config.as_dict()}
        kept |= ({"set_by_hand": run.by_hand} if run.by_hand else {}) | {"chosen_by": chosen_by}
        constant = constant_of(task, run.data)
        if constant is not None and bench.no_better_than_constant(result.test, constant):
            kept[CONSTANT] = constant
            flat = f"no better than a constant prediction, {measure.format(constant)}"
            setting.append(("(!) test score", flat))
            screen.say(f"(!) {run.model} was {flat}.")
        kept["result"] = asdict(result) | {"parameters": parameters}
        kept["environment"] = asdict(Environment.here())
        show.write_json(run.out / "result.json", kept)
        with screen.working("report.html"):
            page = graph_run_page(title, result, measure, setting, screen.command)
            page.save(run.out / "report.html")
        if self.explorer:
            _write_explorer(screen, task, run.data, run.out, title)
        screen.result({"folder": run.out, **kept})
        files = f"{EXPLORER}, result.json" if self.explorer else "result.json"
        _say(screen, run, result, "", f"{parameters:,}", files)


@dataclass(frozen=True)
class _Prepared:
    bench: Any  # BenchTask
    model: str
    config: Any
    epochs: int
    patience: int
    by_hand: str
    task: Any
    data: Any
    out: Path


def _say(
    screen: Screen, run: _Prepared, fit: train.FitResult, on: str, parameters: str, files: str
) -> None:
    """Print the scores, what they cost, and the files."""
    measure = run.bench.measure
    test = "none" if fit.test is None else measure.format(fit.test)
    named = "" if measure.share else f"{measure.title}: "
    scores = f"{named}test {test}, validation {measure.format(fit.val)}"
    screen.say(f"{scores}, best epoch {fit.best_epoch} of {fit.epochs}{on}")
    time = f"{fit.seconds_per_epoch:.3f} s/epoch, peak {fit.peak_mb:.0f} MB"
    screen.say(f"{parameters} parameters, {time}")
    checkpoints = "last.ckpt, previous.ckpt, best.ckpt, history.csv"
    screen.say(f"Written to {run.out}: report.html, {files}, {checkpoints}.")


def _predict(file: Path, task: Any, data: Any) -> None:
    """Write a row for each node of a graph, for each graph of a set, or for each of their nodes."""
    found, parts = train.predict(task, data), data.parts()
    names: dict[str, Any] = {
        "node" if isinstance(data, train.FullGraph) else "graph": range(len(found))
    }
    if isinstance(data, train.GraphSets) and len(found) != len(data.graphs):
        sizes = [graph.num_nodes for graph in data.graphs]
        rows = [(graph, node) for graph, size in enumerate(sizes) for node in range(size)]
        names = dict(zip(("graph", "node"), zip(*rows, strict=True), strict=True))
        number = torch.tensor(names["graph"])
        parts = {n: torch.isin(number, at).nonzero().flatten() for n, at in parts.items()}
    train.write_predictions(file, task.kind, found, names, parts)


def _refuse_explorer(model: str, task: train.Task, num_nodes: int) -> None:
    """Refuse, before anything is trained, what the page could not show."""
    from graphtheory.lab.report.page import MOST_NODES
    from graphtheory.nn.attention import attends

    if not any(map(attends, task.model.modules())):
        raise RefusedError(f"--explorer: {model} has no attention weights; gt and gat have some")
    if num_nodes > MOST_NODES:
        raise RefusedError(
            f"--explorer: the graph has {num_nodes:,} nodes, expected {MOST_NODES:,} or fewer"
        )


def _write_explorer(
    screen: Screen, task: train.Task, data: train.Source, out: Path, title: str
) -> None:
    """Write the page: of one graph all of it, of a set the first graphs of validation."""
    batch = data.evaluation_batch()
    inputs: tuple[object, ...]
    if isinstance(data, train.FullGraph):
        inputs, graph = (batch.x, batch.neighborhood), data.graph
        labels = batch.y if batch.y.dim() == 1 else None
    else:
        inputs, graph, labels = (batch.val[0],), None, None
    with screen.working("the page of attention"), show.usage_errors():
        maps = nn.attention_maps(task.model, *inputs)
        report.attention_explorer(maps, graph, labels=labels, title=title).save(out / EXPLORER)


def write_image_run(
    images: ImageSet, config: ImageRunConfig, result: ImageRunResult, seed: int, out: Path,
    command: str,
) -> tuple[dict[str, Any], list[str]]:  # fmt: skip
    """Write the files of a run; return the content of result.json and the pictures' names."""
    from graphtheory.lab.bench.image_task import pictures
    from graphtheory.lab.report.benchmark import image_run_page

    numbers = {"gmacs": result.gmacs, "parameters": result.parameters}
    kept = {
        "command": command, "data": files_of(images),
        "classes": images.listing and images.listing.classes, "options": config.as_dict(),
        "result": asdict(result.fit) | numbers, "environment": asdict(Environment.here()),
    }  # fmt: skip
    show.write_json(out / "result.json", kept)
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(result.rows(images))
    replace_file(out / "predictions.csv", table.getvalue().encode())
    drawn = pictures(result.model, images.test().pixels[0])
    title = f"{images.info.name} ({files_of(images)})"
    image_run_page(title, config, result, drawn, seed, command).save(out / "report.html")
    for name, figure in drawn.items():
        (out / "pictures").mkdir(exist_ok=True)
        plot.save(figure, out / "pictures" / f"{name}.png")
    return kept, list(drawn)


def files_of(images: ImageSet) -> str:
    """Name the files of a set: of CIFAR-10 there are several that cannot be compared."""
    info = images.info
    if info.embedded:
        return "scikit-learn's digits"
    if not info.files:
        counts = dict(info.counts)
        return (
            f"{info.folder}, {counts['images']:,} + {counts['test images']:,} images of "
            f"{counts['classes']} classes"
        )
    more = f" and {len(info.files) - 1} more" if len(info.files) > 1 else ""
    return f"{info.folder}/{info.files[0]}{more}"
