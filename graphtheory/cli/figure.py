"""What an entry of `graphtheory reproduce` is: the options it takes, its study and its report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphtheory.cli.show import RefusedError

if TYPE_CHECKING:
    from graphtheory.papers.outcome import StudyReport
    from graphtheory.papers.study import Study


def find_images(name: str, root: Path | None) -> object:
    """For `Figure.find` of figures about images."""
    from graphtheory.data import image_sets

    return image_sets.load(name, root)


@dataclass(frozen=True)
class Asked:
    """What the options say, once they are checked.

    Attributes:
        dataset: Name of a graph; empty of a figure that draws its own data.
        root: Folder with the raw files.
        seeds: How many; None for the study's own number.
        first: The first seed of a figure that draws its own data, else 0.
        quick: One seed and few epochs.
    """

    dataset: str = ""
    root: Path | None = None
    seeds: int | None = None
    first: int = 0
    quick: bool = False

    def sized(self, made: Any, quick: Callable[[Any], Any]) -> Any:
        """A study with as many seeds as are asked for, or what `quick` makes of it."""
        return quick(made) if self.quick else replace(made, seeds=self.seeds or made.seeds)


@dataclass(frozen=True)
class Figure:
    """One figure or table of a paper.

    Attributes:
        name: Its ID.
        summary: What it shows, a line of `--list`.
        study: Makes its study from the options. Imports within, so that help is fast.
        report: Its table, rows, verdict and picture, from the study and the study's rows.
        default: The data set where none is named; None of a figure that draws its own data.
        only: The data sets that it is made for; empty for every graph.
        random: Whether it depends on seeds.
        find: Raises where the data set, a name and a root, cannot be loaded; None loads a graph.
    """

    name: str
    summary: str
    study: Callable[[Asked], Study]
    report: Callable[[Any, list[dict[str, Any]]], StudyReport]
    default: str | None = None
    only: tuple[str, ...] = ()
    random: bool = True
    find: Callable[[str, Path | None], object] | None = None

    @property
    def data(self) -> str:
        """What data it needs, in words."""
        if self.default is None:
            return "draws its own"
        return ", ".join(self.only) or f"any graph, else {self.default}"

    def ask(
        self, dataset: str | None, root: Path | None, seeds: int | None, first: int, quick: bool
    ) -> Asked:
        """The options of this figure.

        Raises:
            RefusedError: One that it has no use for.
        """
        if seeds is not None and not self.random:
            raise RefusedError(f"--seeds: got {seeds}, but {self.name} draws nothing")
        if self.default is None:
            if dataset is not None:
                raise RefusedError(f"--dataset: got {dataset}, but {self.name} draws its data")
            return Asked("", None, seeds, first, quick)
        if first:
            raise RefusedError(f"--seed: got {first}, but {self.name} takes splits from 0 on")
        return Asked(self._known(dataset or self.default), root, seeds, 0, quick)

    def _known(self, dataset: str) -> str:
        from graphtheory.data.catalogue import key

        if self.only and key(dataset) not in map(key, self.only):
            expected = ", ".join(self.only)
            raise RefusedError(f"--dataset: {self.name} has no {dataset}, expected {expected}")
        return dataset
