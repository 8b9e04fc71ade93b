"""Image classification as a Lightning module, and the recipe it learns by."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel

from graphtheory.lab.train.augment import Augmentation, Augmenter, require_kornia
from graphtheory.lab.train.contract import Evaluation, Task
from graphtheory.lab.train.image_data import ImageBatch
from graphtheory.lab.train.score import accuracy
from graphtheory.lab.train.seeds import borrowed_randomness, seed_all

_CHUNK = 500  # images of one pass without gradients
_EVALUATION_SEED = 0  # for models that draw even then


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
        """Share of `lr` in step 0..steps-1: linear up, then half a cosine down to 0.

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
        """AdamW on the parameters of `model` that learn."""
        kinds = (nn.Linear, nn.Conv2d)
        decayed = {id(m.weight) for m in model.modules() if isinstance(m, kinds)}
        learning = [p for p in model.parameters() if p.requires_grad]
        groups: list[dict[str, Any]] = [
            {"params": [p for p in learning if id(p) in decayed]},
            {"params": [p for p in learning if id(p) not in decayed], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.lr, weight_decay=self.weight_decay)


class ImageTask(Task):
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
        super().__init__()
        if num_classes < 2:
            raise ValueError(f"num_classes: got {num_classes}, expected 2 or more")
        self.model, self.num_classes, self.metric = model, num_classes, "accuracy"
        self.options = recipe
        if recipe.augment.needs_kornia:
            require_kornia()
        self.average: AveragedModel | None = None
        if recipe.ema is not None:
            average = _averaging(recipe.ema)
            self.average = AveragedModel(model, multi_avg_fn=average, use_buffers=True)
            self.average.requires_grad_(False)
        mean, std = statistics
        self.register_buffer("mean", mean.view(-1, 1, 1))
        self.register_buffer("std", std.clamp(min=1e-6).view(-1, 1, 1))
        self._augmenter: Augmenter | None = None

    @property
    def scored(self) -> nn.Module:
        """The model whose scores count: the average where there is one."""
        return self.model if self.average is None else self.average.module

    def normalize(self, images: Tensor) -> Tensor:
        """Values 0..1 to mean 0 and deviation 1."""
        return (images - self.mean) / self.std

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images with values 0..1, by the model whose scores count."""
        return self.scored(self.normalize(images))

    def training_step(self, batch: ImageBatch, batch_idx: int) -> Tensor:
        """Loss of one batch."""
        if self._augmenter is None:
            height, width = batch.pixels.shape[2:]
            self._augmenter = Augmenter(self.options.augment, (height, width), self.num_classes)
        images = self.normalize(self._augmenter.reshape(batch.pixels.float() / 255))
        images, target = self._augmenter.blend(images, batch.y)
        return cross_entropy(self.model(images), target, label_smoothing=self.options.smoothing)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Average."""
        if self.average is not None:
            self.average.update_parameters(self.model)

    @torch.no_grad()
    def logits(self, pixels: Tensor) -> Tensor:
        """Logits [N, num_classes] of images uint8 [N, C, H, W], in evaluation mode.

        A model that draws even then, such as one that drops random tokens, draws the same at every
        call.
        """
        was_training = self.training
        self.eval()
        with borrowed_randomness():
            seed_all(_EVALUATION_SEED)
            parts = [self(part.to(self.device).float() / 255) for part in pixels.split(_CHUNK)]
        self.train(was_training)
        return torch.cat(parts)

    def evaluate(self, batch: ImageBatch) -> Evaluation:
        """Loss and accuracy."""
        logits, y = self.logits(batch.pixels), batch.y.to(self.device)
        return Evaluation(float(cross_entropy(logits, y)), accuracy(logits, y), None)

    def validation_step(self, batch: ImageBatch, batch_idx: int) -> None:
        """Log what `evaluate` finds, for a Trainer of your own."""
        found = self.evaluate(batch)
        self.log_dict({"val_loss": found.val_loss, "val": found.val}, batch_size=batch.count)

    def configure_gradient_clipping(self, optimizer: Any, *args: Any, **options: Any) -> None:
        """Clip as the recipe says."""
        if self.options.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)

    def configure_optimizers(self) -> Any:
        """AdamW, and a step size that changes with every batch."""
        optimizer = self.options.optimizer(self.model)
        trainer = self.trainer
        batches = int(trainer.estimated_stepping_batches) // (trainer.max_epochs or 1)
        steps = batches * self.options.epochs
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: self.options.factor(step, steps)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def _averaging(decay: float) -> Callable[[Any, Any, Any], None]:
    """What `AveragedModel` takes: a step of the average towards the weights, in place."""

    def average(past: list[Tensor], now: list[Tensor], step: Tensor) -> None:
        if not past[0].is_floating_point():  # counters of batch norm
            torch._foreach_copy_(past, now)
            return
        n = int(step)
        torch._foreach_lerp_(past, now, 1 - min(decay, (1 + n) / (10 + n)))

    return average
