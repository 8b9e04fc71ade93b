"""Images in one tensor as batches, the task of classifying them, and the recipe it learns by."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR

from graphtheory.lab.train.contract import (
    LabelTask,
    Pair,
    Source,
    check_at_least,
    check_parts,
    digest,
    refuse_any,
    shuffled,
)
from graphtheory.lab.train.image_recipe import Augmentation, Recipe, require_kornia
from graphtheory.lab.train.watch import borrowed_randomness, seed_all
from graphtheory.modes import evaluating

_ORDER = 5  # stream of randomness; 0 to 4 are those of graphs
_LEVELS, _CHUNK = 256, 500  # of a byte; images of one pass without gradients


@dataclass(frozen=True)
class ImageBatch:
    """Images uint8 [B, C, H, W] and their classes int64 [B]."""

    pixels: Tensor
    y: Tensor

    @property
    def count(self) -> int:
        """The number of images in the batch."""
        return len(self.y)

    def to(self, device: torch.device | str) -> ImageBatch:
        """Move the batch to `device`; nothing is copied where it is there already."""
        return ImageBatch(**move_data_to_device(vars(self), device))


@dataclass(eq=False, repr=False)
class ImageData(Source):
    """Train on batches of images, shuffled as a function of (seed, epoch), validate on others.

    Images that fill no whole batch wait for another epoch; if there is none, all images are one.

    Args:
        pixels: Every image, uint8 [N, C, H, W].
        y: Its class, int64 [N].
        train: Positions to train on, int64.
        val: Positions to validate with; none of `train`.
        name: Of the data, for the record.
        batch_size: Images of a batch.
        seed: Of the order, 0 or more.

    Raises:
        TypeError: Pixels or classes of another dtype.
        ValueError: Shapes that do not fit, positions that are none, overlap or do not exist.

    Example:
        >>> pixels, y = torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.arange(10) % 2
        >>> data = ImageData(pixels, y, torch.arange(6), torch.arange(6, 10), batch_size=2)
        >>> len(data.order(epoch=0)), data.evaluation_batch().count
        (3, 4)
    """

    pixels: Tensor
    y: Tensor
    train: Tensor
    val: Tensor
    _: KW_ONLY
    name: str = "unnamed"
    batch_size: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        pixels, y = self.pixels, self.y
        for name, found, dtype in (("pixels", pixels, torch.uint8), ("y", y, torch.int64)):
            if not isinstance(found, Tensor) or found.dtype != dtype:
                got = found.dtype if isinstance(found, Tensor) else type(found).__name__
                hint = "; lab.datasets.image_sets.as_pixels makes it of PIL images and arrays"
                expected = f"a tensor of {dtype}{hint if name == 'pixels' else ''}"
                raise TypeError(f"{name}: got {got}, expected {expected}")
        if pixels.dim() != 4 or y.shape != pixels.shape[:1]:
            shapes = f"{tuple(pixels.shape)} and {tuple(y.shape)}"
            raise ValueError(f"pixels, y: shapes {shapes}, expected [N, C, H, W] and [N]")
        check_parts("image", len(y), self.train, self.val, self.val[:0])
        check_at_least(1, batch_size=self.batch_size)
        check_at_least(0, seed=self.seed)

    def check_classes(self, num_classes: int) -> None:
        said = "y: {count} labels out of range, the first is image {first} with {value}; expected "
        bad = (self.y < 0) | (self.y >= num_classes)
        refuse_any(bad, f"{said}0..{num_classes - 1}", self.y)

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Compute mean and deviation of the training images by channel, of values 0..1, [C]."""
        levels = torch.arange(_LEVELS, dtype=torch.float64) / (_LEVELS - 1)
        used = self.pixels[self.train].transpose(0, 1).flatten(1)
        counts = torch.stack([channel.bincount(minlength=_LEVELS) for channel in used]).double()
        shares = counts / used.size(1)
        mean = shares @ levels
        return mean.float(), (shares @ levels.square() - mean.square()).clamp(min=0).sqrt().float()

    def describe(self) -> dict[str, Any]:
        found = {"name": self.name, "sha256": digest((self.pixels, self.y, self.train, self.val))}
        return found | {"batch_size": self.batch_size, "seed": self.seed}

    def order(self, epoch: int) -> list[Tensor]:
        drawn = shuffled(self.train, self.seed, _ORDER, epoch)
        whole = [part for part in drawn.split(self.batch_size) if len(part) == self.batch_size]
        return whole or [drawn]

    def evaluation_batch(self) -> ImageBatch:
        return self.batch(self.val)

    def every_batch(self) -> list[ImageBatch]:
        return [self.batch(torch.arange(len(self.y)))]

    def batch(self, positions: Tensor) -> ImageBatch:
        return ImageBatch(self.pixels[positions], self.y[positions])


class ImageTask(LabelTask):
    """Cross-entropy on classes of images, mixed and smoothed as the recipe says.

    Args:
        model: `model(images [B, C, H, W]) -> logits [B, num_classes]`; images have mean 0 and
            deviation 1.
        num_classes: At least 2.
        statistics: Mean and standard deviation by channel, as `ImageData.statistics` gives them.
        recipe: How it learns. `fit` has to be given its epochs.

    Raises:
        ValueError: Fewer than two classes.
        ImportError: The recipe changes images and kornia is not installed.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
        >>> task = ImageTask(model, num_classes=2, statistics=(torch.zeros(1), torch.ones(1)))
        >>> task.logits(torch.zeros(4, 1, 2, 2, dtype=torch.uint8)).shape
        torch.Size([4, 2])
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        num_classes: int,
        statistics: tuple[Tensor, Tensor],
        recipe: Recipe = Recipe(),
    ) -> None:
        if recipe.augment != Augmentation():
            require_kornia()
        super().__init__(model, num_classes=num_classes, optimizer=recipe)
        mean, std = statistics
        self.register_buffer("mean", mean.view(-1, 1, 1))
        self.register_buffer("std", std.clamp(min=1e-6).view(-1, 1, 1))

    def normalize(self, images: Tensor) -> Tensor:
        """Bring values 0..1 to mean 0 and deviation 1."""
        return (images - self.mean) / self.std

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits of images with values 0..1, by the model whose scores count."""
        return self.evaluated(self.normalize(images))

    def training_step(self, batch: ImageBatch, batch_idx: int) -> Tensor:
        augment = self.options.augment
        images = self.normalize(augment.reshape(batch.pixels.float() / 255))
        images, target = augment.blend(images, batch.y, self.num_classes)
        return cross_entropy(self.model(images), target, label_smoothing=self.options.smoothing)

    @torch.no_grad()
    def logits(self, pixels: Tensor) -> Tensor:
        """Compute logits [N, num_classes] of images uint8 [N, C, H, W], in evaluation mode."""
        with evaluating(self), borrowed_randomness():
            seed_all(0)  # for models that draw even in evaluation
            parts = [self(part.to(self.device).float() / 255) for part in pixels.split(_CHUNK)]
        return torch.cat(parts)

    def pairs(self, batch: ImageBatch) -> list[Pair]:
        return [(self.logits(batch.pixels), batch.y.to(self.device))]

    def configure_optimizers(self) -> Any:
        recipe, trainer = self.options, self.trainer
        steps = int(trainer.estimated_stepping_batches) // (trainer.max_epochs or 1) * recipe.epochs
        optimizer = recipe.optimizer(self.model)
        schedule = LambdaLR(optimizer, lambda step: recipe.factor(step, steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
