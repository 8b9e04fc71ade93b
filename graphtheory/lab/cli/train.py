"""`graphtheory train`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphtheory.lab.by_name import paper
from graphtheory.lab.cli.explorer import NAME as EXPLORER
from graphtheory.lab.cli.explorer import refuse_explorer, write_explorer
from graphtheory.lab.cli.fitting import IMAGES, fitting
from graphtheory.lab.cli.on_data import OnData
from graphtheory.lab.cli.options import Count, Folder, Settings, Whole
from graphtheory.lab.cli.show import (
    RefusedError,
    Screen,
    at_least,
    data_root,
    known,
    refusing,
    threads,
    told_on_stop,
    write_json,
)
from graphtheory.lab.cli.train_images import refuse_earlier, train_on_images

if TYPE_CHECKING:
    from graphtheory.lab.bench.measure import Measure


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
        """The options alone."""
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
        """Train, print, write."""
        if self.task == "contrastive":
            return paper("fusion.command.learn")(self, screen)
        root = data_root(self.root)
        if self.data is None and (fitting("--model", self.dataset, (self.model,), root) == IMAGES):
            if self.explorer:
                raise RefusedError("--explorer: only for networks on graphs, not on images")
            train_on_images(screen, self)
        elif self.image_size is not None:
            raise RefusedError(f"--image-size: got {self.image_size}, only for a folder of images")
        else:
            self._on_graph(screen)

    def _on_graph(self, screen: Screen) -> None:
        from graphtheory.lab.bench.options import (
            read_options,
            told_options,
            with_options,
        )
        from graphtheory.lab.bench.problem import CONSTANT
        from graphtheory.lab.bench.rows import Environment
        from graphtheory.lab.report import options
        from graphtheory.lab.report.run import graph_run_page
        from graphtheory.lab.train import CheckpointError, fit
        from graphtheory.lab.train.score import UndefinedScoreError

        model, root = self.model, data_root(self.root)
        with refusing(ValueError, TypeError, OSError, ImportError):
            problem = self.problem(root)
            problem.known_model(model)
            with screen.working(f"reading {problem.name}"):
                trial, epochs, patience = problem.trial(model)
            chosen = problem.checked_options([trial], read_options(self.set))
            trial = with_options(trial, chosen)
            with screen.working(f"reading {problem.name}"):
                task, batches = problem.task(trial, self.seed)
                nodes, measure = problem.num_nodes, problem.measure
        name, split = problem.name, problem.split
        out = self.out or Path(f"runs/train-{name}-{model}-{split}-{self.seed}")
        refuse_earlier(screen, out, self.resume)
        if self.explorer:
            refuse_explorer(model, task, nodes)
        title = f"{model} on {name}, split {split}, seed {self.seed}"
        screen.note(f"{title}: {options(trial)}")
        untold, by_hand = not problem.is_tuned(model), told_options(chosen, [trial])
        if by_hand:
            screen.note(f"Set by hand: {by_hand}.")
        if untold:
            screen.say(
                f"{'Other options' if by_hand else 'Options'}: defaults, not tuned. `graphtheory "
                "bench --budget 16` chooses them on validation first."
            )
        with (
            told_on_stop(lambda: screen.note(f"\nCheckpoint in {out}; --resume goes on from it.")),
            refusing(CheckpointError, OSError, UndefinedScoreError),
            threads(self.threads, nodes),
        ):
            result = fit(
                task, batches, epochs=self.epochs or epochs, patience=self.patience or patience,
                out_dir=out, resume=self.resume, seed=self.seed, progress=screen.progress,
            )  # fmt: skip
        parameters = sum(p.numel() for p in task.model.parameters())
        found = asdict(result) | {"parameters": parameters}
        told: dict[str, Any] = {"set_by_hand": by_hand} if by_hand else {}
        told["chosen_by"] = "defaults, not tuned" if untold else "search"
        constant = problem.constant(task, batches)
        flat = problem.learned_nothing(result.test, constant)
        if flat:
            told[CONSTANT] = constant
        kept = {"command": screen.command, "options": trial.as_dict(), **told, "result": found}
        kept["environment"] = asdict(Environment.here())
        write_json(out / "result.json", kept)
        chosen_by = f"{told['chosen_by']}; {options(trial)}"
        setting = [("options", chosen_by), ("parameters", f"{parameters:,}")]
        if flat and constant is not None:
            nothing = (
                f"no better than one constant prediction, {measure.told(measure.shown(constant))}"
            )
            setting.append(("(!) learned nothing", nothing))
            screen.say(f"(!) Learned nothing: {nothing}.")
        with screen.working("report.html"):
            page = graph_run_page(title, result, measure, setting, screen.command)
            page.save(out / "report.html")
        if self.explorer:
            write_explorer(screen, task, batches, out, title)
        screen.result({"folder": out, **kept})
        self._report(screen, out, found, measure)

    def _report(self, screen: Screen, out: Path, found: dict[str, Any], measure: Measure) -> None:
        test, val = (
            "none" if score is None else measure.told(measure.shown(score))
            for score in (found["test"], found["val"])
        )
        named = "" if measure.share else f"{measure.title}: "
        screen.say(
            f"{named}test {test}, validation {val}, best epoch "
            f"{found['best_epoch']} of {found['epochs']}"
        )
        screen.say(
            f"{found['parameters']:,} parameters, {found['seconds_per_epoch']:.3f} s/epoch, peak "
            f"{found['peak_mb']:.0f} MB"
        )
        more = f", {EXPLORER}" if self.explorer else ""
        screen.say(
            f"Written to {out}: report.html{more}, last.ckpt, previous.ckpt, best.ckpt, "
            "history.csv, result.json."
        )
