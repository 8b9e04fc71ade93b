"""Images in one tensor as batches, the task of classifying them, and the recipe it learns by."""

import math
from dataclasses import KW_ONLY, dataclass, field
from functools import cache, partial
from types import ModuleType
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel

from graphtheory.lab.train import contract
from graphtheory.lab.train.watch import borrowed_randomness, seed_all
from graphtheory.modes import evaluating


@dataclass(frozen=True)
class Augmentation:
    """What is done to a batch of training images; nothing by default.

    Args:
        crop: Pixels of black around an image, of which a random part of its size is cut out.
        flip: Mirror every second image, left to right.
        erase: Probability that a rectangle of an image, 2 to 33 % of its area, is set to the mean.
        mixup: Probability that each image of a batch is blended with another, by a uniform share.
        cutmix: Probability that a rectangle of each image of a batch is taken from another one; of
            mixup and cutmix a batch gets at most one.

    Raises:
        ValueError: A number out of its range, or `mixup` and `cutmix` above 1 together.

    Source:
        Zhong et al. (2017), Random erasing; Zhang et al. (2018), mixup; Yun et al. (2019), CutMix.
        Differs: the shares of mixup and the areas of CutMix come from Beta(1, 1).
    """

    crop: int = 0
    flip: bool = False
    erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0

    def __post_init__(self) -> None:
        contract.check_each("0 or more pixels", lambda v: v >= 0, crop=self.crop)
        shares = {"erase": self.erase, "mixup": self.mixup, "cutmix": self.cutmix}
        contract.check_each("a probability", lambda v: 0 <= v <= 1, **shares)
        if self.mixup + self.cutmix > 1:
            raise ValueError(f"mixup + cutmix: got {self.mixup + self.cutmix}, expected 1 or less")

    def reshape(self, images: Tensor) -> Tensor:
        """Crop and mirror images [B, C, H, W] with values 0..1; black is 0."""
        if self.crop:
            images = _change("RandomCrop", tuple(images.shape[2:]), padding=self.crop)(images)
        return _change("RandomHorizontalFlip", p=0.5)(images) if self.flip else images

    def blend(self, images: Tensor, y: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
        """Erase and blend normalized images; these and the shares of their classes [B, C]."""
        target = one_hot(y, num_classes).to(images.dtype)
        if self.erase:
            images = _change("RandomErasing", p=self.erase)(images)
        draw = float(torch.rand(())) if self.mixup or self.cutmix else 1.0
        if draw >= self.mixup + self.cutmix:
            return images, target
        both: dict[str, Any] = {"p": 1.0, "data_keys": ("input", "class")}
        if draw < self.mixup:
            images, label = _change("RandomMixUpV2", **both)(images, y)
            kept = 1 - label[:, 2:]
        else:
            images, (label,) = _change("RandomCutMixV2", **both, use_correct_lambda=True)(images, y)
            kept = label[:, 2:]  # [B, 1], of the own class; column 1 has the other one
        return images, kept * target + (1 - kept) * one_hot(label[:, 1].long(), num_classes)


@cache
def _change(kind: str, *sizes: Any, **options: Any) -> Any:
    return getattr(require_kornia(), kind)(*sizes, **options)


def require_kornia() -> ModuleType:
    """Import `kornia.augmentation`, or say which extra installs it."""
    try:
        import kornia.augmentation
    except ImportError as error:
        needed = "kornia: not installed, expected for random changes of images"
        other = "install pyg-graphtheory[images], or train with Augmentation()"
        raise ImportError(f"{needed}; {other}") from error
    return kornia.augmentation


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
        ema: Weight of the past, after n steps at most (1 + n) / (10 + n), in the average of the
            weights that is scored. None scores the last weights themselves.
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
        contract.check_at_least(1, epochs=self.epochs)
        contract.check_each(
            "a number above 0", lambda v: 0 < v < math.inf, lr=self.lr, clip=self.clip
        )
        shares = ("weight_decay", "warmup", "smoothing", "ema")
        given = {name: getattr(self, name) for name in shares}
        contract.check_each("a number in [0, 1)", lambda v: 0 <= v < 1, **given)

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
        maps = (m.weight for m in model.modules() if isinstance(m, kinds))
        decayed, others = contract.split_parameters(model, maps)
        groups: list[Any] = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=self.lr, weight_decay=self.weight_decay)

    def average_of(self, model: nn.Module) -> AveragedModel | None:
        """Make the running average that a model is scored as, or None."""
        if self.ema is None:
            return None
        step = partial(_average, self.ema)
        return AveragedModel(model, multi_avg_fn=step, use_buffers=True).requires_grad_(False)


def _average(decay: float, past: list[Tensor], now: list[Tensor], step: Tensor) -> None:
    """Move the average a step towards the weights, in place, as `AveragedModel` asks for it."""
    if not past[0].is_floating_point():  # counters of batch norm
        torch._foreach_copy_(past, now)
        return
    n = int(step)
    torch._foreach_lerp_(past, now, 1 - min(decay, (1 + n) / (10 + n)))


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

    def to(self, device: torch.device | str) -> "ImageBatch":
        """Move the batch to `device`; nothing is copied where it is there already."""
        return ImageBatch(**move_data_to_device(vars(self), device))


@dataclass(eq=False, repr=False)
class ImageData(contract.Source):
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
        contract.check_parts("image", len(y), self.train, self.val, self.val[:0])
        contract.check_at_least(1, batch_size=self.batch_size)
        contract.check_at_least(0, seed=self.seed)

    def check_classes(self, num_classes: int) -> None:
        said = "y: {count} labels out of range, the first is image {first} with {value}; expected "
        bad = (self.y < 0) | (self.y >= num_classes)
        contract.refuse_any(bad, f"{said}0..{num_classes - 1}", self.y)

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Compute mean and deviation of the training images by channel, of values 0..1, [C]."""
        levels = torch.arange(_LEVELS, dtype=torch.float64) / (_LEVELS - 1)
        used = self.pixels[self.train].transpose(0, 1).flatten(1)
        counts = torch.stack([channel.bincount(minlength=_LEVELS) for channel in used]).double()
        shares = counts / used.size(1)
        mean = shares @ levels
        return mean.float(), (shares @ levels.square() - mean.square()).clamp(min=0).sqrt().float()

    def describe(self) -> dict[str, Any]:
        sha256 = contract.digest((self.pixels, self.y, self.train, self.val))
        size = self.batch_size
        return dict(name=self.name, sha256=sha256, batch_size=size, seed=self.seed)

    def order(self, epoch: int) -> list[Tensor]:
        drawn = contract.shuffled(self.train, self.seed, _ORDER, epoch)
        whole = [part for part in drawn.split(self.batch_size) if len(part) == self.batch_size]
        return whole or [drawn]

    def evaluation_batch(self) -> ImageBatch:
        return self.batch(self.val)

    def every_batch(self) -> list[ImageBatch]:
        return [self.batch(torch.arange(len(self.y)))]

    def batch(self, positions: Tensor) -> ImageBatch:
        return ImageBatch(self.pixels[positions], self.y[positions])


class ImageTask(contract.LabelTask):
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

    def pairs(self, batch: ImageBatch) -> list[contract.Pair]:
        return [(self.logits(batch.pixels), batch.y.to(self.device))]

    def configure_optimizers(self) -> Any:
        recipe, trainer = self.options, self.trainer
        steps = int(trainer.estimated_stepping_batches) // (trainer.max_epochs or 1) * recipe.epochs
        optimizer = recipe.optimizer(self.model)
        schedule = LambdaLR(optimizer, lambda step: recipe.factor(step, steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
