"""A vision transformer on images that are pasted on backgrounds, some of which is removed."""

from dataclasses import dataclass
from os import PathLike

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate, pad

from graphtheory.lab.datasets import image_sets
from graphtheory.lab.datasets.image_sets import Images
from graphtheory.lab.train import ImageData, ImageTask, Recipe, fit
from graphtheory.lab.train.score import SCORES
from graphtheory.lab.zoo import image_models as image_zoo
from graphtheory.vision.models import ReducedViT, ViT
from graphtheory.vision.nn import Keep
from graphtheory.vision.nn.reduce import Oracle

_RELEVANT, _RANKS = 255, 200  # levels of the last channel: of the image, and below it the others
_OCTAVES, _SPREAD = (2, 5), 45.0  # blotches along a side of a texture, and their deviation


@dataclass(frozen=True)
class Pasted:
    r"""A square image at a random place of a larger canvas, at multiples of the patch.

    A patch then belongs to the image or to the background, and of all tokens the share
    :math:`\alpha_* = (\text{region} / \text{size})^2` is label-relevant. The pictures have one more
    channel than the images, the rank of each patch for an oracle: 255 for the image, and for the
    background one of 0..199, drawn for each patch. Removing the tokens of least rank thus removes
    background at random before anything else.

    Source: Li (2024), section 2.4.2: CIFAR-10 images in regions of 26 x 26 pixels of ImageNet
        plants of 32 x 32. Differs: textures that are drawn in place of photographs of plants, and
        regions that the patch divides.
    """

    size: int  # rows and columns of the canvas, in pixels
    region: int  # those of the image
    patch: int  # those of a patch; divides both

    def __post_init__(self) -> None:
        for name in ("size", "region"):
            value = getattr(self, name)
            if value < 1 or self.patch < 1 or value % self.patch:
                raise ValueError(f"{name}: got {value}, expected a multiple of {self.patch} pixels")
        if self.region > self.size:
            raise ValueError(f"region: got {self.region}, expected at most {self.size} pixels")

    @property
    def tokens(self) -> int:
        """The number of patches of a picture."""
        return (self.size // self.patch) ** 2

    @property
    def relevant(self) -> int:
        """The number of patches that its image covers."""
        return (self.region // self.patch) ** 2

    def alpha_star(self, kept: int) -> float:
        """Share of the image's patches among `kept` that stay, background first, in 3 digits."""
        return round(min(self.relevant, kept) / kept, 3)

    def __call__(
        self, images: Tensor, generator: Generator, textured: Tensor | None = None
    ) -> Tensor:
        """The pictures, uint8 [N, C + 1, size, size], of images uint8 [N, C, H, W].

        Backgrounds of those that are not `textured` [N] are black; None is all.
        """
        count, channels = images.shape[:2]
        canvas = textures(count, channels, self.size, generator)
        if textured is not None:
            canvas[~textured] = 0
        side = self.size // self.patch
        rank = torch.randint(_RANKS, (count, 1, side, side), generator=generator)
        ranks = rank.to(torch.uint8).repeat_interleave(self.patch, 2)
        pictures = torch.cat([canvas, ranks.repeat_interleave(self.patch, 3)], 1)
        places = (self.size - self.region) // self.patch + 1
        corner = self.patch * torch.randint(places, (2, count, 1), generator=generator)
        rows, columns = corner + torch.arange(self.region)  # [N, region] each
        if images.shape[2:] != (self.region, self.region):
            size = (self.region, self.region)
            fitted = interpolate(images.float(), size, mode="bilinear", antialias=True)
            images = fitted.round().clamp(0, 255).to(torch.uint8)
        scene = pad(images, (0, 0, 0, 0, 0, 1), value=_RELEVANT)
        every = torch.arange(count)[:, None, None]
        # Indices apart bring their axes to the front: [N, region, region, C + 1].
        pictures[every, :, rows[:, :, None], columns[:, None]] = scene.permute(0, 2, 3, 1)
        return pictures


def textures(count: int, channels: int, size: int, generator: Generator) -> Tensor:
    """Blotches of two sizes and grain around a color of each picture, uint8 [N, C, size, size]."""
    total = 128 + _SPREAD * torch.randn(count, channels, 1, 1, generator=generator)
    for blotches in (*_OCTAVES, size):
        noise = torch.randn(count, channels, blotches, blotches, generator=generator)
        total = total + _SPREAD * interpolate(noise, (size, size), mode="bilinear")
    return total.round().clamp(0, 255).to(torch.uint8)


class ScoredViT(nn.Module):
    """A `ReducedViT` whose oracle reads the last channel of the images.

    The score of a patch is the mean of that channel over its pixels, so that pictures pass through
    any loop that trains on images. The channel itself is not seen by the network.

    Shapes: images [B, C + 1, H, W] -> what the head gives.
    """

    def __init__(self, vit: ReducedViT) -> None:
        super().__init__()
        self.vit = vit

    def forward(self, images: Tensor) -> Tensor:
        return self.vit.head(self.vit.tokens(images[:, :-1], score=self.score(images)))

    @torch.no_grad()
    def score(self, images: Tensor) -> Tensor:
        """The score of each token [B, T]; of those without a place, which always stay, 0."""
        patches = avg_pool2d(images[:, -1:], self.vit.embed.patch.patch_size).flatten(1)
        return pad(patches, (len(self.vit.embed.prefix), 0))


_VALIDATED = 200  # images that choose the epoch, beside the N that are trained on
_EPOCH = 2048  # at least this many images an epoch: few images are shown several times


@dataclass(frozen=True)
class Scene:
    """Images, the canvas they are pasted on, and how a network learns them."""

    dataset: str  # one of `image_sets.names()`
    canvas: Pasted  # where they lie
    # the two classes of figure 2.6c, of which the first has mostly textured backgrounds
    pair: tuple[int, int]
    updates: int = 400  # steps of AdamW, as many for every N
    batch_size: int = 64  # images of a step
    lr: float = 2e-3  # largest step size


_CIFAR = Pasted(20, 16, 4)
SCENES = {
    "digits": Scene("digits", Pasted(10, 8, 2), (3, 8)),
    "cifar10": Scene("cifar10", _CIFAR, (2, 0)),  # birds and airplanes
    "cifar10-jpeg": Scene("cifar10-jpeg", _CIFAR, (2, 0)),
}


def images(scene: Scene, root: str | PathLike[str] | None) -> tuple[Images, Images]:
    """Images to train with and to test with."""
    found = image_sets.load(scene.dataset, root)
    return found.training(), found.test()


def of_classes(given: Images, classes: tuple[int, ...]) -> Images:
    """Those of some classes, which become 0, 1, ... in that order."""
    place = torch.full((int(given.y.max()) + 1,), -1)
    place[torch.tensor(classes)] = torch.arange(len(classes))
    y = place[given.y]
    return Images(given.pixels[y >= 0], y[y >= 0])


def shuffled(given: Images, count: int, generator: Generator) -> Images:
    """At most `count` of them and those to validate with, which come first."""
    order = torch.randperm(len(given.y), generator=generator)[: count + held_out(given)]
    return Images(given.pixels[order], given.y[order])


def held_out(given: Images) -> int:
    """How many images choose the epoch: at most a sixth of all."""
    return min(_VALIDATED, len(given.y) // 6)


def network(scene: Scene, channels: int, classes: int, kept: int, seed: int) -> ScoredViT:
    """Five blocks of four heads, of whose patches `kept` stay from the first block on."""
    kind = image_zoo.ImageKind(scene.canvas.size, channels, classes)
    with torch.random.fork_rng(devices=[]):  # the caller's state comes back
        torch.manual_seed(seed)
        vit = image_zoo.build("vit", kind)
    assert isinstance(vit, ViT)
    return ScoredViT(ReducedViT(vit, {0: Keep(kept, Oracle())}))


def begun_from(model: nn.Module, other: nn.Module) -> None:
    """Everything but the head as in another network."""
    kept = {n: v for n, v in other.state_dict().items() if not n.startswith("vit.head.")}
    model.load_state_dict(kept, strict=False)


def learn(
    scene: Scene, model: ScoredViT, pictures: Images, held: int, classes: int, seed: int,
    labels: int | None = None,
) -> ImageTask:  # fmt: skip
    """Train for the scene's number of updates; the epoch that is best on the first `held` stays.

    The next `labels` pictures are trained on, None being all.
    """
    x, y = pictures
    size = len(y) - held if labels is None else labels
    count = max(size, min(_EPOCH, scene.updates * scene.batch_size))
    again = held + torch.arange(count) % size
    data = ImageData(
        torch.cat([x[again], x[:held]]), torch.cat([y[again], y[:held]]),
        torch.arange(count), count + torch.arange(held),
        name=scene.dataset, batch_size=scene.batch_size, seed=seed,
    )  # fmt: skip
    epochs = max(round(scene.updates * scene.batch_size / count), 1)
    task = ImageTask(
        model, num_classes=classes, statistics=data.statistics(),
        recipe=Recipe(epochs=epochs, lr=scene.lr),
    )  # fmt: skip
    fit(task, data, epochs=epochs, patience=epochs, progress=False, seed=seed)
    return task


def score(task: ImageTask, test: Images) -> float:
    """The accuracy on test pictures, 0..1."""
    return SCORES["accuracy"](task.logits(test.pixels).cpu(), test.y)


def pasted(
    scene: Scene, given: Images, generator: Generator, textured: Tensor | None = None
) -> Images:
    """Images on backgrounds of their own."""
    return Images(scene.canvas(given.pixels, generator, textured), given.y)


def backgrounds(y: Tensor, agree: float, generator: Generator) -> Tensor:
    """Which images get a texture: a share `agree` of class 0, and 1 - `agree` of class 1."""
    drawn = torch.rand(len(y), generator=generator)
    return drawn < torch.where(y == 0, agree, 1 - agree)
