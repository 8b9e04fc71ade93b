"""Kinds of options of commands, and the options of those that work on data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from graphtheory.lab.cli.fitting import compared, fitting, kinds
from graphtheory.lab.cli.show import (
    Command,
    RefusedError,
    Screen,
    at_least,
    data_root,
    file_there,
    on_interrupt,
    threads,
    usage_errors,
)

_UNSET = tyro.conf.arg(help_behavior_hint="")
"""An option that may be left out: the help says what then, not "(default: None)"."""


def _optional(metavar: str) -> Any:
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


Folder = Annotated[Path | None, _optional("DIR")]
File = Annotated[Path | None, _optional("FILE")]
Name = Annotated[str | None, _optional("NAME")]


def _separated(metavar: str) -> Any:
    """Read words that are separated by commas."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: tuple(filter(None, words[0].split(","))),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [",".join(value)],
    )


Names = Annotated[tuple[str, ...], _separated("NAME,NAME,...")]


def _number(kind: type, metavar: str, expected: str) -> PrimitiveConstructorSpec[Any]:
    """A number; a word that is none is refused in words."""

    def read(words: list[str]) -> Any:
        try:
            return kind(words[0])
        except ValueError:
            raise ValueError(f"got {words[0]!r}, expected {expected}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=read,
        is_instance=lambda value: value is None or isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


_WHOLE = _number(int, "INT", "a whole number")
Whole = Annotated[int, _WHOLE]
Count = Annotated[int | None, _WHOLE, _UNSET]
Part = Annotated[float | None, _number(float, "FLOAT", "a number"), _UNSET]
Settings = Annotated[tuple[str, ...], _separated("NAME=VALUE,..."), _UNSET]


if TYPE_CHECKING:
    from graphtheory.lab.bench.search import Search, SearchResult
    from graphtheory.lab.bench.task import BenchTask


@dataclass(frozen=True)
class OnData(Command):
    """Base of a command that learns from a data set or from the user's own data."""

    needs = ("graphtheory.lab.report",)

    dataset: str = "digits"
    """Name of a graph, a set of graphs, or an image set (not for `tune`); `graphtheory datasets`
    lists them. Or a folder of images, in train/CLASS/ and test/CLASS/, or in CLASS/ alone."""
    data: File = None
    """Your own data instead of a named set: what torch.save(data, FILE) wrote of one PyG Data (a
    class for each node) or of a list of Data (a class, labels or values for each graph)."""
    kind: Name = None
    """Of your own graphs: multiclass, multilabel or regression; without it what y says, in which
    whole numbers are classes."""
    metric: Name = None
    """Score of your own data: of classes accuracy, f1 or rocauc, of labels rocauc or ap, of values
    rmse or mae; without it the first. Of the nodes of one graph accuracy or rocauc."""
    split: Name = None
    """Kind of split; without it the data set's own. `graphtheory datasets` lists them."""
    root: Folder = None
    """Folder with the raw files; without it that of $GRAPHTHEORY_DATA. Not for embedded sets."""
    threads: Count = None
    """Number of threads. Default: 1 for graphs of up to 5,000 nodes, where more are slower;
    otherwise one per core."""

    def check(self) -> None:
        at_least(1, threads=self.threads)
        file_there("--data", self.data)
        for option, value in (("--kind", self.kind), ("--metric", self.metric)):
            if value is not None and self.data is None:
                raise RefusedError(f"{option}: got {value}, expected none without --data")
        data_root(self.root)

    def check_names(self) -> None:
        if self.data is None:
            kinds(self.dataset, data_root(self.root))

    def bench_task(self, root: Path | None, images: bool = False) -> BenchTask:
        """The data that is learned from.

        Raises:
            RefusedError: A split beside a file.
            ValueError, TypeError, OSError: What is wrong with the name, the file or its graphs.
        """
        from graphtheory.lab.bench.image_task import ImageBenchTask
        from graphtheory.lab.bench.tasks import bench_task, named_task
        from graphtheory.lab.datasets.own_graphs import read_graph_file

        if images:
            size = getattr(self, "image_size", None)
            return ImageBenchTask(self.dataset, self.split, root, size)
        if self.data is None:
            return named_task(self.dataset, self.split, root)
        if self.split is not None:
            raise RefusedError(f"--split: got {self.split}, expected none with --data")
        own = read_graph_file(self.data)
        return bench_task(own, task=self.kind, metric=self.metric, name=self.data.stem)

    def models_and_kind(
        self, models: tuple[str, ...], root: Path | None
    ) -> tuple[tuple[str, ...], str]:
        """The models asked for or, of a named set, those that fit it, and its kind of data."""
        if self.data is None:
            models = compared(self.dataset, models, _default(self), root)
        if not models:
            raise RefusedError("--models: no name, expected one or more separated by commas")
        named = self.data is None
        return models, fitting("--models", self.dataset, models, root) if named else ""

    def own_models(self, models: tuple[str, ...], task: BenchTask) -> tuple[str, ...]:
        """The models asked for or, of the user's own data, those that fit it."""
        default = self.data is not None and models == _default(self)
        return task.compared if default else models

    def search(self, screen: Screen, study: Search, task: BenchTask) -> list[SearchResult]:
        """Try the candidates of a search, and on a stop say where they are."""
        from graphtheory.lab.train.score import UndefinedScoreError

        def stopped() -> None:
            screen.note(f"\nWhat was tried is in {study.log}; the same command goes on.")

        with (
            usage_errors(UndefinedScoreError), on_interrupt(stopped),
            threads(self.threads, task.num_nodes), screen.steps("candidate") as steps,
        ):  # fmt: skip
            return study.run(steps)


def _default(command: Any) -> tuple[str, ...]:
    return type(command).models
