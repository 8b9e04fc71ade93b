"""Images in one tensor as batches, the task of classifying them, and the recipe it learns by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel

from graphtheory.lab.train.augment import Augmentation, Augmenter, require_kornia
from graphtheory.lab.train.contract import (
    Evaluation,
    Source,
    check_at_least,
    check_parts,
    digest,
    shuffled,
)
from graphtheory.lab.train.score import accuracy
from graphtheory.lab.train.task import ScoredTask
from graphtheory.lab.train.watch import borrowed_randomness, seed_all

_ORDER = 5  # stream of randomness; 0 to 4 are those of graphs
_LEVELS = 256
_CHUNK = 500  # images of one pass without gradients
_EVALUATION_SEED = 0  # for models that draw even then


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
        return ImageBatch(self.pixels.to(device), self.y.to(device))


class ImageData(Source):
    """Train on shuffled batches of images, validate on others.

    The order of an epoch is a function of (seed, epoch). Images that fill no whole batch wait for
    another epoch; where there is no whole batch, all images are one.

    Args:
        pixels: Every image.
        y: Its class.
        train: Positions to train on.
        val: Positions to validate with; none of `train`.
        name: Of the data, for the record.
        batch_size: Images of a batch.
        seed: Of the order, 0 or more.

    Shapes: pixels uint8 [N, C, H, W]; y int64 [N]; train, val int64.

    Raises:
        TypeError: Pixels or classes of another dtype.
        ValueError: Shapes that do not fit, positions that are none, overlap or do not exist.

    Example:
        >>> pixels, y = torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.arange(10) % 2
        >>> data = ImageData(pixels, y, torch.arange(6), torch.arange(6, 10), batch_size=2)
        >>> len(data.order(epoch=0)), data.evaluation_batch().count
        (3, 4)
    """

    def __init__(
        self,
        pixels: Tensor,
        y: Tensor,
        train: Tensor,
        val: Tensor,
        *,
        name: str = "unnamed",
        batch_size: int = 128,
        seed: int = 0,
    ) -> None:
        super().__init__()
        _check_images(pixels, y)
        check_parts("image", len(y), train, val, val[:0])
        check_at_least(1, batch_size=batch_size)
        check_at_least(0, seed=seed)
        self.pixels, self.y, self.train, self.val = pixels, y, train, val
        self.name, self.batch_size, self.seed = name, batch_size, seed

    def check_classes(self, num_classes: int) -> None:
        bad = ((self.y < 0) | (self.y >= num_classes)).nonzero().flatten()
        if len(bad):
            raise ValueError(
                f"y: {len(bad)} labels out of range, the first is image {int(bad[0])} with "
                f"{int(self.y[bad[0]])}; expected 0..{num_classes - 1}"
            )

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Compute mean and deviation of the training images by channel, of values 0..1, [C]."""
        levels = torch.arange(_LEVELS, dtype=torch.float64) / (_LEVELS - 1)
        used = self.pixels[self.train].transpose(0, 1).flatten(1)
        counts = torch.stack([channel.bincount(minlength=_LEVELS) for channel in used]).double()
        shares = counts / used.size(1)
        mean = shares @ levels
        return mean.float(), (shares @ levels.square() - mean.square()).clamp(min=0).sqrt().float()

    def describe(self) -> dict[str, Any]:
        parts = (self.pixels, self.y, self.train, self.val)
        found = {"name": self.name, "sha256": digest(parts)}
        return found | {"batch_size": self.batch_size, "seed": self.seed}

    def order(self, epoch: int) -> list[Tensor]:
        """Draw the positions of each batch of an epoch."""
        drawn = shuffled(self.train, self.seed, _ORDER, epoch)
        whole = [part for part in drawn.split(self.batch_size) if len(part) == self.batch_size]
        return whole or [drawn]

    def train_batches(self, epoch: int) -> Iterator[ImageBatch]:
        return (ImageBatch(self.pixels[part], self.y[part]) for part in self.order(epoch))

    def num_batches(self) -> int:
        return max(len(self.train) // self.batch_size, 1)

    def evaluation_batch(self) -> ImageBatch:
        return ImageBatch(self.pixels[self.val], self.y[self.val])


def _check_images(pixels: Tensor, y: Tensor) -> None:
    for name, found, dtype in (("pixels", pixels, torch.uint8), ("y", y, torch.int64)):
        if not isinstance(found, Tensor) or found.dtype != dtype:
            got = found.dtype if isinstance(found, Tensor) else type(found).__name__
            hint = "; lab.datasets.image_files.as_pixels makes it of PIL images, arrays and floats"
            raise TypeError(
                f"{name}: got {got}, expected a tensor of {dtype}{hint if name == 'pixels' else ''}"
            )
    if pixels.dim() != 4 or y.shape != pixels.shape[:1]:
        raise ValueError(
            f"pixels, y: shapes {tuple(pixels.shape)} and {tuple(y.shape)}, expected [N, C, H, W] "
            "and [N]"
        )


@dataclass(frozen=True)
class Recipe:
    """How an image model learns: AdamW, warm-up and cosine, an average of the weights.

    Args:
        epochs: Over which the step size goes down to 0.
        lr: Largest step size.
        weight_decay: Decoupled, of the weights of linear maps and convolutions alone.
        warmup: Share of all steps in which the step size grows from 0.
        smoothing: Share of every label that is spread over all classes.
        clip: Largest norm of the gradient; None is none.
        ema: Weight of the past in the average of the weights that is scored; it begins at 2 / 11
            and grows as (1 + n) / (10 + n) with the step n up to this. None scores the last
            weights themselves.
        augment: What is done to the images.

    Raises:
        ValueError: A number out of its range.

    Source:
        Touvron et al. (2021), Training data-efficient image transformers, table 9, without
        RandAugment, repeated augmentation and distillation.
    """

    epochs: int = 20
    lr: float = 1e-3
    weight_decay: float = 0.05
    warmup: float = 0.1
    smoothing: float = 0.1
    clip: float | None = 1.0
    ema: float | None = 0.99
    augment: Augmentation = field(default_factory=Augmentation)

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs: got {self.epochs}, expected 1 or more")
        for name in ("lr", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}: got {value}, expected a number above 0")
        for name in ("weight_decay", "warmup", "smoothing", "ema"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"{name}: got {value}, expected a number in [0, 1)")

    def factor(self, step: int, steps: int) -> float:
        """Compute the share of `lr` in step 0..steps-1: linear up, then half a cosine down to 0.

        Example:
            >>> [round(Recipe(warmup=0.5).factor(step, 4), 2) for step in range(4)]
            [0.5, 1.0, 1.0, 0.5]
        """
        first = round(self.warmup * steps)
        if step < first:
            return (step + 1) / first
        done = min(1.0, (step - first) / max(steps - first, 1))
        return 0.5 + 0.5 * math.cos(math.pi * done)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Make AdamW on the parameters of `model` that learn."""
        kinds = (nn.Linear, nn.Conv2d)
        decayed = {id(m.weight) for m in model.modules() if isinstance(m, kinds)}
        learning = [p for p in model.parameters() if p.requires_grad]
        groups: list[dict[str, Any]] = [
            {"params": [p for p in learning if id(p) in decayed]},
            {"params": [p for p in learning if id(p) not in decayed], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.lr, weight_decay=self.weight_decay)


class ImageTask(ScoredTask):
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
        >>> from graphtheory.lab.train import ImageData
        >>> pixels, y = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
        >>> data = ImageData(pixels, y, torch.tensor([0, 1]), torch.tensor([2, 3]))
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
        >>> task = ImageTask(model, num_classes=2, statistics=data.statistics())
        >>> task.logits(pixels).shape
        torch.Size([4, 2])
    """

    num_classes: int
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
        if num_classes < 2:
            raise ValueError(f"num_classes: got {num_classes}, expected 2 or more")
        if recipe.augment.needs_kornia:
            require_kornia()
        average = None
        if recipe.ema is not None:
            step = _averaging(recipe.ema)
            average = AveragedModel(model, multi_avg_fn=step, use_buffers=True)
            average.requires_grad_(False)
        super().__init__(model, average)
        self.num_classes, self.metric, self.options = num_classes, "accuracy", recipe
        mean, std = statistics
        self.register_buffer("mean", mean.view(-1, 1, 1))
        self.register_buffer("std", std.clamp(min=1e-6).view(-1, 1, 1))
        self._augmenter: Augmenter | None = None

    def normalize(self, images: Tensor) -> Tensor:
        """Bring values 0..1 to mean 0 and deviation 1."""
        return (images - self.mean) / self.std

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits of images with values 0..1, by the model whose scores count."""
        return self.evaluated(self.normalize(images))

    def training_step(self, batch: ImageBatch, batch_idx: int) -> Tensor:
        if self._augmenter is None:
            height, width = batch.pixels.shape[2:]
            self._augmenter = Augmenter(self.options.augment, (height, width), self.num_classes)
        images = self.normalize(self._augmenter.reshape(batch.pixels.float() / 255))
        images, target = self._augmenter.blend(images, batch.y)
        return cross_entropy(self.model(images), target, label_smoothing=self.options.smoothing)

    def logits(self, pixels: Tensor) -> Tensor:
        """Compute logits [N, num_classes] of images uint8 [N, C, H, W], in evaluation mode.

        A model that draws even then, such as one that drops random tokens, draws the same at every
        call.
        """
        with self.evaluating(), borrowed_randomness():
            seed_all(_EVALUATION_SEED)
            parts = [self(part.to(self.device).float() / 255) for part in pixels.split(_CHUNK)]
        return torch.cat(parts)

    def evaluate(self, batch: ImageBatch) -> Evaluation:
        logits, y = self.logits(batch.pixels), batch.y.to(self.device)
        return Evaluation(float(cross_entropy(logits, y)), accuracy(logits, y), None)

    def configure_gradient_clipping(self, optimizer: Any, *args: Any, **options: Any) -> None:
        if self.options.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)

    def configure_optimizers(self) -> Any:
        optimizer = self.options.optimizer(self.model)
        trainer = self.trainer
        batches = int(trainer.estimated_stepping_batches) // (trainer.max_epochs or 1)
        steps = batches * self.options.epochs
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: self.options.factor(step, steps)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def _averaging(decay: float) -> Callable[[Any, Any, Any], None]:
    """Make what `AveragedModel` takes: a step of the average towards the weights, in place."""

    def average(past: list[Tensor], now: list[Tensor], step: Tensor) -> None:
        if not past[0].is_floating_point():  # counters of batch norm
            torch._foreach_copy_(past, now)
            return
        n = int(step)
        torch._foreach_lerp_(past, now, 1 - min(decay, (1 + n) / (10 + n)))

    return average
