"""`graphtheory train` on graphs, sets of graphs and images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from graphtheory.lab.by_name import paper
from graphtheory.lab.cli.fitting import IMAGES, fitting
from graphtheory.lab.cli.options import Count, Folder, OnData, Settings, Whole
from graphtheory.lab.cli.show import (
    RefusedError,
    Screen,
    at_least,
    data_root,
    known,
    on_interrupt,
    refuse_earlier,
    threads,
    usage_errors,
    write_json,
)
from graphtheory.lab.cli.train_images import FinishedImageRun, files_of

if TYPE_CHECKING:
    from graphtheory.lab.train import Source, Task

EXPLORER = "explorer.html"


@dataclass(frozen=True)
class Train(OnData):
    """Train one model on one split, and report the test score of the best epoch on validation.

    Works on the nodes of one graph, on sets of graphs such as molecules, on images, and on your own
    PyG data (--data FILE). The options of a model for graphs are those that a search chose for this
    data set, else defaults; all models for images share the recipe of their data set. Every epoch
    leaves a checkpoint; after Ctrl-C, a crash or, on graphs, with more epochs, the same command
    with --resume goes on from there to the same parameters, bit by bit. Writes last.ckpt and the
    one before it, previous.ckpt, best.ckpt, history.csv, result.json and report.html; of images
    also predictions.csv, and pictures/ of what the model makes of the first test image. With
    --explorer, on graphs, also explorer.html: click a node and see whom it attends to, by layer
    and head.

    Try:  graphtheory train --dataset Cora --model gt --split public --seed 0 --root DATA
          graphtheory train --dataset karate --model gat --explorer
    """

    task: str = "classify"
    """classify, or contrastive: features without labels, of images or of the nodes of a graph.
    Then --model is a backbone (cnn, resnet18, resnet20, resnet50, vit; of a graph gcn), and there
    is no split, no validation on the way and no patience."""
    head: str = "transformer"
    """Of a contrastive task: transformer, mlp, linear, none; on a graph also dgi, deep graph
    infomax."""
    image_size: Count = None
    """Rows and columns that images of a folder are cut and resized to; without it they stay as they
    are, which have to be squares of one size."""
    model: str = "gt"
    """One graph: gt (graph transformer with distance encoding), gt-plain (without), gat, gcn, mlp,
    gat-res and gcn-res (with a linear term of the node itself in each layer), gt-gcn (gt with a
    graph convolution beside each attention layer), sage, sgformer, sampled-gcn (learns on draws of
    a sampler: --set sampler=fastgcn,share=0.1). Sets of graphs: gt, gt-plain, gine, gcn, gatv2,
    mlp. Images: vit, kvt (k-nearest attention), stvit (semantic tokens), swin, evit (keeps what is
    attended to), tome (merges tokens), random-drop, vig, cnn. On digits, which is both a graph and
    an image set, the model decides."""
    seed: Whole = 0
    """Number of the split and of everything random, 0 or more."""
    out: Folder = None
    """Where the run is kept; without it runs/train-DATASET-MODEL-SPLIT-SEED."""
    resume: bool = False
    """Go on from the checkpoint in that folder, from the start where it holds none."""
    epochs: Count = None
    """At most so many epochs; without it the data set's own number. Of images exactly so many, over
    which the step size goes down to 0."""
    patience: Count = None
    """Stop after so many epochs without a better validation score; without it the data set's own
    number. Not for images."""
    set: Settings = ()
    """Options of the models, instead of tuned or default ones, such as
    walk=16,readout=token,paths=5,resistance=true,laplacian=8,value_encoding=true,lr=0.001;
    of images lr=0.001,batch_size=64,flip=true,width=128,depth=8,k=20,tokens=25,keep=0.7; of a
    contrastive task temperature=0.5,lr=0.03,depth=3. An unknown name is answered with
    the list of all."""
    explorer: bool = False
    """Also write explorer.html, the graph with the attention of every layer and head behind each
    node; for gt, gt-plain, gat and other networks with attention, on at most 20,000 nodes."""

    def check(self) -> None:
        if known("--task", self.task, ("classify", "contrastive")) == "contrastive":
            if self.explorer:
                raise RefusedError("--explorer: got True, expected none of a contrastive task")
            if self.data is not None:
                raise RefusedError(f"--data: got {self.data}, expected none of a contrastive task")
        elif self.head != type(self).head:
            raise RefusedError(f"--head: got {self.head}, but only --task contrastive has one")
        at_least(0, seed=self.seed)
        at_least(1, epochs=self.epochs, patience=self.patience)
        super().check()

    def run(self, screen: Screen) -> None:
        if self.task == "contrastive":
            return paper("fusion.command.learn")(self, screen)
        root = data_root(self.root)
        named = self.data is None
        images = named and fitting("--model", self.dataset, (self.model,), root) == IMAGES
        if images and self.explorer:
            raise RefusedError("--explorer: only for networks on graphs, not on images")
        if images and self.patience is not None:
            raise RefusedError("--patience: not for images, whose recipe has a number of epochs")
        if not images and self.image_size is not None:
            raise RefusedError(f"--image-size: got {self.image_size}, only for a folder of images")
        run = self._prepared(screen, root, images)
        (self._on_images if images else self._on_graph)(screen, run)

    def _prepared(self, screen: Screen, root: Path | None, images: bool) -> _Prepared:
        """The run, after all that can be refused."""
        from graphtheory.lab.bench.config import describe_options, read_options, with_options

        with usage_errors(ValueError, TypeError, OSError, ImportError):
            bench = self.bench_task(root, images)
            bench.known_model(self.model)
            with screen.working(f"reading {bench.name}"):
                config, epochs, patience = bench.config(self.model, self.epochs)
            options = bench.checked_options([config], read_options(self.set))
            config = with_options(config, options)
            with screen.working(f"reading {bench.name}"):
                task, data = bench.prepare(config, self.seed)
        name = f"{bench.name}-{self.model}-{bench.split}-{self.seed}"
        out = self.out or Path(f"runs/train-{name}")
        refuse_earlier(screen, out, self.resume)
        by_hand = describe_options(options, [config])
        patience = self.patience or patience
        return _Prepared(bench, config, epochs, patience, by_hand, task, data, out)

    @contextmanager
    def _training(
        self, screen: Screen, run: _Prepared, *wrong: type[Exception]
    ) -> Iterator[dict[str, Any]]:
        """The training itself, for which it yields the options that `fit` has in any case."""
        from graphtheory.lab.train import CheckpointError

        if run.by_hand:
            screen.note(f"Set by hand: {run.by_hand}.")
        with (
            on_interrupt(
                lambda: screen.note(f"\nCheckpoint in {run.out}; --resume goes on from it.")
            ),
            usage_errors(CheckpointError, OSError, *wrong),
            threads(self.threads, run.bench.num_nodes),
        ):
            yield {"out_dir": run.out, "resume": self.resume, "seed": self.seed,
                   "progress": screen.progress}  # fmt: skip

    def _on_images(self, screen: Screen, run: _Prepared) -> None:
        from graphtheory.lab.bench.image_task import train_images

        images, config = run.bench.images, run.config
        name = f"{images.info.name} ({files_of(images)})"
        screen.note(f"{self.model} on {name}, split {run.bench.split}, seed {self.seed}")
        if images.listing:
            screen.note(f"classes: {', '.join(images.listing.classes)}")
        screen.note(f"{config.recipe}, batches of {config.batch_size}")
        with self._training(screen, run, ValueError) as options:
            result = train_images(run.task, run.data, images, **options)
            finished = FinishedImageRun(config, images, result, self.seed)
            with screen.working("pictures"):
                drawn = finished.write(run.out, screen.command)
        screen.result({"folder": run.out, **finished.kept(screen.command)})
        screen.say(finished.line())
        screen.say(
            f"{result.gmacs:.4f} GMACs an image, {result.parameters:,} parameters, "
            f"{result.fit.seconds_per_epoch:.2f} s/epoch, peak {result.fit.peak_mb:.0f} MB"
        )
        more = f", pictures/ ({', '.join(drawn)})" if drawn else ""
        screen.say(
            f"Written to {run.out}: report.html, last.ckpt, previous.ckpt, best.ckpt, history.csv, "
            f"result.json, predictions.csv{more}."
        )

    def _on_graph(self, screen: Screen, run: _Prepared) -> None:
        from graphtheory.lab.bench.config import constant_of
        from graphtheory.lab.bench.rows import Environment
        from graphtheory.lab.bench.task import CONSTANT
        from graphtheory.lab.report import options as shown
        from graphtheory.lab.report.run import graph_run_page
        from graphtheory.lab.train import fit
        from graphtheory.lab.train.score import UndefinedScoreError

        bench, task = run.bench, run.task
        if self.explorer:
            _refuse_explorer(self.model, task, bench.num_nodes)
        title = f"{self.model} on {bench.name}, split {bench.split}, seed {self.seed}"
        screen.note(f"{title}: {shown(run.config)}")
        untuned, measure = not bench.is_tuned(self.model), bench.measure
        with self._training(screen, run, UndefinedScoreError) as options:
            if untuned:
                screen.say(
                    f"{'Other options' if run.by_hand else 'Options'}: defaults, not tuned. "
                    "`graphtheory bench --budget 16` chooses them on validation first."
                )
            result = fit(task, run.data, epochs=run.epochs, patience=run.patience, **options)
        found = asdict(result)
        found["parameters"] = sum(p.numel() for p in task.model.parameters())
        chosen_by = "defaults, not tuned" if untuned else "search"
        setting = [("options", f"{chosen_by}; {shown(run.config)}"),
                   ("parameters", f"{found['parameters']:,}")]  # fmt: skip
        kept = {"command": screen.command, "options": run.config.as_dict()}
        kept |= ({"set_by_hand": run.by_hand} if run.by_hand else {}) | {"chosen_by": chosen_by}
        constant = constant_of(task, run.data)
        if constant is not None and bench.no_better_than_constant(result.test, constant):
            kept[CONSTANT] = constant
            flat = f"no better than a constant prediction, {measure.format(constant)}"
            setting.append(("(!) test score", flat))
            screen.say(f"(!) {self.model} was {flat}.")
        kept |= {"result": found, "environment": asdict(Environment.here())}
        write_json(run.out / "result.json", kept)
        with screen.working("report.html"):
            page = graph_run_page(title, result, measure, setting, screen.command)
            page.save(run.out / "report.html")
        if self.explorer:
            _write_explorer(screen, task, run.data, run.out, title)
        screen.result({"folder": run.out, **kept})
        test, val = (
            "none" if score is None else measure.format(score)
            for score in (result.test, result.val)
        )
        named = "" if measure.share else f"{measure.title}: "
        screen.say(
            f"{named}test {test}, validation {val}, best epoch {result.best_epoch} of "
            f"{result.epochs}"
        )
        screen.say(
            f"{found['parameters']:,} parameters, {result.seconds_per_epoch:.3f} s/epoch, peak "
            f"{result.peak_mb:.0f} MB"
        )
        more = f", {EXPLORER}" if self.explorer else ""
        screen.say(
            f"Written to {run.out}: report.html{more}, last.ckpt, previous.ckpt, best.ckpt, "
            "history.csv, result.json."
        )


class _Prepared(NamedTuple):
    """A run that is ready to be trained."""

    bench: Any  # BenchTask
    config: Any
    epochs: int
    patience: int
    by_hand: str
    task: Any
    data: Any
    out: Path


def _refuse_explorer(model: str, task: Task, num_nodes: int) -> None:
    """Refuse, before anything is trained, what the page could not show.

    Raises:
        RefusedError: A network without attention weights, or too many nodes.
    """
    from graphtheory.lab.report.explorer import MOST_NODES
    from graphtheory.nn.attention import attends

    if not any(map(attends, task.model.modules())):
        raise RefusedError(f"--explorer: {model} has no attention weights; gt and gat have some")
    if num_nodes > MOST_NODES:
        raise RefusedError(
            f"--explorer: the graph has {num_nodes:,} nodes, expected {MOST_NODES:,} or fewer"
        )


def _write_explorer(screen: Screen, task: Task, data: Source, out: Path, title: str) -> None:
    """Write the page: of one graph all of it, of a set the first graphs of validation."""
    from graphtheory.lab.report import attention_explorer
    from graphtheory.lab.train import FullGraph
    from graphtheory.nn import attention_maps

    batch = data.evaluation_batch()
    graph = labels = None
    inputs: tuple[object, ...]
    if isinstance(data, FullGraph):
        inputs, graph = (batch.x, batch.neighborhood), data.graph
        labels = batch.y if batch.y.dim() == 1 else None
    else:
        inputs = (batch.val[0],)
    with screen.working("the page of attention"), usage_errors():
        maps = attention_maps(task.model, *inputs)
        attention_explorer(maps, graph, labels=labels, title=title).save(out / EXPLORER)
