"""An image set as a task of a benchmark: the same images, recipe and number of epochs for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphtheory.lab.bench.config import AXES, RunConfig, RunResult, replaced, trainable
from graphtheory.lab.bench.finished import Settings
from graphtheory.lab.bench.measure import ACCURACY
from graphtheory.lab.bench.task import BenchTask, Root
from graphtheory.lab.datasets import image_sets
from graphtheory.lab.metrics import count_macs
from graphtheory.lab.train import ImageData, ImageTask, Recipe, Source, Task, fit
from graphtheory.lab.train.fit import EpochRow
from graphtheory.lab.train.score import SCORES
from graphtheory.lab.zoo import image_models as image_zoo
from graphtheory.lab.zoo.image_models import ImageNetwork

_REDUCING = ("evit", "tome", "random-drop")
_VITS = ("vit", "kvt", "stvit", *_REDUCING)
_BLOCKS = (*_VITS, "swin", "vig")


@dataclass(frozen=True)
class ImageRunConfig(RunConfig):
    """Everything that a run on images depends on except the seed."""

    recipe: Recipe
    batch_size: int = 128
    drop_path: float = 0.0  # probability that an image skips the last block in training
    network: ImageNetwork = ImageNetwork()
    readers: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "width": _BLOCKS, "depth": (*_VITS, "vig"), "heads": _VITS, "patch": _BLOCKS,
        "tokens": ("stvit",), "k": ("kvt", "vig"), "keep": _REDUCING, "drop_path": _BLOCKS,
    }  # fmt: skip


_STEPS, _LEAST_BATCH = 500, 8  # a shorter run takes smaller batches, down to this


def image_config(dataset: str, model: str, epochs: int | None = None) -> ImageRunConfig:
    """The configuration of a model on an image set or folder, by the recipe that all models share.

    It was chosen for vit on validation. Where a run would have fewer than 500 steps, batches are
    halved down to 8 images: a network that begins with random weights needs steps above all.
    """
    info = image_sets.describe(dataset)
    options = AXES["image recipes"]["folder" if image_sets.is_folder(dataset) else info.name]
    options = options if epochs is None else options | {"epochs": epochs}
    config = replaced(ImageRunConfig(model, Recipe(lr=2e-3)), options)
    count, size = round(0.9 * dict(info.counts)["images"]), config.batch_size
    while size > _LEAST_BATCH and config.recipe.epochs * (count // size) < _STEPS:
        size //= 2
    return replace(config, batch_size=size)


def prepare(
    config: ImageRunConfig,
    images: image_sets.ImageSet,
    seed: int,
    build: Callable[[image_zoo.ImageKind], nn.Module] | None = None,
) -> tuple[ImageTask, ImageData]:
    """The task and its data, which follow from `seed`; None builds the configuration's network."""
    (pixels, y), classes = images.training(), dict(images.info.counts)["classes"]
    data = ImageData(
        pixels, y, *images.split(y, seed), name=images.info.name, batch_size=config.batch_size,
        seed=seed,
    )  # fmt: skip
    sizes = (pixels.size(2), pixels.size(1), classes)
    kind = image_zoo.ImageKind(*sizes, config.drop_path, config.network)
    with torch.random.fork_rng(devices=[]):  # the caller's state comes back
        torch.manual_seed(seed)
        model = build(kind) if build else image_zoo.build(config.model, kind)
    task = ImageTask(model, num_classes=classes, statistics=data.statistics(), recipe=config.recipe)
    return task, data


@dataclass(frozen=True)
class ImageRunResult(RunResult):
    """What a run on images gives; `model` is its trained task."""

    predicted: Tensor = field(kw_only=True)  # class of each test image, int64 [N]
    y: Tensor = field(kw_only=True)  # the true ones
    gmacs: float = field(kw_only=True)  # 10^9 multiply-accumulate operations an image

    def rows(self, images: image_sets.ImageSet) -> list[list[str]]:
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
    images: image_sets.ImageSet,
    *,
    seed: int,
    out_dir: str | PathLike[str] | None = None,
    resume: bool = False,
    progress: bool | Callable[[EpochRow], None] = True,
) -> ImageRunResult:
    """Train what `prepare` made, then open the test images and score once."""
    epochs = task.options.epochs
    found = fit(
        task, data, epochs=epochs, patience=epochs, out_dir=out_dir, resume=resume,
        progress=progress, seed=seed,
    )  # fmt: skip
    test = images.test()
    logits = task.logits(test.pixels).cpu()
    image = torch.zeros(1, *data.pixels.shape[1:], device=next(task.evaluated.parameters()).device)
    return ImageRunResult(
        replace(found, test=SCORES["accuracy"](logits, test.y)), task, data, trainable(task.model),
        predicted=logits.argmax(1), y=test.y, gmacs=count_macs(task.evaluated, image).total / 1e9,
    )  # fmt: skip


class ImageBenchTask(BenchTask):
    """The images of a set or a folder, which `image_size` brings to so many rows and columns.

    A run that was stopped goes on from its last epoch. Seeds choose the validation images, the
    weights, the order and every draw; the test images are the same for all.
    """

    models = compared = image_zoo.NAMES
    reads = "images"
    has_folders = True
    measure, num_nodes = ACCURACY, None

    def __init__(
        self, name: str, split: str | None = None, root: Root = None, image_size: int | None = None
    ) -> None:
        self.dataset, self.image_size = name, image_size
        info = image_sets.describe(name)
        super().__init__(info.name, info.known_split(split), root)

    @cached_property
    def images(self) -> image_sets.ImageSet:
        """The images that networks are trained on."""
        root = None if self.root is None else Path(self.root)
        return image_sets.load(self.dataset, root, size=self.image_size)

    def settings(self) -> Settings:
        info, sha256 = self.images.info, self.images.sha256
        more = {} if sha256 is None else {"sha256": sha256, "image_size": self.image_size}
        return {"dataset": info.name, "split": info.default_split} | more

    def run_settings(self, config: Any, epochs: int, patience: int) -> Settings:
        return self.settings() | config.as_dict()  # the recipe has the number of epochs

    def config(self, model: str, epochs: int | None = None) -> tuple[ImageRunConfig, int, int]:
        found = image_config(self.dataset, model, epochs)
        return found, found.recipe.epochs, found.recipe.epochs

    def is_tuned(self, model: str) -> bool:
        return True  # by the recipe, which all models share

    def prepare(self, config: ImageRunConfig, seed: int) -> tuple[Task, Source]:
        return prepare(config, self.images, seed)

    def run(
        self, config: ImageRunConfig, *, seed: int, epochs: int, patience: int,
        out_dir: Path | None = None,
    ) -> ImageRunResult:  # fmt: skip
        task, data = prepare(config, self.images, seed)
        return train_images(
            task, data, self.images, seed=seed, out_dir=out_dir, resume=out_dir is not None,
            progress=False,
        )  # fmt: skip

    def analysis(self, result: Any) -> dict[str, Any]:
        return {"gmacs": result.gmacs}
