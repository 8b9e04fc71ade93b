"""k of k-NN attention, and where and how semantic tokens begin, on small images."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from torch import nn

from graphtheory.lab.bench.image_task import image_config, prepare, train_images
from graphtheory.lab.bench.rows import Row
from graphtheory.lab.bench.table import percent_spread
from graphtheory.lab.datasets import image_sets
from graphtheory.lab.zoo import image_models as image_zoo
from graphtheory.lab.zoo.image_models import ImageKind, ImageNetwork
from graphtheory.papers.claims import Trend, over
from graphtheory.papers.figure import DataSets, Figure, Verdict, small
from graphtheory.papers.grid import Grid, Measured, axis, unrecorded
from graphtheory.papers.pictures import error_curves, picture_of
from graphtheory.papers.pivot import Measurements, Pivot
from graphtheory.papers.stats import student_interval
from graphtheory.vision.models.stvit import stvit
from graphtheory.vision.nn import centers as kinds

_SIDE = 2  # semantic tokens along a side
# Overlapping windows are left out: on 4 x 4 patches, which the digits have, they do not overlap.
_CENTERS: dict[str, Callable[[int], kinds.Centers]] = {
    "windows": lambda dim: kinds.MaskPool(_SIDE, dim),
    "two scales": lambda dim: kinds.MultiScale([kinds.AveragePool(1), kinds.AveragePool(_SIDE)]),
    "means": lambda dim: kinds.AveragePool(_SIDE),
    "maxima": lambda dim: kinds.MaxPool(_SIDE),
    "learned": lambda dim: kinds.LearnedCenters(_SIDE**2, dim),
}


@dataclass(frozen=True)
class Variant:
    """A network of the image zoo's width and depth."""

    name: str  # in tables and pictures
    k: float = 1.0  # share of the patches that each attends to
    centers: str = ""  # of semantic tokens, one of `_CENTERS`; "" for a vision transformer
    base: int = 1  # blocks on patches before semantic tokens
    with_global: bool = True  # whether those have learned global centers too

    def build(self, kind: ImageKind) -> nn.Module:
        """The network for images of a kind."""
        sizes = replace(kind.network, k=self.k)
        if not self.centers:
            return image_zoo.build("vit" if self.k == 1 else "kvt", replace(kind, network=sizes))
        model = stvit(
            sizes.width, sizes.depth, sizes.heads, tokens=_CENTERS[self.centers](sizes.width),
            base=self.base, with_global=self.with_global, **kind.options,
        )  # fmt: skip
        image_zoo.begin(model)
        return model


@dataclass(frozen=True)
class Variants(Grid):
    """Networks under the recipe of the data set, which was chosen for the plain transformer."""

    variants: tuple[Variant, ...] = axis("variant")
    network: ImageNetwork = ImageNetwork()  # 16 patches of the digits' 8 x 8 pixels
    epochs: int = 30
    batch_size: int = 64
    dataset: str = "digits"
    seeds: int = axis("seed", 4)
    first: int = 0
    root: Path | None = unrecorded(None)


def accuracies(grid: Variants, variant: Variant, seed: int) -> list[Measured]:
    """Validation accuracy after each epoch, and at last the test accuracy of the best one."""
    images = image_sets.load(grid.dataset, grid.root)
    trial = image_config(grid.dataset, "vit", grid.epochs)
    trial = replace(trial, network=grid.network, batch_size=grid.batch_size)
    task, data = prepare(trial, images, seed, variant.build)
    found = train_images(task, data, images, seed=seed, progress=False)
    return [
        asdict(variant) | {"seed": seed, "test": found.fit.test, "gmacs": round(found.gmacs, 5)}
        | {f"epoch {row['epoch']}": row["val"] for row in found.fit.history}
    ]  # fmt: skip


def _ahead(
    measured: Measurements, first: str, other: str, what: str, measure: Callable[[Measured], float]
) -> tuple[str, Row]:
    """The difference of two variants in points, paired by seed, in words and as a row."""
    one, two = ({m["seed"]: measure(m) for m in measured if m["name"] == name}
                for name in (first, other))  # fmt: skip
    points = [100 * (one[seed] - two[seed]) for seed in one]
    mean, half = student_interval(points)
    row = Row.of(f"paired difference of {what}", points, "points", first=first, other=other)
    return f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]", row


def _validation(one: Measured) -> float:
    """The mean validation accuracy over all epochs: who learns faster has more."""
    values = [value for name, value in one.items() if name.startswith("epoch ")]
    return sum(values) / len(values)


def ahead_of_all(grid: Variants, measured: Measurements) -> Verdict:
    """k-NN attention on half of the patches is more accurate than on all, and learns faster."""
    test, row = _ahead(measured, "1/2", "all", "test accuracy", itemgetter("test"))
    speed, other = _ahead(measured, "1/2", "all", "mean validation accuracy", _validation)
    return Verdict(
        f"Half of the patches less all of them: {test} points on the test images, claimed above 0 "
        f"(0.8 for DeiT-T on ImageNet); mean validation accuracy over the epochs {speed} points, "
        "claimed above 0.",
        [row, other],
    )


def ahead_of_others(grid: Variants, measured: Measurements) -> Verdict:
    """The paper's windows and global centers are ahead of every alternative."""
    first, *others = (variant.name for variant in grid.variants)
    found = {
        name: _ahead(measured, first, name, "test accuracy", itemgetter("test")) for name in others
    }
    told = ", ".join(f"{name} {text}" for name, (text, _) in found.items())
    return Verdict(
        f"{first} less the others, claimed above 0: {told} points.",
        [row for _, row in found.values()],
    )


_picture = picture_of(
    error_curves, lambda measured: [one | {"error": 100 * (1 - one["test"])} for one in measured],
    panel="test error in percent", series="test error in percent", at="{name}", xlabel="",
    axis=None,
)  # fmt: skip


def _figure(name: str, summary: str, variants: tuple[Variant, ...], *claims: Any) -> Figure:
    return Figure(
        name, summary, Variants(variants), accuracies,
        Pivot("test accuracy in percent", {"test": "test accuracy"}, {"name": "variant"},
              heads=["variant"], facts=["gmacs"], cell=partial(percent_spread, digits=".1f")),
        claims, _picture, small(variants=slice(None, None, 2), seeds=2, epochs=2),
        DataSets("digits", ("digits", "mnist", "cifar10", "cifar10-jpeg"), images=True),
    )  # fmt: skip


FIGURES = (
    _figure(
        "kvt-k", "accuracy of k-NN attention over k, and how fast it learns",
        (Variant("1/8", 0.125), Variant("1/4", 0.25), Variant("1/2", 0.5), Variant("3/4", 0.75),
         Variant("all")),
        Trend(what="the accuracy", letter="k", claimed="rises",
              read=over("k", "test", "k-NN attention")),
        ahead_of_all,
    ),
    _figure(
        "stvit-pooling", "accuracy over the first centers of semantic tokens",
        (*(Variant(name, centers=name) for name in _CENTERS),
         Variant("windows alone", centers="windows", with_global=False)),
        ahead_of_others,
    ),
    _figure(
        "stvit-position", "accuracy over the blocks before semantic tokens",
        tuple(Variant(f"{base} before", centers="windows", base=base) for base in range(4)),
        Trend(what="the accuracy", letter="blocks before", claimed="does not fall",
              read=over("base", "test", "semantic tokens")),
    ),
)  # fmt: skip
