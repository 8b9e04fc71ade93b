"""What a benchmark and a search run on: labeled data, and the networks that learn them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphtheory.lab.bench.config import RunResult
from graphtheory.lab.bench.finished import Settings
from graphtheory.lab.bench.measure import Measure
from graphtheory.lab.bench.options import Options, checked_options, with_options
from graphtheory.lab.bench.spaces import Space
from graphtheory.lab.bench.tuned import is_tuned
from graphtheory.lab.datasets.catalogue import key
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.train import Source, Task
from graphtheory.lab.train.contract import digest

Root = str | PathLike[str] | None
CONSTANT = "score of a constant prediction"  # in the analysis of a run that is no better
_SHOWN = 12  # letters of a digest in a name


class BenchTask(ABC):
    """Labeled data with its splits, and the networks that can be trained on it.

    Attributes:
        name: Of the data.
        split: Kind of split; None is the data's own.
        root: Folder with the raw files.
        models: Names of the networks that fit.
        compared: Those that are compared where none are asked for.
        reads: What the networks read, in words.
        has_folders: Whether each run of a benchmark has a folder with its checkpoint.
        kept: Whether options that earlier searches chose for this data are taken.
    """

    models: ClassVar[tuple[str, ...]]
    compared: ClassVar[tuple[str, ...]]
    reads: ClassVar[str]
    has_folders: ClassVar[bool] = False
    kept = True

    def __init__(self, name: str, split: str | None = None, root: Root = None) -> None:
        self.name, self.split, self.root = name, split, root

    @property
    def key(self) -> str:
        """The name under which the search's winners are kept."""
        return key(self.name)

    def settings(self) -> Settings:
        """The settings that a run on this data has to agree in."""
        return {"dataset": self.key, "split": self.split}

    def run_settings(self, config: Any, epochs: int, patience: int) -> Settings:
        """The settings that a run of this configuration has to agree in."""
        return {**self.settings(), "epochs": epochs, "patience": patience, **config.as_dict()}

    def known_model(self, model: str) -> str:
        """The name itself, if a network of that name fits.

        Raises:
            ValueError: If none does.
        """
        if model not in self.models:
            raise ValueError(f"model: got {model!r}, expected one of {', '.join(self.models)}")
        return model

    def is_tuned(self, model: str) -> bool:
        """Whether a search has chosen this model's options on this data."""
        return self.kept and is_tuned(self.key, model)

    def checked_options(self, configs: Sequence[Any], given: Mapping[str, Any]) -> Options:
        """Options set by hand as these configurations have them, if they can be used here.

        Raises:
            ValueError: A name that none of them has, or a value that cannot be used.
        """
        found = checked_options(configs, given)
        for config in configs if found else ():
            self.check_buildable(with_options(config, found))
        return found

    def check_buildable(self, config: Any) -> None:
        """Raise ValueError if the network of a configuration cannot be built for this data."""
        return

    def space(self, model: str) -> Space:
        """What the search may choose from for a model.

        Raises:
            ValueError: If the options of the data's models are not searched.
        """
        raise ValueError(f"data: {self.name} has a fixed recipe, which no search chooses")

    def constant(self, task: Any, batches: Any) -> float | None:
        """Test score of the best constant prediction; None where there is no test."""
        return None

    @property
    @abstractmethod
    def measure(self) -> Measure:
        """How scores on this data are read."""

    @property
    @abstractmethod
    def num_nodes(self) -> int | None:
        """Nodes that are computed with at the same time; None of images."""

    @abstractmethod
    def config(self, model: str, epochs: int | None = None) -> tuple[Any, int, int]:
        """The options to run for a model, tuned or default, with epochs and patience.

        Args:
            model: Its name.
            epochs: In place of the data's own number.
        """

    @abstractmethod
    def prepare(self, config: Any, seed: int) -> tuple[Task, Source]:
        """The task of a configuration and its batches, for `train.fit`."""

    @abstractmethod
    def run(
        self, config: Any, *, seed: int, epochs: int, patience: int, out_dir: Path | None = None
    ) -> RunResult:
        """Train once; split and everything random follow from `seed`."""

    def no_better_than_constant(self, test: float | None, constant: float | None) -> bool:
        """Whether a test score is no better than that of a constant prediction."""
        if test is None or constant is None:
            return False
        return not self.measure.better(test, constant)

    def analysis(self, result: RunResult) -> dict[str, Any]:
        """What is worth keeping of a run; whether it is no better than a constant prediction."""
        flat = self.no_better_than_constant(result.fit.test, result.constant)
        return {CONSTANT: result.constant} if flat else {}


class OwnData(BenchTask):
    """Mixin of tasks on the user's own graphs, which are told apart by their content."""

    sha256: str

    def sign(self, graphs: Sequence[Data]) -> None:
        """Compute the digest of the graphs' tensors, in the order of their names."""
        values = (value for graph in graphs for _, value in sorted(graph.to_dict().items()))
        layouts = (torch.strided, torch.sparse_csr)
        self.sha256 = digest(v for v in values if isinstance(v, Tensor) and v.layout in layouts)

    @property
    def key(self) -> str:
        return f"{super().key}-{self.sha256[:_SHOWN]}"

    def settings(self) -> Settings:
        return super().settings() | {"sha256": self.sha256, "metric": self.measure.name}
