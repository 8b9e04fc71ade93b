"""Random changes of images in training, by kornia."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot


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
        if self.crop < 0:
            raise ValueError(f"crop: got {self.crop}, expected 0 or more pixels")
        for name in ("erase", "mixup", "cutmix"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected a probability")
        if self.mixup + self.cutmix > 1:
            raise ValueError(f"mixup + cutmix: got {self.mixup + self.cutmix}, expected 1 or less")

    @property
    def needs_kornia(self) -> bool:
        """Whether anything is done to images."""
        return self != Augmentation()


class Augmenter:
    """An `Augmentation` at work on images of one size; draws from torch's global random state."""

    def __init__(self, options: Augmentation, size: tuple[int, int], num_classes: int) -> None:
        self.options, self.num_classes = options, num_classes
        self._shape: list[Callable[[Tensor], Tensor]] = []
        if not options.needs_kornia:
            return
        kornia = require_kornia()
        if options.crop:
            self._shape.append(kornia.RandomCrop(size, padding=options.crop))
        if options.flip:
            self._shape.append(kornia.RandomHorizontalFlip(p=0.5))
        self._erase = kornia.RandomErasing(p=options.erase)
        both: dict[str, Any] = {"p": 1.0, "data_keys": ["input", "class"]}
        self._mixup = kornia.RandomMixUpV2(**both)
        self._cutmix = kornia.RandomCutMixV2(**both, use_correct_lambda=True)

    def reshape(self, images: Tensor) -> Tensor:
        """Crop and mirror images; black is 0."""
        for change in self._shape:
            images = change(images)
        return images

    def blend(self, images: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Erase and blend normalized images; these and the shares of their classes [B, C]."""
        target = one_hot(y, self.num_classes).to(images.dtype)
        options = self.options
        if options.erase:
            images = self._erase(images)
        draw = float(torch.rand(())) if options.mixup or options.cutmix else 1.0
        if draw < options.mixup:
            images, label = self._mixup(images, y)
            return images, self._shares(target, label, 1 - label[:, 2:])
        if draw < options.mixup + options.cutmix:
            images, (label,) = self._cutmix(images, y)
            return images, self._shares(target, label, label[:, 2:])
        return images, target

    def _shares(self, target: Tensor, label: Tensor, kept: Tensor) -> Tensor:
        """Share out: `kept` [B, 1] to the own class, the rest to that in column 1 of the label."""
        return kept * target + (1 - kept) * one_hot(label[:, 1].long(), self.num_classes)


def require_kornia() -> ModuleType:
    """Import `kornia.augmentation`, or say which extra installs it."""
    try:
        import kornia.augmentation
    except ImportError as error:
        raise ImportError(
            "kornia: not installed, expected for random changes of images; install "
            "graphtheory[images], or train with Augmentation()"
        ) from error
    return kornia.augmentation
