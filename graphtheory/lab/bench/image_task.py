"""An image set as a task of a benchmark: the same images, recipe and number of epochs for all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphtheory.lab import plot
from graphtheory.lab.bench.config import AXES, RunConfig, readers_of, replaced
from graphtheory.lab.bench.finished import Settings
from graphtheory.lab.bench.rows import ACCURACY
from graphtheory.lab.bench.task import BenchTask, Root, RunResult, trainable
from graphtheory.lab.datasets import image_sets
from graphtheory.lab.metrics import count_macs
from graphtheory.lab.train import ImageData, ImageTask, Recipe, Source, Task, fit
from graphtheory.lab.train.score import SCORES
from graphtheory.lab.train.watch import Listener
from graphtheory.lab.zoo import image_models as image_zoo
from graphtheory.lab.zoo.image_models import ImageNetwork
from graphtheory.modes import evaluating
from graphtheory.nn import AttentionMap
from graphtheory.patterns import TopK
from graphtheory.vision.models import ReducedViT, STViT, Swin, ViG, ViT


@dataclass(frozen=True)
class ImageRunConfig(RunConfig):
    """Everything that a run on images depends on except the seed."""

    recipe: Recipe
    batch_size: int = 128
    drop_path: float = 0.0  # probability that an image skips the last block in training
    network: ImageNetwork = ImageNetwork()
    readers: ClassVar[Mapping[str, Sequence[str]]] = readers_of("image")


_STEPS, _LEAST_BATCH = 500, 8  # a shorter run takes smaller batches, down to this many images


def image_config(dataset: str, model: str, epochs: int | None = None) -> ImageRunConfig:
    """The recipe that all models share on a set or folder, chosen for vit on validation."""
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
    task: ImageTask, data: ImageData, images: image_sets.ImageSet, **options: Any
) -> ImageRunResult:
    """Train what `prepare` made by `fit` with its options, then score the test images once."""
    epochs = task.options.epochs
    found = fit(task, data, epochs=epochs, patience=epochs, **options)
    test = images.test()
    logits = task.logits(test.pixels).cpu()
    image = torch.zeros(1, *data.pixels.shape[1:], device=next(task.evaluated.parameters()).device)
    return ImageRunResult(
        replace(found, test=SCORES["accuracy"](logits, test.y)), task, data, trainable(task.model),
        predicted=logits.argmax(1), y=test.y, gmacs=count_macs(task.evaluated, image).total / 1e9,
    )  # fmt: skip


class ImageBenchTask(BenchTask):
    """The images of a set or a folder; a run that was stopped goes on from its last epoch."""

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
        info, listing = self.images.info, self.images.listing
        more = {"sha256": listing.sha256, "image_size": self.image_size} if listing else {}
        return {"dataset": info.name, "split": info.default_split} | more

    def run_settings(self, config: Any, epochs: int, patience: int) -> Settings:
        # The recipe has the number of epochs.
        return self.settings() | self.trainer.describe() | config.as_dict()

    def config(self, model: str, epochs: int | None = None) -> tuple[ImageRunConfig, int, int]:
        found = image_config(self.dataset, model, epochs)
        return found, found.recipe.epochs, found.recipe.epochs

    def is_tuned(self, model: str) -> bool:
        return True  # by the recipe, which all models share

    def prepare(self, config: ImageRunConfig, seed: int) -> tuple[Task, Source]:
        return prepare(config, self.images, seed)

    def run(
        self, config: ImageRunConfig, *, seed: int, epochs: int, patience: int,
        out_dir: Path | None = None, progress: bool | Listener = False,
    ) -> ImageRunResult:  # fmt: skip
        return train_images(
            *prepare(config, self.images, seed), self.images, seed=seed, out_dir=out_dir,
            resume=out_dir is not None, progress=progress, trainer=self.trainer,
        )  # fmt: skip

    def analysis(self, result: Any) -> dict[str, Any]:
        return {"gmacs": result.gmacs}


@torch.no_grad()
def pictures(task: ImageTask, pixels: Tensor) -> dict[str, Any]:
    """Pictures of one image, uint8 [C, H, W], by name; none of a network that has no tokens."""
    model, image = task.evaluated, pixels.float() / 255
    kinds = {STViT: _semantic, ReducedViT: _reduced, ViT: _class, Swin: _window, ViG: _nearest}
    draw: Any = next((draw for kind, draw in kinds.items() if isinstance(model, kind)), None)
    if draw is None:
        return {}
    with evaluating(task):
        return draw(model, task.normalize(image[None].to(task.device)), image)


def _semantic(model: STViT, given: Tensor, image: Tensor) -> dict[str, Any]:
    """Where each semantic token looks in the last layer that sees the patches."""
    grid = model.patches(given)[1]
    weights = model.assignment(given)[0].mean(0).view(-1, grid.height, grid.width)
    title, most = "Attention of each semantic token, heads averaged", weights.argmax(0).cpu()
    looks = "The semantic token that looks most at a patch"
    return {
        "semantic-attention": plot.token_attention(image, weights.cpu(), title=title),
        "assignment": plot.token_assignment(image, most, title=looks),
    }


def _reduced(model: ReducedViT, given: Tensor, image: Tensor) -> dict[str, Any]:
    grid, found = model.embed(given)[1], model.reduced(given)
    slot = found.slot[0, model.prefix :].view(grid.height, grid.width)
    slot = torch.where(slot < 0, slot, slot - model.prefix)
    left = found.tokens.size(1) - model.prefix
    title = f"{left} tokens of {grid.size} patches at the end"
    return {"assignment": plot.token_assignment(image, slot.cpu(), title=title)}


def _class(model: ViT, given: Tensor, image: Tensor) -> dict[str, Any]:
    """Where the class token looks in each block, and of k-NN attention whom a patch attends to."""
    grid, maps = model.embed(given)[1], model.attention_maps(given)
    prefix = len(model.embed.prefix)
    rows = [m.weights.mean(1).view(prefix + grid.size, -1)[0, prefix:] for m in maps]
    weights = torch.stack(rows).view(-1, grid.height, grid.width)
    names = [f"block {i}" for i in range(1, len(maps) + 1)]
    title = "Attention of the class token, heads averaged"
    out = {"class-attention": plot.token_attention(image, weights.cpu(), names=names, title=title)}
    layer = model.blocks[-1].attention
    if isinstance(getattr(layer, "pattern", None), TopK):
        whom = "Whom the middle patch attends to, last block, first head"
        out["k-nearest"] = _edges(maps[-1], image, grid, prefix, whom)
    return out


def _window(model: Swin, given: Tensor, image: Tensor) -> dict[str, Any]:
    grid, maps = model.patch(given)[1], model.attention_maps(given)
    title = "Whom the middle patch attends to, second block, first head"
    return {"window-attention": _edges(maps[1], image, grid, 0, title)}


def _nearest(model: ViG, given: Tensor, image: Tensor) -> dict[str, Any]:
    first, *_, last = model.graphs(given)
    return {
        f"nearest-{name}": plot.image_graph(
            image, **found.drawing(0, image.size(1), image.size(2)),
            target=found.grid.height // 2 * found.grid.width + found.grid.width // 2,
            title=f"What the middle patch aggregates from, {name} block",
        )
        for name, found in (("first", first), ("last", last))
    }  # fmt: skip


def _edges(found: AttentionMap, image: Tensor, grid: Any, prefix: int, title: str) -> Any:
    """What the middle patch receives, as edges between patches; tokens without a place left out."""
    edges, weight = found.neighborhood.edge_index().cpu(), found.weights[:, 0].cpu()
    kept = (weight > 0) & (edges >= prefix).all(0)
    edges, height, width = edges[:, kept] - prefix, grid.height, grid.width
    size = torch.tensor([image.size(2) / width, image.size(1) / height])
    nodes = torch.arange(height * width)
    pos = (torch.stack([nodes % width, nodes // width], 1) + 0.5) * size
    middle = height // 2 * width + width // 2
    return plot.image_graph(image, pos, edges, weight=weight[kept], target=middle, title=title)
