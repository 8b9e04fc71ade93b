"""What `fit` asks of a task and of its data, whatever they are about."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from lightning import LightningDataModule, LightningModule
from torch import Tensor, nn


class Evaluation(NamedTuple):
    """Loss and score on validation, score on the test part (None where it is not looked at)."""

    val_loss: float
    val: float
    test: float | None


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

    @abstractmethod
    def evaluate(self, batch: Any) -> Evaluation | None:
        """Loss and scores of a batch in evaluation mode; the mode before comes back.

        None of a task that learns without labels: no epoch of it is better than another.
        """

    def describe(self, epochs: int) -> dict[str, Any]:
        """What a resumed run must find unchanged; `epochs` where the step size depends on it."""
        return {
            "model": type(self.model).__name__,
            "parameters": shapes(self.state_dict()),
            "layers": lines(self.model),
            "metric": self.metric,
            "optimizer": str(self.options),
        }


class Batches:
    """`length` batches, made when they are asked for."""

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
        """Refuse labels outside 0..num_classes-1."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What a resumed run must find unchanged."""

    @abstractmethod
    def evaluation_batch(self) -> Any:
        """What `Task.evaluate` takes after every epoch."""

    @property
    def epoch(self) -> int:
        """The trainer's, from 0; 0 without a trainer."""
        return 0 if self.trainer is None else self.trainer.current_epoch

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        """Lightning's hook."""
        return batch.to(device)


def shapes(state: dict[str, Any]) -> dict[str, list[int]]:
    """Name -> shape of each tensor."""
    return {name: list(tensor.shape) for name, tensor in state.items()}


def lines(module: nn.Module) -> dict[str, str]:
    """What a module prints, line by line, so that two can be compared."""
    return {f"line {i}": text for i, text in enumerate(str(module).splitlines(), start=1)}


def digest(tensors: Iterable[Tensor]) -> str:
    """SHA-256 of dtypes, shapes and values, hexadecimal; of a sparse CSR matrix its three parts."""
    found = hashlib.sha256()
    for tensor in tensors:
        parts = [tensor]
        if tensor.layout == torch.sparse_csr:
            parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        for part in parts:
            found.update(f"{part.dtype}{tuple(part.shape)}".encode())
            found.update(part.detach().cpu().contiguous().numpy().data)
    return found.hexdigest()
