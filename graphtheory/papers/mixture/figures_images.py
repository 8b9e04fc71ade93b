"""Figures 4.1 and 4.8: accuracy on images of which one group is a minority."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn

from graphtheory.lab.bench.rows import Row
from graphtheory.lab.datasets import image_sets
from graphtheory.papers.claims import Claimed, Numbers, Trend, Turn
from graphtheory.papers.figure import DataSets, Figure, Verdict, small
from graphtheory.papers.grid import Grid, Measured, axis, unrecorded
from graphtheory.papers.mixture.mixtures import found_table
from graphtheory.papers.pictures import error_curves
from graphtheory.papers.pivot import Measurements, Shown, groups
from graphtheory.patterns.draw import generator_of
from graphtheory.vision.models import SmallResNet

KINDS = ("bright", "faint")
_FADED = 0.5  # so that the norm of the covariance is a quarter


class Grouped(NamedTuple):
    """Training examples of the two groups."""

    x: Tensor  # centered images, floating point [N, C, H, W]
    y: Tensor  # label 0 or 1, int64 [N]
    group: Tensor  # which of `KINDS` each is, int64 [N]

    def of(self, group: int) -> Tensor:
        """The positions of one group's examples."""
        return (self.group == group).nonzero()[:, 0]


@dataclass(frozen=True, eq=False)
class TwoKinds:
    r"""How an image of a set becomes one of the two kinds.

    .. math:: z = (p - m) / s, \qquad x = z \text{ (bright)}, \quad
        x = \tfrac12 R z \text{ (faint)}

    with pixels p, their mean image m and standard deviation s on the training images, and R, a
    rotation by 90 degrees. Both groups have mean 0; the covariance of the faint one is that of the
    other, rotated and divided by 4.
    """

    mean: Tensor  # m, [C, H, W]
    deviation: float  # s, of all entries, above 0

    @classmethod
    def of(cls, pixels: Tensor) -> "TwoKinds":
        """From training images [N, C, H, W] of any number type."""
        values = pixels.float()
        mean = values.mean(0)
        return cls(mean, float((values - mean).square().mean().sqrt().clamp(min=1e-6)))

    def __call__(self, pixels: Tensor, group: int) -> Tensor:
        """Images [N, C, H, W] as that kind; height and width must agree for a rotated one."""
        centered = (pixels.float() - self.mean) / self.deviation
        return centered if KINDS[group] == "bright" else _FADED * centered.rot90(1, (-2, -1))

    def draw(
        self, pixels: Tensor, y: Tensor, counts: tuple[int, int], generator: Generator
    ) -> Grouped:
        """Draw images of each kind; no image is in both."""
        if min(counts) < 0 or sum(counts) > len(pixels):
            raise ValueError(f"counts: got {counts}, expected 0 or more, {len(pixels)} at most")
        order = torch.randperm(len(pixels), generator=generator)
        return self._joined(pixels, y, list(order[: sum(counts)].split(list(counts))))

    def both(self, pixels: Tensor, y: Tensor) -> Grouped:
        """Every image in both kinds: the two halves are the same images."""
        return self._joined(pixels, y, [torch.arange(len(pixels))] * 2)

    def _joined(self, pixels: Tensor, y: Tensor, chosen: list[Tensor]) -> Grouped:
        parts = [self(pixels[mine], group) for group, mine in enumerate(chosen)]
        sizes = torch.tensor([len(mine) for mine in chosen])
        group = torch.arange(len(chosen)).repeat_interleave(sizes)
        return Grouped(torch.cat(parts), y[torch.cat(chosen)], group)


def with_noisy_copies(
    examples: Grouped, group: int, copies: int, variance: float, generator: Generator
) -> Grouped:
    """The examples, and copies of some of a group with N(0, variance) added to every entry.

    No example is copied twice.

    Source: Li (2024), section 4.5.2.
    """
    mine = examples.of(group)
    if not 0 <= copies <= len(mine):
        raise ValueError(f"copies: got {copies}, expected 0 to {len(mine)}, what the group has")
    if variance < 0:
        raise ValueError(f"variance: got {variance}, expected 0 or more")
    chosen = mine[torch.randperm(len(mine), generator=generator)[:copies]]
    x = examples.x[chosen]
    noise = torch.randn(x.shape, generator=generator)
    added = Grouped(x + variance**0.5 * noise, examples.y[chosen], examples.group[chosen])
    return Grouped(*(torch.cat(both) for both in zip(examples, added, strict=True)))


def covariance_norm(x: Tensor) -> float:
    r""":math:`\|\Sigma\|`, the largest eigenvalue of the covariance of images [N, C, H, W]."""
    flat = x.flatten(1).double()
    return float(torch.linalg.matrix_norm(flat - flat.mean(0), 2).square() / len(flat))


@dataclass(frozen=True)
class Recipe:
    """Sizes and optimizer for one image set; chosen before its test images were looked at."""

    total: int = 1250  # training images of both groups
    copies: int = 75  # noisy ones that figure 4.1 adds, 0.06 of `total` as in the source
    epochs: int = 15  # passes over them
    batch_size: int = 64  # images per step
    lr: float = 3e-3  # largest step size of AdamW; it follows half a cosine down to 0
    widths: tuple[int, ...] = (8, 16, 32)  # channels of the stages of a `SmallResNet`


RECIPES = {"digits": Recipe(), "mnist": Recipe(total=5000, copies=300, epochs=3)}


def learn(examples: Grouped, recipe: Recipe, seed: int) -> nn.Module:
    """A network trained on examples; the seed decides its parameters and the order of images."""
    generator = generator_of(seed, 1)
    with torch.random.fork_rng(devices=[]):  # the caller's state comes back
        torch.manual_seed(seed)
        net = SmallResNet(2, examples.x.size(1), widths=recipe.widths)
    steps = -(-len(examples.y) // recipe.batch_size) * recipe.epochs
    optimizer = torch.optim.AdamW(net.parameters(), lr=recipe.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(recipe.epochs):
        order = torch.randperm(len(examples.y), generator=generator)
        for batch in order.split(recipe.batch_size):
            loss = nn.functional.cross_entropy(net(examples.x[batch]), examples.y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval()


@torch.no_grad()
def errors(net: nn.Module, examples: Grouped) -> list[float]:
    """Share of misclassified examples in each group."""
    predicted = torch.cat([net(x).argmax(1) for x in examples.x.split(1000)])
    wrong = (predicted != examples.y).double()
    return [float(wrong[examples.of(group)].mean()) for group in range(len(KINDS))]


FIRST_OF_ONE = 5  # digits from here on have the label 1
NOISE: Literal["delta^2"] = "delta^2"
FRACTION: Literal["fraction"] = "fraction"
_XLABEL = {
    NOISE: "delta^2 of the noisy copies, over the variance of bright images",
    FRACTION: "fraction of the minority",
}
_SHOWN = {"minority": "the minority", "average": "both groups", "majority": "the majority"}


@dataclass(frozen=True)
class Minorities(Grid):
    """A small residual network on images with a minority.

    The source takes CelebA: blond hair as the label, the two genders as groups, a ResNet 9. Here an
    image shows a digit, its label is whether that is 5 or more, and the groups are the two kinds
    of `TwoKinds`: images as they are, and images rotated by 90 degrees with half the contrast.
    Both have mean zero, and the norms of their covariances differ by a factor of 4, as insight (P4)
    requires. The test images have no noise and occur in both kinds, so that each group is half of
    the test set, as in the source.

    Source: Li (2024), section 4.5.2.
    """

    # what varies: the variance delta^2 of the noisy copies of figure 4.1, in units of the variance
    # of bright images, or the fraction of the minority, of figure 4.8
    letter: Literal["delta^2", "fraction"]
    # which of `KINDS` are the minority, one after the other
    minorities: tuple[str, ...] = axis("minority")
    values: tuple[float, ...] = axis("value")  # of the letter
    dataset: str = "digits"
    root: Path | None = unrecorded(None)
    recipe: Recipe = RECIPES["digits"]  # sizes and optimizer
    fraction: float = 0.2  # of the minority where the letter is delta^2
    seeds: int = axis("seed", 10)

    def examples(
        self, kinds: TwoKinds, images: tuple[Tensor, Tensor], minority: str, value: float, seed: int
    ) -> Grouped:
        """Training examples; those of a seed are the same images in the same order."""
        generator = generator_of(seed)
        group = KINDS.index(minority)
        few = round((value if self.letter == FRACTION else self.fraction) * self.recipe.total)
        counts = [self.recipe.total - few] * 2
        counts[group] = few
        drawn = kinds.draw(*images, (counts[0], counts[1]), generator)
        if self.letter == FRACTION:
            return drawn
        return with_noisy_copies(drawn, group, self.recipe.copies, value, generator)


def group_errors(grid: Minorities, minority: str, value: float, seed: int) -> list[Measured]:
    """Test errors of the groups and of both, and the covariance norms of the training images."""
    images = image_sets.load(grid.dataset, grid.root)
    pixels, digit = images.training()
    kinds = TwoKinds.of(pixels)
    examples = grid.examples(kinds, (pixels, (digit >= FIRST_OF_ONE).long()), minority, value, seed)
    net = learn(examples, grid.recipe, seed)
    tested, digit = images.test()
    wrong = errors(net, kinds.both(tested, (digit >= FIRST_OF_ONE).long()))
    own = KINDS.index(minority)
    norms = [covariance_norm(examples.x[examples.of(group)]) for group in (own, 1 - own)]
    return [
        {"kind": minority, "value": value, "seed": seed, "minority": wrong[own],
         "majority": wrong[1 - own], "average": sum(wrong) / 2, "norms": norms}
    ]  # fmt: skip


def on_images(grid: Minorities, dataset: str, root: Path | None) -> Minorities:
    """The grid on an image set; a quarter of the seeds on the larger one."""
    dataset = dataset.lower()
    seeds = grid.seeds if dataset == "digits" else grid.seeds // 4
    return replace(grid, dataset=dataset, root=root, recipe=RECIPES[dataset], seeds=seeds)


def accuracies(measured: Measurements, minority: str, measure: str) -> Numbers:
    """Value -> the accuracy of each seed on one group or both."""
    mine = groups([row for row in measured if row["kind"] == minority], "value")
    return {value: [1 - row[measure] for row in of] for (value,), of in mine.items()}


def _read(minority: str, grid: Minorities, measured: Measurements) -> dict[str, Numbers]:
    """The accuracies that the source claims something of."""
    return {
        f"{minority} minority, {_SHOWN[measure]}": accuracies(measured, minority, measure)
        for measure in ("minority", "average")
    }


def _show(claims: Mapping[str, Claimed], grid: Minorities, measured: Measurements) -> Shown:
    lines, rows = {}, []
    for minority, claim in claims.items():
        for measure, name in _SHOWN.items():
            by = accuracies(measured, minority, measure)
            shown = {value: _percent(of) for value, of in by.items()}
            lines[f"{minority} minority, {name}"] = (shown, claim.find(by))
            rows += [
                Row.of("accuracy", of, "1", dataset=grid.dataset, minority=minority,
                       group=measure, **{grid.letter: value})
                for value, of in by.items()
            ]  # fmt: skip
    return Shown(found_table("test accuracy %", grid.letter, grid.values, lines, _NOTE), rows)


_NOTE = (
    "Median [q20, q80] on test images without noise, each in both kinds. Found: the medians' "
    "Spearman correlation with the setting and its 95 % interval over resampled seeds, or where "
    "accuracy is highest and in how many resamples that is at neither end."
)


def _percent(shares: Sequence[float]) -> str:
    found = Row.of("", [100 * share for share in shares], "%")
    return f"{found.median:.1f} [{found.q20:.1f}, {found.q80:.1f}]"


def _covariances(grid: Minorities, measured: Measurements) -> Verdict:
    """How large the covariances of the two groups are at both ends of the values."""
    told, ends = [], (grid.values[0], grid.values[-1])
    by = groups(measured, "kind", "value")
    for minority in grid.minorities:
        (first, others), (last, _) = (
            [median(row["norms"][group] for row in by[minority, end]) for group in range(2)]
            for end in ends
        )
        told.append(
            f"|Sigma| of the {minority} minority in training is {first:.1f} at {ends[0]:g} and "
            f"{last:.1f} at {ends[1]:g}, of the majority {others:.1f}."
        )
    return Verdict(" ".join(told))


def _picture(grid: Minorities, measured: Measurements, title: str) -> Any:
    curves = [
        {"series": name, "at": f"{row['value']:g}", "error": 100 * (1 - row[measure]),
         "panel": f"test accuracy (%), {row['kind']} minority"}
        for measure, name in _SHOWN.items()
        for row in measured
    ]  # fmt: skip
    return error_curves(curves, xlabel=_XLABEL[grid.letter], title=title, axis=None)


def _figure(figure: str, summary: str, grid: Minorities, claims: dict[str, Claimed]) -> Figure:
    return Figure(
        figure, summary, grid, group_errors, partial(_show, claims),
        (*claims.values(), _covariances), _picture,
        small(
            recipe={"epochs": lambda n: max(1, n // 5)}, values=slice(None, None, 2), seeds=2
        ),
        DataSets("digits", tuple(RECIPES), images=True), on_images,
    )  # fmt: skip


_TREND = partial(Trend, what="accuracy", letter=FRACTION)
# Of figure 4.1 the minority is the group of less covariance, to which noise adds. That of figure
# 4.8a has more covariance than the majority, that of 4.8b less; insight (P4) is that a larger
# fraction of the first costs accuracy and of the second helps.
FIGURES = (
    _figure(
        "fig-4-1", "accuracy on a minority of images, over the noise added to some of it",
        Minorities(NOISE, ("faint",), (0.0, 0.01, 0.1, 1.0, 10.0, 100.0), seeds=20),
        {"faint": Turn(
            what="accuracy", letter=NOISE, read=partial(_read, "faint"), highest=True
        )},
    ),
    _figure(
        "fig-4-8", "accuracy on a minority of images, over its fraction; of two minorities",
        Minorities(FRACTION, ("bright", "faint"), (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)),
        {"bright": _TREND(read=partial(_read, "bright"), claimed="falls"),
         "faint": _TREND(read=partial(_read, "faint"), claimed="rises")},
    ),
)  # fmt: skip
