"""How networks for images learn: changes of images, step sizes, an average of the weights."""

import math
from dataclasses import dataclass, field
from functools import cache, partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.optim.swa_utils import AveragedModel

from graphtheory.lab.train.contract import (
    check_at_least,
    check_each,
    split_parameters,
)


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
        check_each("0 or more pixels", lambda v: v >= 0, crop=self.crop)
        shares = {"erase": self.erase, "mixup": self.mixup, "cutmix": self.cutmix}
        check_each("a probability", lambda v: 0 <= v <= 1, **shares)
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
        check_at_least(1, epochs=self.epochs)
        check_each("a number above 0", lambda v: 0 < v < math.inf, lr=self.lr, clip=self.clip)
        shares = ("weight_decay", "warmup", "smoothing", "ema")
        given = {name: getattr(self, name) for name in shares}
        check_each("a number in [0, 1)", lambda v: 0 <= v < 1, **given)

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
        decayed, others = split_parameters(model, maps)
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
