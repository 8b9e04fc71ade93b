"""Networks for images side by side: the same images, seeds, recipe and number of epochs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from graphtheory.lab.bench.finished import Settings
from graphtheory.lab.bench.image_trial import ImageOutcome, ImageTrial, image_trial, prepare, run
from graphtheory.lab.bench.node_benchmark import Benchmark, Run
from graphtheory.lab.bench.options import checked_options, told_options
from graphtheory.lab.datasets import image_sets
from graphtheory.lab.train import ImageTask
from graphtheory.lab.zoo.image_models import NAMES

Keeper = Callable[[ImageTrial, image_sets.ImageSet, ImageTask, ImageOutcome, str], None]


@dataclass(frozen=True)
class ImageBenchmark(Benchmark):
    """A benchmark on an image set; every run has a folder of its own beside the record.

    A run that was stopped goes on from its last epoch. Seeds choose the validation images, the
    weights, the order and every draw; the test images are the same for all. `extra` of a run holds
    "gmacs".

    Attributes:
        image_size: Rows and columns that images of a folder are brought to; None leaves them.
        kept: Called with what a run left and the name of its folder; not without a record.
    """

    dataset: str = "mnist"
    models: tuple[str, ...] = NAMES
    seeds: int = 3
    image_size: int | None = None
    kept: Keeper = field(kw_only=True, default=lambda *_: None)

    def image_trial(self, model: str) -> ImageTrial:
        """How a model is trained here."""
        return image_trial(self.dataset, model, self.epochs, self.options)

    @cached_property
    def images(self) -> image_sets.ImageSet:
        """What is trained on."""
        return image_sets.load(self.dataset, self.root, size=self.image_size)

    @cached_property
    def set_by_hand(self) -> str:
        """The options set by hand in words, and which models ignore some; "" where there are none.

        Raises:
            ValueError: If they cannot be used.
        """
        trials = [self.image_trial(model) for model in self.models]
        return told_options(checked_options(trials, self.options), trials)

    def settings(self, model: str) -> Settings:
        """What a run of this model has to agree in."""
        info = self.images.info
        settings: Settings = {"dataset": info.name, "split": info.default_split}
        if self.images.sha256 is not None:
            settings |= {"sha256": self.images.sha256, "image_size": self.image_size}
        return settings | self.image_trial(model).as_dict()

    def _trained(self, model: str, seed: int) -> Run:
        trial, images = self.image_trial(model), self.images
        task, data = prepare(trial, images, seed)
        path = None if self.record is None else self.record.path
        folder = None if path is None else path.parent / f"{model}-{seed}"
        found = run(
            task, data, images, seed=seed, out_dir=folder, resume=folder is not None, progress=False
        )  # fmt: skip
        if folder is not None:
            self.kept(trial, images, task, found, str(folder))
        fit = found.fit
        return Run(
            model, seed, found.test, fit.val, found.parameters, fit.seconds_per_epoch, fit.peak_mb,
            fit.epochs, fit.history, {"gmacs": found.gmacs},
        )  # fmt: skip
