"""One network for images, trained by its data set's recipe and scored on the test images once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphtheory.lab.bench.config import RunConfig, RunResult, trainable
from graphtheory.lab.bench.options import checked_options, with_options
from graphtheory.lab.datasets.image_sets import ImageSet, describe, is_folder
from graphtheory.lab.metrics import count_macs
from graphtheory.lab.train import Augmentation, ImageData, ImageTask, Recipe, fit
from graphtheory.lab.train.score import accuracy
from graphtheory.lab.train.watch import EpochRow
from graphtheory.lab.zoo import image_models as image_zoo
from graphtheory.lab.zoo.image_models import ImageNetwork

_REDUCING = ("evit", "tome", "random-drop")
_VITS = ("vit", "kvt", "stvit", *_REDUCING)
_BLOCKS = (*_VITS, "swin", "vig")


@dataclass(frozen=True)
class ImageRunConfig(RunConfig):
    """Everything that a run on images depends on except the seed.

    Attributes:
        model: One of `image_zoo.NAMES`.
        recipe: How it learns.
        batch_size: Images of a batch.
        drop_path: Probability that an image skips the last block in training.
        network: Sizes of the network.
    """

    recipe: Recipe
    batch_size: int = 128
    drop_path: float = 0.0
    network: ImageNetwork = ImageNetwork()
    readers: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "width": _BLOCKS, "depth": (*_VITS, "vig"), "heads": _VITS, "patch": _BLOCKS,
        "tokens": ("stvit",), "k": ("kvt", "vig"), "keep": _REDUCING, "drop_path": _BLOCKS,
    }  # fmt: skip


def _recipe(epochs: int, crop: int, batch_size: int) -> ImageRunConfig:
    recipe = Recipe(epochs=epochs, lr=2e-3, augment=Augmentation(crop=crop))
    return ImageRunConfig("vit", recipe, batch_size)


_STRONG = Augmentation(crop=4, flip=True, erase=0.1, mixup=0.2, cutmix=0.2)
_NATURAL = ImageRunConfig("vit", Recipe(epochs=30, lr=2e-3, augment=_STRONG), drop_path=0.1)
# One recipe for all models of a data set: chosen for vit on validation, and not again for others.
_CONFIGS = {
    "digits": _recipe(epochs=40, crop=1, batch_size=32),
    "mnist": _recipe(epochs=3, crop=2, batch_size=64),
    "cifar10": _NATURAL,
    "cifar10-jpeg": _NATURAL,
    "cifar10-lossless4000": replace(_NATURAL, recipe=replace(_NATURAL.recipe, epochs=100)),
}
_FOLDER = _recipe(epochs=30, crop=2, batch_size=64)
_STEPS, _LEAST_BATCH = 500, 8  # a shorter run takes smaller batches, down to this


def image_config(
    dataset: str, model: str, epochs: int | None = None, options: Mapping[str, Any] | None = None
) -> ImageRunConfig:
    """The configuration of a model on a data set, by the recipe that all models share there.

    Where a run would have fewer than 500 steps, batches are halved down to 8 images: a network
    that begins with random weights needs steps above all.

    Args:
        dataset: Name of an image set or a folder of images, as `image_sets.load` takes it. A folder
            has a recipe of its own, which mirrors and blends no image.
        model: One of `image_zoo.NAMES`.
        epochs: In place of the recipe's own number.
        options: Values in the place of those of the recipe and the network, by name, such as
            {"lr": 0.001, "depth": 8}; text is read as the type of the option.

    Raises:
        ValueError: An unknown option, or a value that it does not take.
    """
    info = describe(dataset)
    shared = _FOLDER if is_folder(dataset) else _CONFIGS[info.name]
    config = replace(shared, model=model)
    given = checked_options([config], options or {})
    if epochs is not None:
        config = replace(config, recipe=replace(config.recipe, epochs=epochs))
    count, size = round(0.9 * dict(info.counts)["images"]), config.batch_size
    while size > _LEAST_BATCH and config.recipe.epochs * (count // size) < _STEPS:
        size //= 2
    return with_options(replace(config, batch_size=size), given)


def prepare(
    config: ImageRunConfig,
    images: ImageSet,
    seed: int,
    build: Callable[[image_zoo.ImageKind], nn.Module] | None = None,
) -> tuple[ImageTask, ImageData]:
    """The task and its data; weights, order and validation images follow from `seed`.

    `build` makes the network; None is the configuration's own.
    """
    pixels, y = images.training()
    train, val = images.split(y, seed)
    classes = dict(images.info.counts)["classes"]
    data = ImageData(
        pixels, y, train, val, name=images.info.name, batch_size=config.batch_size, seed=seed
    )
    kind = image_zoo.ImageKind(
        pixels.size(2), pixels.size(1), classes, config.drop_path, config.network
    )
    with torch.random.fork_rng(devices=[]):  # the caller's state comes back
        torch.manual_seed(seed)
        model = build(kind) if build else image_zoo.build(config.model, kind)
    task = ImageTask(model, num_classes=classes, statistics=data.statistics(), recipe=config.recipe)
    return task, data


@dataclass(frozen=True)
class ImageRunResult(RunResult):
    """What a run on images gives; `model` is its trained task.

    Attributes:
        predicted: Class of each test image, int64 [N].
        y: The true ones.
        gmacs: 10^9 multiply-accumulate operations an image; see `metrics.count_macs`.
    """

    predicted: Tensor = field(kw_only=True)
    y: Tensor = field(kw_only=True)
    gmacs: float = field(kw_only=True)

    def rows(self, images: ImageSet) -> list[list[str]]:
        """The test images as rows of a table: file or number, true and predicted class."""
        listing = images.listing
        names, classes = (listing.test_files(), listing.classes) if listing else ((), ())
        found = [["image", "class", "predicted"]]
        for i, pair in enumerate(zip(self.y.tolist(), self.predicted.tolist(), strict=True)):
            of = [classes[k] if classes else str(k) for k in pair]
            found.append([names[i] if names else str(i), *of])
        return found


def train_images(
    task: ImageTask,
    data: ImageData,
    images: ImageSet,
    *,
    seed: int,
    out_dir: str | PathLike[str] | None = None,
    resume: bool = False,
    progress: bool | Callable[[EpochRow], None] = True,
) -> ImageRunResult:
    """Train what `prepare` made, then open the test images and score once.

    Raises:
        CheckpointError, FileExistsError, OSError, FloatingPointError: As `fit`.
        DamagedFileError: A file with test images is truncated or altered.
    """
    epochs = task.options.epochs
    found = fit(
        task, data, epochs=epochs, patience=epochs, out_dir=out_dir, resume=resume,
        progress=progress, seed=seed,
    )  # fmt: skip
    test = images.test()
    logits = task.logits(test.pixels).cpu()
    image = torch.zeros(1, *data.pixels.shape[1:], device=next(task.evaluated.parameters()).device)
    return ImageRunResult(
        replace(found, test=accuracy(logits, test.y)), task, data, trainable(task.model),
        predicted=logits.argmax(1), y=test.y, gmacs=count_macs(task.evaluated, image).total / 1e9,
    )  # fmt: skip
