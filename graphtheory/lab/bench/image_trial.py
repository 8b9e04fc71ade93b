"""One network for images, trained by its data set's recipe and scored on the test images once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from graphtheory.lab.bench.options import checked_options, with_options
from graphtheory.lab.datasets.image_sets import ImageSet, describe, is_folder
from graphtheory.lab.metrics import count_macs
from graphtheory.lab.train import Augmentation, FitResult, ImageData, ImageTask, Recipe, fit
from graphtheory.lab.train.score import accuracy
from graphtheory.lab.train.watch import EpochRow
from graphtheory.lab.zoo import image_models as image_zoo
from graphtheory.lab.zoo.image_models import ImageNetwork


@dataclass(frozen=True)
class ImageTrial:
    """Everything that a run on images hangs on but the seed.

    Attributes:
        model: One of `image_zoo.NAMES`.
        recipe: How it learns.
        batch_size: Images of a batch.
        drop_path: Probability that an image skips the last block in training.
        network: Sizes of the network.
    """

    model: str
    recipe: Recipe
    batch_size: int = 128
    drop_path: float = 0.0
    network: ImageNetwork = ImageNetwork()

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a log."""
        return asdict(self)


_NATURAL = ImageTrial(
    "vit",
    Recipe(
        epochs=30, lr=2e-3,
        augment=Augmentation(crop=4, flip=True, erase=0.1, mixup=0.2, cutmix=0.2),
    ),
    drop_path=0.1,
)  # fmt: skip
# One recipe for all models of a data set: chosen for vit on validation, and not again for others.
_TRIALS = {
    "digits": ImageTrial("vit", Recipe(epochs=40, lr=2e-3, augment=Augmentation(crop=1)), 32),
    "mnist": ImageTrial("vit", Recipe(epochs=3, lr=2e-3, augment=Augmentation(crop=2)), 64),
    "cifar10": _NATURAL,
    "cifar10-jpeg": _NATURAL,
    "cifar10-lossless4000": replace(_NATURAL, recipe=replace(_NATURAL.recipe, epochs=100)),
}


_FOLDER = ImageTrial("vit", Recipe(epochs=30, lr=2e-3, augment=Augmentation(crop=2)), 64)
_STEPS, _LEAST_BATCH = 500, 8  # a shorter run takes smaller batches, down to this


def image_trial(
    dataset: str, model: str, epochs: int | None = None, options: Mapping[str, Any] | None = None
) -> ImageTrial:
    """The trial of a model on a data set, by the recipe that all models share there.

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
    shared = _FOLDER if is_folder(dataset) else _TRIALS[info.name]
    trial = replace(shared, model=model)
    given = checked_options([trial], options or {})
    if epochs is not None:
        trial = replace(trial, recipe=replace(trial.recipe, epochs=epochs))
    count = round(0.9 * dict(info.counts)["images"])
    while (
        trial.batch_size > _LEAST_BATCH
        and trial.recipe.epochs * (count // trial.batch_size) < _STEPS
    ):
        trial = replace(trial, batch_size=trial.batch_size // 2)
    return with_options(trial, given)


def prepare(
    trial: ImageTrial,
    images: ImageSet,
    seed: int,
    build: Callable[[image_zoo.ImageKind], nn.Module] | None = None,
) -> tuple[ImageTask, ImageData]:
    """The task and its data; weights, order and validation images follow from `seed`.

    `build` makes the network; None is the trial's own.
    """
    pixels, y = images.training()
    train, val = images.split(y, seed)
    classes = dict(images.info.counts)["classes"]
    data = ImageData(
        pixels, y, train, val, name=images.info.name, batch_size=trial.batch_size, seed=seed
    )
    kind = image_zoo.ImageKind(
        pixels.size(2), pixels.size(1), classes, trial.drop_path, trial.network
    )
    with torch.random.fork_rng(devices=[]):  # the caller's state comes back
        torch.manual_seed(seed)
        model = build(kind) if build else image_zoo.build(trial.model, kind)
    task = ImageTask(model, num_classes=classes, statistics=data.statistics(), recipe=trial.recipe)
    return task, data


@dataclass(frozen=True)
class ImageOutcome:
    """What a run gives.

    Attributes:
        fit: The training; its `test` is None.
        test: Accuracy on the test images of the epoch that was best on validation, 0..1.
        predicted: Class of each test image, int64 [N].
        y: The true ones.
        gmacs: 10^9 multiply-accumulate operations an image; see `metrics.count_macs`.
        parameters: Trainable numbers.
    """

    fit: FitResult
    test: float
    predicted: Tensor
    y: Tensor
    gmacs: float
    parameters: int

    def rows(self, images: ImageSet) -> list[list[str]]:
        """The test images as rows of a table: file or number, true and predicted class."""
        listing = images.listing
        names, classes = (listing.test_files(), listing.classes) if listing else ((), ())
        found = [["image", "class", "predicted"]]
        for i, pair in enumerate(zip(self.y.tolist(), self.predicted.tolist(), strict=True)):
            of = [classes[k] if classes else str(k) for k in pair]
            found.append([names[i] if names else str(i), *of])
        return found


def run(
    task: ImageTask,
    data: ImageData,
    images: ImageSet,
    *,
    seed: int,
    out_dir: str | PathLike[str] | None = None,
    resume: bool = False,
    progress: bool | Callable[[EpochRow], None] = True,
) -> ImageOutcome:
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
    parameters = sum(p.numel() for p in task.model.parameters() if p.requires_grad)
    return ImageOutcome(
        found, accuracy(logits, test.y), logits.argmax(1), test.y, gmacs(task.evaluated, data),
        parameters,
    )  # fmt: skip


def gmacs(model: nn.Module, data: ImageData) -> float:
    """10^9 multiply-accumulate operations of one image."""
    image = torch.zeros(1, *data.pixels.shape[1:], device=next(model.parameters()).device)
    return count_macs(model, image).total / 1e9
