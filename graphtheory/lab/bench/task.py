"""What a benchmark needs of a task, what a run gives, and the options that searches have kept."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from graphtheory.disk import replace_file
from graphtheory.lab.bench.config import Axes, RunConfig, checked_options, with_options
from graphtheory.lab.bench.finished import Settings
from graphtheory.lab.bench.own_model import Adapted, OwnModel, read_models
from graphtheory.lab.bench.rows import Measure
from graphtheory.lab.datasets.catalogue import Root as Root
from graphtheory.lab.datasets.catalogue import key
from graphtheory.lab.datasets.files import cache_folder
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.train import FitResult, GraphSets, Source, Task, TrainerOptions, fit
from graphtheory.lab.train.contract import digest
from graphtheory.lab.train.watch import Listener
from graphtheory.nn import SPDTransformerConv

if TYPE_CHECKING:
    from graphtheory.lab.bench.search import SearchResult


@dataclass(frozen=True)
class RunResult:
    """A trained network, its data and its scores."""

    fit: FitResult
    model: Any
    batches: Any
    parameters: int  # trainable ones
    constant: float | None = None  # test score of the best constant prediction, where there is one


def train(task: Any, batches: Any, **how: Any) -> RunResult:
    """Train a task on nodes or on graphs once by `fit`, which `how` is given to."""
    result = fit(task, batches, **{"progress": False, **how})
    constant = constant_of(task, batches)
    return RunResult(result, task.evaluated, batches, trainable(task.model), constant)


def trainable(model: torch.nn.Module) -> int:
    """Count the trainable parameters of a model."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def constant_of(task: Any, batches: Any) -> float | None:
    """Score the best constant prediction on the test part; None where there is none."""
    if isinstance(batches, GraphSets):
        parts = (batches.train.tolist(), batches.test.tolist())
        found = [[batches.graphs[i].y for i in part] for part in parts]
    else:
        masks = (batches.data.train_mask, batches.data.get("test_mask"))
        found = [[] if mask is None else [batches.data.y[mask]] for mask in masks]
    if not found[1]:
        return None
    train, test = map(torch.cat, found)
    return constant_score(task.score, task.kind, train, test, task.num_classes)


def constant_score(
    score: Callable[[Tensor, Tensor], float], kind: str, train: Tensor, test: Tensor, outputs: int
) -> float | None:
    """Score of the commonest class, or of the mean or median of a value; None where undefined."""
    if kind == "multiclass":
        test, constant = test[test >= 0], torch.zeros(outputs)
        constant[train[train >= 0].bincount(minlength=outputs).argmax()] = 1.0
    elif kind == "multilabel":
        constant = torch.zeros(outputs)
    else:  # the mean is best by squares, the median by absolute errors
        found = (train.nanmean(0), train.nanmedian(0).values)
        return min(score(constant.expand(len(test), -1), test) for constant in found)
    try:
        return score(constant.expand(len(test), -1), test)
    except ValueError:
        return None


TUNED = Path(__file__).with_name("tuned.json")  # options that searches have chosen
CONSTANT = "score of a constant prediction"  # in the analysis of a run that is no better
_SHOWN = 12  # letters of a digest in a name


class BenchTask(ABC):
    """Labeled data with its splits, and the networks that can be trained on it."""

    models: ClassVar[tuple[str, ...]]  # names of the networks that fit
    compared: ClassVar[tuple[str, ...]]  # those that are compared where none are asked for
    reads: ClassVar[str]  # what the networks read, in words
    has_folders: ClassVar[bool] = False  # whether a benchmark's runs have folders with checkpoints
    sha256 = ""  # of the user's own data
    trainer = TrainerOptions()  # how every run trains
    split_seed: int | None = None  # number of the split of every run; None is a run's own seed
    kept = True  # whether options that earlier searches chose for this data are taken

    def __init__(self, name: str, split: str | None = None, root: Root = None) -> None:
        self.name, self.split, self.root = name, split, root
        self.own_models: dict[str, OwnModel] = {}

    @property
    def key(self) -> str:
        """The name under which the search's winners are kept; own data are told by content."""
        return key(self.name) + (f"-{self.sha256[:_SHOWN]}" if self.sha256 else "")

    def settings(self) -> Settings:
        """The settings that a run on this data has to agree in."""
        found: Settings = {"dataset": self.key, "split": self.split}
        found |= {} if self.split_seed is None else {"split_seed": self.split_seed}
        return found | ({"sha256": self.sha256, "metric": self.measure.name} if self.sha256 else {})

    def split_of(self, seed: int) -> int:
        """The number of the split that a run has."""
        return seed if self.split_seed is None else self.split_seed

    def sign(self, graphs: Sequence[Data]) -> None:
        """Compute the digest of own graphs' tensors, in the order of their names."""
        values = (value for graph in graphs for _, value in sorted(graph.to_dict().items()))
        layouts = (torch.strided, torch.sparse_csr)
        self.sha256 = digest(v for v in values if isinstance(v, Tensor) and v.layout in layouts)

    def run_settings(self, config: Any, epochs: int, patience: int) -> Settings:
        """The settings that a run of this configuration has to agree in."""
        length = {"epochs": epochs, "patience": patience}
        return {**self.settings(), **self.trainer.describe(), **length, **config.as_dict()}

    def take_models(self, models: Iterable[Any] | Mapping[str, Any]) -> tuple[str, ...]:
        """The names of models, ours and the user's own, which this task then trains, too."""
        every = read_models(models)
        own = {name: model for name, model in every.items() if model is not None}
        for name in every:
            if name not in own:
                try:
                    self.known_model(name)
                except ValueError as error:
                    raise ValueError(f"models{str(error).removeprefix('model')}") from None
            elif name in self.models:
                raise ValueError(f"models: {name!r} is one of ours, give your own another name")
            elif self.has_folders:
                raise ValueError(f"models: {name} is your own, which are for graphs, not images")
        self.own_models = own
        for name in own:
            try:
                task, batches = self.prepare(self.config(name)[0], 0)
                found = task.evaluate(batches.evaluation_batch())
                if found and not math.isfinite(found.val_loss):
                    raise ValueError(f"its loss is {found.val_loss} before it is trained")
            except Exception as error:  # whatever a network of the user's raises on this data
                kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
                told = str(error).removeprefix("model: ").removeprefix(f"model {name}: ")
                raise ValueError(f"model {name}: {kind}{told}") from error
        return tuple(every)

    def known_model(self, model: str) -> str:
        """The name itself, if a network of that name fits."""
        if model not in (*self.models, *self.own_models):
            raise ValueError(f"model: got {model!r}, expected one of {', '.join(self.models)}")
        return model

    def is_tuned(self, model: str) -> bool:
        """Whether a search has chosen this model's options on this data."""
        return self.kept and kept_options(self.key, model) is not None

    def config(self, model: str, epochs: int | None = None) -> tuple[Any, int, int]:
        """The options to run for a model, tuned or default, with epochs and patience."""
        kept = kept_options(self.key, self.known_model(model)) if self.kept else None
        if kept is None:
            config, longest, patience = self.default(model)
        else:
            config, longest, patience = self.config_kind(model).from_dict(kept[0]), *kept[1:]
        return config, longest if epochs is None else epochs, patience

    def remark(self, models: Sequence[str]) -> str:
        """What a table has to say of the default options of these models on this data, if any."""
        return ""

    def checked_options(self, configs: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Options set by hand as these configurations have them, if they can be used here."""
        found = checked_options(configs, given)
        for config in configs if found else ():
            changed = with_options(config, found)
            if config.model not in self.own_models:
                self.check_buildable(changed)
        return found

    def check_buildable(self, config: Any) -> None:
        """Raise ValueError if the network of a configuration cannot be built for this data."""
        return

    def config_kind(self, model: str) -> type[RunConfig]:
        """The kind of configuration that a model of searched options has."""
        raise NotImplementedError

    def default(self, model: str) -> tuple[Any, int, int]:
        """The options for which no search has chosen any, with epochs and patience."""
        own = self.own_models.get(model)
        config, epochs, patience = self.default_of("mlp" if own else model)
        return own.config(config) if own else config, epochs, patience

    def default_of(self, model: str) -> tuple[Any, int, int]:
        """The same of one of our models."""
        raise ValueError(f"data: {self.name} has a fixed recipe, which no search chooses")

    def axes(self, config: Any) -> Axes:
        """What a search chooses for the model of these default options."""
        raise NotImplementedError

    def fits(self, config: Any) -> bool:
        """Whether a candidate of a search is small enough for these data."""
        return True

    @property
    @abstractmethod
    def measure(self) -> Measure:
        """How scores on this data are read."""

    @property
    @abstractmethod
    def num_nodes(self) -> int | None:
        """Nodes that are computed with at the same time; None of images."""

    @abstractmethod
    def prepare(self, config: Any, seed: int) -> tuple[Task, Source]:
        """The task of a configuration and its batches, for `train.fit`."""

    def run(
        self,
        config: Any,
        *,
        seed: int,
        epochs: int,
        patience: int,
        out_dir: Path | None = None,
        progress: bool | Listener = False,
    ) -> RunResult:
        """Train once; split and everything random follow from `seed`."""
        how: dict[str, Any] = {"epochs": epochs, "patience": patience, "trainer": self.trainer}
        return train(*self.prepare(config, seed), seed=seed, progress=progress, **how)

    def no_better_than_constant(self, test: float | None, constant: float | None) -> bool:
        """Whether a test score is no better than that of a constant prediction."""
        if test is None or constant is None:
            return False
        return not self.measure.gain(test, constant) > 0

    def analysis(self, result: RunResult) -> dict[str, Any]:
        """Whether a run learned nothing; of a graph transformer its attention and its bias."""
        flat = self.no_better_than_constant(result.fit.test, result.constant)
        out: dict[str, Any] = {CONSTANT: result.constant} if flat else {}
        ours = not isinstance(result.model, Adapted) and result.model is not None
        modules = result.model.modules() if ours else ()
        layers = [layer for layer in modules if isinstance(layer, SPDTransformerConv)]
        if layers:
            out["attention_mass"] = self.attention_mass(result)
        if tables := [layer.bucket_bias for layer in layers if layer.bucket_bias is not None]:
            out["bias"] = [t.table.detach()[: t.num_buckets].tolist() for t in tables]
        return out

    def attention_mass(self, result: RunResult) -> list[dict[str, float | int]]:
        """Share of attention by layer and distance, of a network that attends."""
        raise NotImplementedError


def user_file() -> Path:
    """The file of the user's own options, whose entries take the place of the shipped ones."""
    return cache_folder() / "tuned.json"


def kept_options(dataset: str, model: str) -> tuple[dict[str, Any], int, int] | None:
    """What a search has chosen, as plain values, with epochs and patience; None where none has."""
    name = key(dataset)
    for file in (user_file(), TUNED):
        if (kept := _read(file).get(name, {}).get(model)) is not None:
            return kept["trial"], kept["epochs"], kept["patience"]
    return None


def keep(chosen: "Mapping[str, SearchResult]", file: Path) -> None:
    """Write the best candidate of each model into `file` and leave its other entries."""
    kept = _read(file)
    for model, found in chosen.items():
        kept.setdefault(found.dataset, {})[model] = {
            "val": found.val, "parameters": found.parameters, "epochs": found.epochs,
            "patience": found.patience, "trial": found.config.as_dict(),
        }  # fmt: skip
    ordered = {d: dict(sorted(kept[d].items())) for d in sorted(kept)}
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, (json.dumps(ordered, indent=1) + "\n").encode())


def _read(file: Path) -> dict[str, dict[str, Any]]:
    try:
        return json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{file} is not a file of tuned options ({error}); delete it") from error
