"""Batches of samples without labels, of a tensor or of a `DataLoader` of torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from graphtheory.lab.train.contract import Source, digest
from graphtheory.patterns.draw import derive


class _WithoutLabels(Source):
    """Batches that no epoch is scored on."""

    def evaluation_batch(self) -> None:
        pass

    def check_classes(self, num_classes: int) -> None:
        raise ValueError(
            f"datamodule: samples without labels, expected labels in 0..{num_classes - 1}, or a "
            "task that learns without them"
        )


class Unlabeled(_WithoutLabels):
    """Samples in a new order each epoch, in batches of one size; an incomplete batch is left out.

    The order is a function of (seed, epoch).

    Args:
        samples: A tensor whose first axis counts the samples.
        batch_size: Samples of a batch; all of them where there are fewer.
        seed: Of the order, 0 or more.
        limit: At most so many batches an epoch; None is all.

    Raises:
        TypeError: Samples that are no tensor.
        ValueError: A number out of its range.

    Example:
        >>> data = Unlabeled(torch.arange(10), batch_size=4, seed=0)
        >>> [len(batch) for batch in data.train_batches(epoch=0)]
        [4, 4]
    """

    def __init__(
        self, samples: Tensor, batch_size: int, seed: int, limit: int | None = None
    ) -> None:
        super().__init__()
        if not isinstance(samples, Tensor):
            raise TypeError(
                f"samples: got {type(samples).__name__}, expected a tensor; "
                "data.pixels.as_pixels makes one of PIL images and of arrays"
            )
        if batch_size < 1 or seed < 0 or (limit is not None and limit < 1):
            raise ValueError(
                f"batch_size, seed, limit: got {batch_size}, {seed}, {limit}, expected 1, 0, 1 or "
                "more"
            )
        self.samples, self.seed = samples, seed
        self.batch_size = min(batch_size, len(samples))
        count = len(samples) // self.batch_size
        self.count = count if limit is None else min(limit, count)

    def train_batches(self, epoch: int) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(derive(self.seed, epoch))
        order = torch.randperm(len(self.samples), generator=generator)
        return (self.samples[chosen] for chosen in order.split(self.batch_size)[: self.count])

    def num_batches(self) -> int:
        return self.count

    def describe(self) -> dict[str, Any]:
        return {
            "shape": list(self.samples.shape), "sha256": digest([self.samples]),
            "batch": self.batch_size, "batches": self.count, "seed": self.seed,
        }  # fmt: skip


class Loaded(_WithoutLabels):
    """Batches of a `torch.utils.data.DataLoader`, whose labels are left out.

    A batch is a tensor of samples, or a tuple or list that begins with one. With
    `DataLoader(shuffle=True)` and no generator of its own the order of an epoch is a function of
    the seed of `fit` and of the epoch, so that a resumed run goes on bit by bit; with another order
    or random changes in its data set that is up to them.

    Args:
        loader: With a length, such as that of a data set with a length.

    Raises:
        TypeError: If it is no DataLoader or has no length; later, if a batch has no samples first.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__()
        if not isinstance(loader, DataLoader):
            raise TypeError(f"loader: got {type(loader).__name__}, expected a DataLoader")
        self.loader, self.count = loader, len(loader)
        self.batch_size = loader.batch_size

    def train_batches(self, epoch: int) -> Iterator[Tensor]:
        for batch in self.loader:
            samples = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
            if not isinstance(samples, Tensor):
                raise TypeError(
                    f"loader: a batch of {type(samples).__name__}, expected a tensor of samples, "
                    "or a tuple that begins with one"
                )
            yield samples

    def num_batches(self) -> int:
        return self.count

    def describe(self) -> dict[str, Any]:
        samples = len(self.loader.dataset)  # type: ignore[arg-type]
        return {"samples": samples, "batch": self.batch_size, "batches": self.count}
