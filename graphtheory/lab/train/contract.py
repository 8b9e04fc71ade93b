"""What `fit` asks of a task and of its data, whatever they are about."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from lightning import LightningDataModule, LightningModule
from torch import Tensor, nn

from graphtheory.patterns.draw import derive


class Evaluation(NamedTuple):
    """Loss and score on validation, score on the test part (None where it is not looked at)."""

    val_loss: float
    val: float
    test: float | None


class Batches:
    """A number of batches, `length`, that are made when they are asked for."""

    def __init__(self, length: int, make: Callable[[], Iterator[Any]]) -> None:
        self.length, self.make = length, make

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return self.make()


class Source(LightningDataModule, ABC):
    """Batches to train on, whose `count` says over how many labels the loss is the mean."""

    @abstractmethod
    def check_classes(self, num_classes: int) -> None:
        """Refuse labels that are outside 0..num_classes-1."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Tell what a resumed run must find unchanged."""

    @abstractmethod
    def train_batches(self, epoch: int) -> Iterator[Any]:
        """Draw the batches of one epoch; the same for the same epoch."""

    @abstractmethod
    def num_batches(self) -> int:
        """Count the batches of an epoch; some epochs may have fewer."""

    @abstractmethod
    def evaluation_batch(self) -> Any:
        """Make what `Task.evaluate` takes after every epoch."""

    def train_dataloader(self) -> Batches:
        def batches() -> Iterator[Any]:  # Lightning asks for an iterator before it knows the epoch
            yield from self.train_batches(self.trainer.current_epoch if self.trainer else 0)

        return Batches(self.num_batches(), batches)

    def val_dataloader(self) -> Batches:
        return Batches(1, lambda: iter([self.evaluation_batch()]))

    test_dataloader = val_dataloader


class Task(LightningModule, ABC):
    """A model, how it learns and how it is scored.

    Attributes:
        model: What is trained.
        num_classes: C; None of a task that learns without labels.
        metric: Name of the score.
        higher_is_better: Whether an epoch with a higher score is a better one; False of errors.
        options: How it learns, in the words that a resumed run has to repeat.
    """

    model: nn.Module
    num_classes: int | None = None
    metric: str
    higher_is_better: bool = True
    options: Any

    def source(self, data: Any) -> Source:
        """Make the batches that `fit` trains on from what it was given.

        Raises:
            TypeError: If this task cannot train on it.
        """
        if not isinstance(data, Source):
            kind = type(data).__name__
            raise TypeError(f"datamodule: got {kind}, expected the batches of this task")
        return data

    @abstractmethod
    def evaluate(self, batch: Any) -> Evaluation | None:
        """Compute loss and scores of a batch in evaluation mode; the mode before comes back.

        None of a task that learns without labels: no epoch of it is better than another.
        """

    def describe(self, epochs: int) -> dict[str, Any]:
        """Tell what a resumed run must find unchanged; `epochs` where the step size needs it."""
        return {
            "model": type(self.model).__name__,
            "parameters": shapes(self.state_dict()),
            "layers": lines(self.model),
            "metric": self.metric,
            "optimizer": str(self.options),
        }


def shapes(state: dict[str, Any]) -> dict[str, list[int]]:
    """List the shape of each tensor under its name."""
    return {name: list(tensor.shape) for name, tensor in state.items()}


def lines(module: nn.Module) -> dict[str, str]:
    """Print a module line by line, so that two can be compared."""
    return {f"line {i}": text for i, text in enumerate(str(module).splitlines(), start=1)}


def digest(tensors: Iterable[Tensor]) -> str:
    """Hash dtypes, shapes and values by SHA-256; of a sparse CSR matrix its three parts."""
    found = hashlib.sha256()
    for tensor in tensors:
        parts = [tensor]
        if tensor.layout == torch.sparse_csr:
            parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        for part in parts:
            found.update(f"{part.dtype}{tuple(part.shape)}".encode())
            found.update(part.detach().cpu().contiguous().numpy().data)
    return found.hexdigest()


def shuffled(positions: Tensor, *seeds: int) -> Tensor:
    """Put positions into an order that follows from the seeds."""
    generator = torch.Generator().manual_seed(derive(*seeds))
    return positions[torch.randperm(len(positions), generator=generator)]


def check_at_least(least: int, **values: int | None) -> None:
    """Refuse an argument below `least`; None is none."""
    for name, value in values.items():
        if value is not None and value < least:
            raise ValueError(f"{name}: got {value}, expected {least} or more")


def check_parts(what: str, count: int, train: Tensor, val: Tensor, test: Tensor) -> None:
    """Refuse parts of `count` samples that are empty (the test may be), overlap or do not exist."""
    if not len(train) or not len(val):
        raise ValueError(
            f"train, val: {len(train)} and {len(val)} {what}s, expected some of either"
        )
    chosen, times = torch.cat([train, val, test]).unique(return_counts=True)
    if int(chosen[0]) < 0 or int(chosen[-1]) >= count:
        raise ValueError(f"train, val: positions outside 0..{count - 1}, the {what}s there are")
    if int(times.max()) > 1:
        twice = int(chosen[times.argmax()])
        raise ValueError(f"train, val: {what} {twice} is in them twice, expected each once")
