"""Images a second of DeiT-S and of networks that compute less, on the same images.

    python benchmarks/vision.py --out benchmarks/results/cpu-vision.csv

All networks have 12 blocks of width 384 and 6 heads, random weights, no dropout and no stochastic
depth. DeiT-S is ours on torch's scaled_dot_product_attention and that of Hugging Face's
transformers (a ViT of DeiT's sizes, with one class token), whose weights ours has; both outputs are
compared before anything is timed. "Inside" a block tokens are merged or dropped between attention
and MLP, as published; in the other rows after the block, whose MLP is computed on all of them, and
keys and class attention a second time: the operations count that. A forward pass runs without
gradients; a training step is forward, cross-entropy, backward and AdamW. Every row tells the
operations of a forward pass of one image; a ratio is taken round by round and above 1 where the
network is faster than DeiT-S.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import tyro
from _rows import ratios, save, seconds, show
from torch import Tensor, nn

from graphtheory.lab.bench.rows import Row
from graphtheory.lab.metrics import count_macs
from graphtheory.nn import Attention
from graphtheory.patterns import TopK
from graphtheory.vision.integrations.transformers import from_huggingface
from graphtheory.vision.models import ReducedViT, ViT
from graphtheory.vision.models.stvit import stvit
from graphtheory.vision.nn import Keep, Merge

OURS, THEIRS = "DeiT-S", "DeiT-S of transformers"


class Size(NamedTuple):
    dim: int = 384
    depth: int = 12
    heads: int = 6
    pixels: int = 224
    patch: int = 16
    base: int = 4


SMALL = Size(dim=32, depth=6, heads=2, pixels=32, patch=4, base=2)


class Logits(nn.Module):
    """A model of transformers that gives a tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images).logits


def theirs(size: Size) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=size.dim, num_hidden_layers=size.depth, num_attention_heads=size.heads,
        intermediate_size=4 * size.dim, image_size=size.pixels, patch_size=size.patch,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=1000,
        attn_implementation="sdpa",
    )  # fmt: skip
    return ViTForImageClassification(config).eval()


def nearest(model: ViT, pattern: TopK) -> ViT:
    """A copy in which every layer attends to the nearest."""
    made = ReducedViT(model, {})
    for layer in made.modules():
        if isinstance(layer, Attention):
            layer.pattern = pattern
    return made


def networks(size: Size) -> dict[str, nn.Module]:
    """Every network by its name, DeiT-S first."""
    hugging = theirs(size)
    ours = from_huggingface(hugging)
    places = [round(size.depth * share) + 1 for share in (0.25, 0.5, 0.75)]  # EViT: 4, 7, 10
    merging = dict.fromkeys(range(1, size.depth + 1), Merge(13))
    merged = partial(ReducedViT, ours, merging, proportional=True)
    kept = partial(ReducedViT, ours, dict.fromkeys(places, Keep(0.7)))
    return {
        OURS: ours,
        THEIRS: Logits(hugging),
        "STViT-DeiT-S, 16 tokens": stvit(
            size.dim, size.depth, size.heads, tokens=16, base=size.base,
            image_size=size.pixels, patch_size=size.patch,
        ).eval(),
        "DeiT-S, Merge(13) in each block": merged(inside=False),
        "DeiT-S, Merge(13) inside each block": merged(),
        "DeiT-S, Keep(0.7) three times": kept(inside=False),
        "DeiT-S, Keep(0.7) inside three blocks": kept(),
        "DeiT-S, TopK(0.5)": nearest(ours, TopK(0.5)),
    }  # fmt: skip


@contextmanager
def training(models: dict[str, nn.Module]) -> Iterator[None]:
    for model in models.values():
        model.train()
    try:
        yield
    finally:
        for model in models.values():
            model.eval().zero_grad()


def forward(model: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return model(images)


def stepper(model: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """One training step; a rate of 0 keeps the weights as they are."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def assert_same(models: dict[str, nn.Module], images: Tensor) -> None:
    ours, others = (forward(models[name], images[:1]) for name in (OURS, THEIRS))
    torch.testing.assert_close(ours, others, atol=1e-4, rtol=1e-4)


def measured(
    what: str, works: dict[str, Callable[[], object]], macs: dict[str, float],
    about: dict[str, int], repeats: int,
) -> list[Row]:  # fmt: skip
    """Rows of images a second, and of how many times as many as DeiT-S."""
    times = seconds(works, repeats, warmup=1)
    rows = []
    for name, taken in times.items():
        each = about | {"gmacs": macs[name]}
        rows.append(Row.of(f"{what}, {name}", [about["batch"] / t for t in taken], "1/s", **each))
        if name != OURS:
            faster = ratios(times[OURS], taken)
            rows.append(Row.of(f"{what}, {name} over {OURS}", faster, "1", **each))
    return rows


def rows_of(size: Size, batch: int, threads: int, repeats: int) -> list[Row]:
    """All rows of one batch size."""
    models, draw = networks(size), torch.Generator().manual_seed(0)
    images = torch.randn(batch, 3, size.pixels, size.pixels, generator=draw)
    labels = torch.randint(1000, (batch,), generator=draw)
    assert_same(models, images)
    macs = {n: round(count_macs(m, images[:1]).total / 1e9, 3) for n, m in models.items()}
    about = {"batch": batch, "pixels": size.pixels, "threads": threads}
    passes = {name: partial(forward, model, images) for name, model in models.items()}
    found = measured("forward", passes, macs, about, repeats)
    with training(models):
        steps = {name: stepper(model, images, labels) for name, model in models.items()}
        return found + measured("training step", steps, macs, about, repeats)


def main(
    batch: tuple[int, ...] = (1, 8, 32),
    threads: int = 2,
    repeats: int = 5,
    quick: bool = False,
    out: Path | None = None,
) -> None:
    """Measure images a second of networks of DeiT-S's size in float32.

    Args:
        batch: Images at a time.
        threads: Of torch and of the kernels.
        repeats: Rounds; every round runs every network once, or for 0.05 seconds.
        quick: One round of small networks on small images, to see that everything runs.
        out: CSV file to put the rows of each batch size in, after the conformance tests.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    if quick:
        batch, repeats = (2,), 1
    for count in batch:
        found = rows_of(SMALL if quick else Size(), count, threads, repeats)
        show(found)
        if out is not None:
            save(found, out)


if __name__ == "__main__":
    tyro.cli(main)
