"""What a benchmark and a search run on: labeled data, and the networks that learn them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from graphtheory.lab.bench.config import (
    Options,
    RunConfig,
    RunResult,
    checked_options,
    train,
    with_options,
)
from graphtheory.lab.bench.finished import Settings
from graphtheory.lab.bench.measure import Measure
from graphtheory.lab.datasets.catalogue import key
from graphtheory.lab.datasets.graphs import Data
from graphtheory.lab.train import Source, Task
from graphtheory.lab.train.contract import digest

if TYPE_CHECKING:
    from graphtheory.lab.bench.spaces import Space

Root = str | PathLike[str] | None
CONSTANT = "score of a constant prediction"  # in the analysis of a run that is no better
_SHOWN = 12  # letters of a digest in a name


class BenchTask(ABC):
    """Labeled data with its splits, and the networks that can be trained on it.

    Args:
        name: Of the data, or of a set that is loaded by name.
        split: Kind of split; None is the data's own.
        root: Folder with the raw files.
    """

    models: ClassVar[tuple[str, ...]]  # names of the networks that fit
    compared: ClassVar[tuple[str, ...]]  # those that are compared where none are asked for
    reads: ClassVar[str]  # what the networks read, in words
    has_folders: ClassVar[bool] = False  # whether a benchmark's runs have folders with checkpoints
    kept = True  # whether options that earlier searches chose for this data are taken

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
        """The name itself, if a network of that name fits."""
        if model not in self.models:
            raise ValueError(f"model: got {model!r}, expected one of {', '.join(self.models)}")
        return model

    def is_tuned(self, model: str) -> bool:
        """Whether a search has chosen this model's options on this data."""
        return self._kept(model) is not None

    def _kept(self, model: str) -> tuple[dict[str, Any], int, int] | None:
        from graphtheory.lab.bench.spaces import kept_options  # no fixed recipe needs them

        return kept_options(self.key, model) if self.kept else None

    def config(self, model: str, epochs: int | None = None) -> tuple[Any, int, int]:
        """The options to run for a model, tuned or default, with epochs and patience."""
        kept = self._kept(self.known_model(model))
        if kept is None:
            space = self.space(model)
            config, longest, patience = space.default(model), space.epochs, space.patience
        else:
            values, longest, patience = kept
            config = self.config_kind(model).from_dict(values)
        return config, longest if epochs is None else epochs, patience

    def checked_options(self, configs: Sequence[Any], given: Mapping[str, Any]) -> Options:
        """Options set by hand as these configurations have them, if they can be used here."""
        found = checked_options(configs, given)
        for config in configs if found else ():
            self.check_buildable(with_options(config, found))
        return found

    def check_buildable(self, config: Any) -> None:
        """Raise ValueError if the network of a configuration cannot be built for this data."""
        return

    def config_kind(self, model: str) -> type[RunConfig]:
        """The kind of configuration that a model of searched options has."""
        raise NotImplementedError

    def space(self, model: str) -> Space:
        """What the search may choose from for a model."""
        raise ValueError(f"data: {self.name} has a fixed recipe, which no search chooses")

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
        self, config: Any, *, seed: int, epochs: int, patience: int, out_dir: Path | None = None
    ) -> RunResult:
        """Train once; split and everything random follow from `seed`."""
        return train(*self.prepare(config, seed), seed=seed, epochs=epochs, patience=patience)

    def no_better_than_constant(self, test: float | None, constant: float | None) -> bool:
        """Whether a test score is no better than that of a constant prediction."""
        if test is None or constant is None:
            return False
        return not self.measure.gain(test, constant) > 0

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
