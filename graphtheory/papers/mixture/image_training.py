"""A small residual network trained on images of two groups."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, nn

from graphtheory.models import SmallResNet
from graphtheory.papers.mixture.image_groups import KINDS, Grouped
from graphtheory.patterns.draw import derive


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
