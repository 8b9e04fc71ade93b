"""Images of two kinds of mean zero, one a minority, and a small residual network on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from graphtheory.patterns.draw import derive
from graphtheory.vision.models import SmallResNet

KINDS = ("bright", "faint")
_FADED = 0.5  # so that the norm of the covariance is a quarter


class Grouped(NamedTuple):
    """Examples of two groups."""

    x: Tensor  # centered images, floating point [N, C, H, W]
    y: Tensor  # label 0 or 1, int64 [N]
    group: Tensor  # which of `KINDS` each is, int64 [N]

    def of(self, group: int) -> Tensor:
        """Positions of one group."""
        return (self.group == group).nonzero()[:, 0]


@dataclass(frozen=True, eq=False)
class TwoKinds:
    r"""How an image of a set becomes one of the two kinds.

    .. math:: z = (p - m) / s, \qquad x = z \text{ (bright)}, \quad
        x = \tfrac12 R z \text{ (faint)}

    with pixels p, their mean image m and standard deviation s on the training images, and R, a
    rotation by 90 degrees. Both groups have mean 0; the covariance of the faint one is that of the
    other, rotated and divided by 4.

    Example:
        >>> kinds = TwoKinds.of(torch.tensor([0, 100, 200, 20]).view(4, 1, 1, 1))
        >>> float(kinds(torch.tensor([[[[80]]]]), 1))
        0.0
    """

    mean: Tensor  # m, [C, H, W]
    deviation: float  # s, of all entries, above 0

    @classmethod
    def of(cls, pixels: Tensor) -> TwoKinds:
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
        """Draw images of each kind; no image is in both.

        Raises:
            ValueError: If that is more than there are.
        """
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

    Raises:
        ValueError: If the group has fewer than that, or the variance is below 0.

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
    return Grouped(
        torch.cat([examples.x, x + variance**0.5 * noise]),
        torch.cat([examples.y, examples.y[chosen]]),
        torch.cat([examples.group, examples.group[chosen]]),
    )


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
    """Share of misclassified examples in each group."""
    predicted = torch.cat([net(x).argmax(1) for x in examples.x.split(1000)])
    wrong = (predicted != examples.y).double()
    return [float(wrong[examples.of(group)].mean()) for group in range(len(KINDS))]
