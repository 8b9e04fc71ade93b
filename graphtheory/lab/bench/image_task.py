"""An image set as a task of a benchmark: the same images, recipe and number of epochs for all."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from graphtheory.lab.bench.finished import Settings
from graphtheory.lab.bench.image_config import (
    ImageRunConfig,
    ImageRunResult,
    image_config,
    prepare,
    train_images,
)
from graphtheory.lab.bench.measure import ACCURACY, Measure
from graphtheory.lab.bench.task import BenchTask, Root
from graphtheory.lab.datasets import image_sets
from graphtheory.lab.train import Source, Task
from graphtheory.lab.zoo.image_models import NAMES


class ImageBenchTask(BenchTask):
    """The images of a set; every run has a folder of its own beside the record of a benchmark.

    A run that was stopped goes on from its last epoch. Seeds choose the validation images, the
    weights, the order and every draw; the test images are the same for all.

    Args:
        name: Name of an image set or a folder of images, as `image_sets.load` takes it.
        split: Kind of split; None is the set's own.
        root: Folder with the raw files.
        image_size: Rows and columns that images of a folder are brought to; None leaves them.
    """

    models = compared = NAMES
    reads = "images"
    has_folders = True

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

    @property
    def measure(self) -> Measure:
        return ACCURACY

    @property
    def num_nodes(self) -> int | None:
        return None

    def settings(self) -> Settings:
        info, sha256 = self.images.info, self.images.sha256
        settings: Settings = {"dataset": info.name, "split": info.default_split}
        more = {} if sha256 is None else {"sha256": sha256, "image_size": self.image_size}
        return settings | more

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
