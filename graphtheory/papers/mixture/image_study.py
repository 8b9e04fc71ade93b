"""Figures 4.1 and 4.8 of Li (2024): images of which one group is a minority."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from graphtheory.data import image_sets
from graphtheory.models import SmallResNet
from graphtheory.papers import stats as trends
from graphtheory.papers.mixture.image_groups import (
    KINDS,
    Grouped,
    TwoKinds,
    covariance_norm,
    with_noisy_copies,
)
from graphtheory.papers.stats import Correlation, Minimum
from graphtheory.papers.study import Row, Step, Study
from graphtheory.patterns.draw import derive

Axis = Literal["noise", "fraction"]
MEASURES = ("minority", "average", "majority")
FIRST_OF_ONE = 5  # digits from here on have the label 1


@dataclass(frozen=True)
class Recipe:
    """Sizes and learning for one image set; chosen before its test images were looked at.

    Attributes:
        total: Training images of both groups.
        copies: Noisy ones that figure 4.1 adds, 0.06 of `total` as in the source.
        epochs: Passes over them.
        batch_size: Images of a step.
        lr: Largest step size of AdamW; it follows half a cosine down to 0.
        widths: Channels of the stages of a `SmallResNet`.
    """

    total: int = 1250
    copies: int = 75
    epochs: int = 15
    batch_size: int = 64
    lr: float = 3e-3
    widths: tuple[int, ...] = (8, 16, 32)


RECIPES = {"digits": Recipe(), "mnist": Recipe(total=5000, copies=300, epochs=3)}
NAMES = tuple(RECIPES)


@dataclass(frozen=True)
class GroupStudy(Study):
    r"""A small residual network on images with a minority.

    The source takes CelebA: blond hair as the label, the two genders as groups, a ResNet 9. Here an
    image shows a digit, its label is whether that is 5 or more, and the groups are the two kinds
    of `data.image_groups`: images as they are, and images turned by a quarter with half the
    contrast. Both are zero on average, and the norms of their covariances differ by a factor of 4,
    so that what insight (P4) asks for is given. Tested is on images without noise, each of them
    in both kinds, so that both groups have half of the test as in the source.

    Attributes:
        axis: "noise": delta^2 of the copies of figure 4.1, in units of the variance of bright
            images. "fraction": share of the minority, of figure 4.8.
        values: Of the axis.
        minorities: Which of `KINDS` are the minority, one after the other.
        dataset: One of `NAMES`.
        root: Folder with the raw files of "mnist".
        recipe: Sizes and learning.
        seeds: Choices of the images, starts and orders.
        fraction: Of the minority where the axis is "noise".

    Source:
        Li (2024), section 4.5.2.
    """

    axis: Axis
    values: tuple[float, ...]
    minorities: tuple[int, ...]
    dataset: str = "digits"
    root: str | PathLike[str] | None = None
    recipe: Recipe = RECIPES["digits"]
    seeds: int = 10
    fraction: float = 0.2

    def steps(self) -> list[Step]:
        """Rows: minority's kind, value, seed, errors of the groups and of all, covariances."""
        return [
            self._step(minority, value, seed)
            for minority in self.minorities
            for value in self.values
            for seed in range(self.seeds)
        ]

    def _step(self, minority: int, value: float, seed: int) -> Step:
        settings = {
            "dataset": self.dataset, "recipe": asdict(self.recipe), "axis": self.axis,
            "fraction": self.fraction, "kind": KINDS[minority], "value": value, "seed": seed,
        }  # fmt: skip

        def rows() -> list[Row]:
            images = image_sets.load(self.dataset, self.root)
            pixels, digit = images.training()
            kinds = TwoKinds.of(pixels)
            examples = self.examples(kinds, (pixels, _label(digit)), minority, value, seed)
            net = learn(examples, self.recipe, seed)
            tested, digit = images.test()
            wrong = errors(net, kinds.both(tested, _label(digit)))
            norms = [covariance_norm(examples.x[examples.of(g)]) for g in (minority, 1 - minority)]
            found = {
                "minority": wrong[minority], "majority": wrong[1 - minority],
                "average": sum(wrong) / 2, "norms": norms,
            }  # fmt: skip
            return [{"kind": KINDS[minority], "value": value, "seed": seed} | found]

        name = f"{KINDS[minority]} minority, {self.axis} {value:g}, seed {seed}"
        return Step(name, settings, rows)

    def examples(
        self, kinds: TwoKinds, images: tuple[Tensor, Tensor], minority: int, value: float, seed: int
    ) -> Grouped:
        """Training examples; those of a seed are the same images in the same order."""
        generator = Generator().manual_seed(derive(seed))
        share = value if self.axis == "fraction" else self.fraction
        few = round(share * self.recipe.total)
        counts = [self.recipe.total - few] * 2
        counts[minority] = few
        drawn = kinds.draw(*images, (counts[0], counts[1]), generator)
        if self.axis == "fraction":
            return drawn
        return with_noisy_copies(drawn, minority, self.recipe.copies, value, generator)


def _label(digit: Tensor) -> Tensor:
    return (digit >= FIRST_OF_ONE).long()


def learn(examples: Grouped, recipe: Recipe, seed: int) -> nn.Module:
    """A network trained on examples; parameters and order follow from the seed."""
    generator = Generator().manual_seed(derive(seed, 1))
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
    """Share of each group's examples that are not told right."""
    told = torch.cat([net(x).argmax(1) for x in examples.x.split(1000)])
    wrong = (told != examples.y).double()
    return [float(wrong[examples.of(group)].mean()) for group in range(len(KINDS))]


BRIGHT, FAINT = range(2)
STUDIES = {
    "fig-4-1": GroupStudy("noise", (0.0, 0.01, 0.1, 1.0, 10.0, 100.0), (FAINT,), seeds=20),
    "fig-4-8": GroupStudy("fraction", (0.02, 0.05, 0.1, 0.2, 0.3, 0.5), (BRIGHT, FAINT)),
}
"""Figures by name. Of figure 4.1 the minority is the group of less covariance, to which noise adds.
That of figure 4.8a has more covariance than the others, that of 4.8b less."""
CLAIMED = {"bright": "rises", "faint": "falls"}  # errors over a minority's fraction, by (P4)


def on(name: str, dataset: str, root: str | PathLike[str] | None = None) -> GroupStudy:
    """The study of a figure on an image set; with a quarter of the seeds on the larger one."""
    made = replace(STUDIES[name], dataset=dataset, root=root, recipe=RECIPES[dataset])
    return made if dataset == "digits" else replace(made, seeds=made.seeds // 4)


def quick(given: GroupStudy) -> GroupStudy:
    """The same with few values, seeds and epochs, for a first look."""
    few = replace(given.recipe, epochs=max(1, given.recipe.epochs // 5))
    return replace(given, recipe=few, values=given.values[::2], seeds=2)


def cells(rows: Sequence[Row], kind: str, measure: str) -> dict[float, list[float]]:
    """Value -> the error of each seed, in the order of the seeds."""
    out: dict[float, list[float]] = {}
    for row in sorted(rows, key=lambda row: (row["value"], row["seed"])):
        if row["kind"] == kind:
            out.setdefault(row["value"], []).append(row[measure])
    return out


def verdict(
    study: GroupStudy, rows: Sequence[Row], kind: str, measure: str
) -> tuple[Correlation | Minimum, bool]:
    """What was found of an error, and whether it is what the source says.

    Over the noise the error is claimed to fall and then to rise: it must be lowest inside. Over the
    fraction it is claimed to rise where the minority is bright, and to fall where it is faint.
    """
    by = cells(rows, kind, measure)
    sample = trends.medians(by)
    if study.axis == "noise":
        turn = trends.lowest(list(by), sample)
        return turn, turn.holds
    way = trends.trend(list(by), sample)
    return way, way.direction == CLAIMED[kind]
