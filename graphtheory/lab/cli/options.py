"""Kinds of options of commands, and the options of those that work on data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.prompt import Confirm
from tyro.constructors import PrimitiveConstructorSpec

from graphtheory.lab import train
from graphtheory.lab.cli import show
from graphtheory.lab.cli.show import Command, RefusedError, Screen
from graphtheory.lab.datasets import catalogue
from graphtheory.lab.progress import Steps

if TYPE_CHECKING:
    from graphtheory.lab.bench.task import BenchTask


def _unset(metavar: str | None = None) -> Any:
    """An option that may be left out: the help says what then, not "(default: None)"."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


def _word(metavar: str, read: Callable[[str], Any], kind: type, write: Any = str) -> Any:
    """An option of one word, which `read` makes a value of that kind of."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: value is None or isinstance(value, kind),
        str_from_instance=lambda value: [write(value)],
    )


def _separated(word: str) -> tuple[str, ...]:
    return tuple(filter(None, word.split(",")))


def _number(kind: type, expected: str, word: str) -> Any:
    try:
        return kind(word)
    except ValueError:
        raise ValueError(f"got {word!r}, expected {expected}") from None


_WHOLE = _word("INT", partial(_number, int, "a whole number"), int)
_REAL = _word("FLOAT", partial(_number, float, "a number"), float)

Folder = Annotated[Path | None, _unset("DIR")]
File = Annotated[Path | None, _unset("FILE")]
Name = Annotated[str | None, _unset("NAME")]
Length = Annotated[str | None, _unset("NUMBER|TIME")]
Names = Annotated[tuple[str, ...], _word("NAME,NAME,...", _separated, tuple, ",".join)]
Settings = Annotated[Names, _unset("NAME=VALUE,...")]
Whole = Annotated[int, _WHOLE]
Count = Annotated[int | None, _WHOLE, _unset()]
Part = Annotated[float | None, _REAL, _unset()]

GRAPH, GRAPHS, IMAGES = "is a graph", "is a set of graphs", "holds images"


@dataclass(frozen=True)
class OnData(Command):
    """Base of a command that learns from a data set or from the user's own data."""

    needs = ("graphtheory.lab.report.benchmark",)

    dataset: str = "digits"
    data: File = None
    kind: Name = None
    metric: Name = None
    split: Name = None
    root: Folder = None
    download: bool = False
    threads: Count = None

    def check(self) -> None:
        show.at_least(1, threads=self.threads)
        show.file_there("--data", self.data)
        self.refuse(self.data is None, "got {}, expected none without --data", "kind", "metric")
        self.refuse(self.data, "got {}, expected none with --data", "download")
        root = show.data_root(self.root)
        if self.data is None:
            kinds(self.dataset, root)

    def fetch(self, screen: Screen) -> None:
        if self.data is None:
            fetch_missing(screen, self.dataset, show.data_root(self.root), self.download)

    def bench_task(self, images: bool = False) -> BenchTask:
        """Open the data to learn from; ValueError, TypeError or OSError say what is wrong."""
        from graphtheory.lab.bench.benchmark import bench_task, named_task
        from graphtheory.lab.bench.image_task import ImageBenchTask

        named = (self.dataset, self.split, show.data_root(self.root))
        if images:
            return ImageBenchTask(*named, getattr(self, "image_size", None))
        if self.data is None:
            return named_task(*named)
        try:
            split = self.split and [float(part) for part in self.split.split(",")]
        except ValueError:
            own = "expected three fractions such as 0.8,0.1,0.1 with --data"
            raise RefusedError(f"--split: got {self.split}, {own}") from None
        return bench_task(self.data, kind=self.kind, metric=self.metric, split=split)

    def on_images(self, models: tuple[str, ...], option: str) -> bool:
        """Whether these networks, which `option` named, read images; they have to fit the data."""
        from graphtheory.lab.bench.graph_task import GraphBenchTask
        from graphtheory.lab.zoo import image_models, node_models

        if self.data is not None:
            return False
        graphs, images = GraphBenchTask.models, image_models.NAMES
        networks = {GRAPH: node_models.NAMES, GRAPHS: graphs, IMAGES: images}
        found = kinds(self.dataset, show.data_root(self.root))  # of two for "digits"
        if models == getattr(type(self), "models", None):
            return found == (IMAGES,)
        kind = found[-1] if set(models) <= set(networks[found[-1]]) else found[0]
        every = tuple(dict.fromkeys(sum(networks.values(), ())))
        for model in models:
            if ":" in model or model in networks[kind]:  # FILE.py:NAME is the user's own
                continue
            wrong = f"{option}: {show.known(option, model, every)} does not fit"
            fitting = ", ".join(networks[kind])
            raise RefusedError(f"{wrong}, {self.dataset} {kind}; expected some of {fitting}")
        return kind == IMAGES

    def known_models(self, models: tuple[str, ...], task: BenchTask) -> tuple[str, ...]:
        """The models asked for, each once, which have to be known; by default those that fit."""
        if not models:
            raise RefusedError("--models: no name, expected one or more separated by commas")
        by_default = models == getattr(type(self), "models", None)
        return task.take_models(tuple(dict.fromkeys(task.compared if by_default else models)))

    @contextmanager
    def searching(self, screen: Screen, log: Path) -> Iterator[Steps]:
        """Show the candidates of a search, and on a stop say where they are."""
        from graphtheory.lab.bench.search import read_log
        from graphtheory.lab.train.score import UndefinedScoreError

        with show.usage_errors():  # a damaged line is refused before anything is tried
            if known := len(read_log(log)):
                screen.note(f"{known} candidates are known from {log}.")
        where = f"\nThe candidates so far are in {log}; the same command continues."
        with (
            show.usage_errors(UndefinedScoreError),
            show.on_interrupt(lambda: screen.note(where)),
            screen.steps("candidate") as steps,
        ):
            yield steps


@dataclass(frozen=True)
class OnTrainer(OnData):
    """Base of a command that trains by Lightning's `Trainer`."""

    device: Name = None
    precision: Name = None
    accumulate: Count = None

    def trainer(self, **more: Any) -> train.TrainerOptions:
        """The options of Lightning's `Trainer`, with `more` where they are not None."""
        own = {"device": self.device, "precision": self.precision, "accumulate": self.accumulate}
        with show.usage_errors():
            return train.TrainerOptions(**{n: v for n, v in (own | more).items() if v is not None})


def fetch_missing(
    screen: Screen, dataset: str, root: Path | None, asked: bool, option: str = "--dataset"
) -> None:
    """Download the raw files that are missing, if that is asked for or agreed to on a terminal."""
    from graphtheory.lab.datasets import graphs
    from graphtheory.lab.datasets.files import folder_of

    if IMAGES in (found := kinds(dataset, root, option)):
        if asked and len(found) == 1:
            raise RefusedError(f"--download: no class of PyG or ogb fetches images of {dataset}")
        return
    info = catalogue.describe(dataset, root)
    if info.embedded or folder_of(info, root) is not None:
        return
    if asked and root is None:
        raise RefusedError(f"--root: none given, expected the folder to put {info.name} into")
    terminal = sys.stdin.isatty() and screen.err.is_terminal and screen.progress
    if not asked and not (terminal and root is not None and info.fetched_by):
        return
    screen.note(f"{info.name} is not in {root}; its files come {info.how}.")
    if asked or Confirm.ask("Download them now?", console=screen.err, default=False):
        with show.usage_errors(), screen.working(f"downloading {info.name}"):
            graphs.download(info.name, root)


def kinds(dataset: str, root: Path | None = None, option: str = "--dataset") -> tuple[str, ...]:
    """List the kinds of data of that name: a graph or a set of graphs first, then images."""
    images = catalogue.key(dataset) in map(catalogue.key, catalogue.names("image"))
    try:
        task = catalogue.describe(dataset, root).task
    except ValueError:
        if not images and not Path(dataset).is_dir():
            with show.usage_errors(name=option):
                catalogue.lookup(dataset, catalogue.EVERY)
        return (IMAGES,)
    return (GRAPHS if task == "graph" else GRAPH, *[IMAGES] * images)
