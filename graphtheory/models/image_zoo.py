"""Networks for small images by name: one width, depth and patch; only the method differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from graphtheory.models.reduced_vit import ReducedViT
from graphtheory.models.resnet import SmallResNet
from graphtheory.models.stvit import stvit
from graphtheory.models.swin import swin
from graphtheory.models.vig import vig
from graphtheory.models.vit import ViT, vit
from graphtheory.nn import Fuse, Keep, Merge, PositionEmbedding
from graphtheory.nn.init import init_for_small, sine_positions
from graphtheory.nn.reduce import Random, Reducer
from graphtheory.patterns import TopK

_WIDTH, _DEPTH, _HEADS = 64, 5, 4
_HALF = 0.5  # of the patches go on after block 1, and of those after block 2


@dataclass(frozen=True)
class ImageKind:
    """What a network has to know of its images.

    Attributes:
        size: Rows and columns, in pixels.
        channels: 1 or 3.
        classes: C.
        drop_path: Probability that an image skips the last block in training.
    """

    size: int
    channels: int
    classes: int
    drop_path: float = 0.0

    @property
    def patch(self) -> int:
        """Rows and columns of a patch, in pixels: 4, of images below 16 pixels 2.

        Raises:
            ValueError: Images that it does not divide.
        """
        patch = 4 if self.size >= 16 else 2
        if self.size % patch:
            raise ValueError(f"size: got {self.size} pixels, expected a multiple of {patch}")
        return patch

    @property
    def side(self) -> int:
        """Patches along a side."""
        return self.size // self.patch

    @property
    def options(self) -> dict[str, Any]:
        """For constructors of `models.vit` and `models.stvit`."""
        return {
            "image_size": self.size, "patch_size": self.patch, "in_channels": self.channels,
            "out_channels": self.classes, "drop_path": self.drop_path,
        }  # fmt: skip


def _vit(kind: ImageKind, **options: Any) -> ViT:
    return vit(_WIDTH, _DEPTH, _HEADS, **kind.options, **options)


def _stvit(kind: ImageKind) -> nn.Module:
    tokens = 16 if kind.side > 4 else 4
    return stvit(_WIDTH, _DEPTH, _HEADS, base=1, tokens=tokens, **kind.options)


def _swin(kind: ImageKind) -> nn.Module:
    grid = 2 * kind.side  # patches of half the side, merged once
    window = grid // 2 if grid // 2 <= 7 else 4
    return swin(
        _WIDTH // 2, (2, 2), (2, 4), window=window, patch_size=kind.patch // 2,
        in_channels=kind.channels, out_channels=kind.classes, drop_path=kind.drop_path,
    )  # fmt: skip


def _reduced(kind: ImageKind, first: Reducer, second: Reducer, **options: Any) -> nn.Module:
    return ReducedViT(_vit(kind), {1: first, 2: second}, inside=False, **options)


def _tome(kind: ImageKind) -> nn.Module:
    patches = kind.side**2
    first = patches // 2
    return _reduced(kind, Merge(first), Merge((patches - first) // 2), proportional=True)


def _random_drop(kind: ImageKind) -> nn.Module:
    return _reduced(kind, Keep(_HALF, Random()), Keep(_HALF, Random()))


_BUILDERS: dict[str, Callable[[ImageKind], nn.Module]] = {
    "vit": _vit,
    "kvt": lambda kind: _vit(kind, pattern=TopK(_HALF)),
    "stvit": _stvit,
    "swin": _swin,
    "evit": lambda kind: _reduced(kind, Fuse(_HALF), Fuse(_HALF)),
    "tome": _tome,
    "random-drop": _random_drop,
    "vig": lambda kind: vig(_WIDTH, _DEPTH, neighbors=5, head_width=2 * _WIDTH, **kind.options),
    "cnn": lambda kind: SmallResNet(kind.classes, kind.channels),
}
NAMES = tuple(_BUILDERS)


def build(name: str, kind: ImageKind) -> nn.Module:
    """A network `model(images [B, C, H, W]) -> [B, classes]`.

    vit is a vision transformer of width 64 with 5 blocks of 4 heads on patches of 4 x 4 pixels. Of
    it, kvt attends to the half of the patches with the largest logits; stvit goes on with 16
    semantic tokens after 1 block; evit keeps the half with most attention and a fused token, tome
    merges, random-drop drops at random, each after blocks 1 and 2: about half of vit's products or
    a little more. swin has windows on patches of 2 x 2, vig has graphs of 5 to 10 near patches in
    blocks of the same width and number, cnn is a residual network of convolutions.

    All but vig and cnn begin with Glorot's weights and, where they learn positions, with sines of
    the place in place of noise: of the recipes that were tried, what lets them learn in a few
    epochs.

    Args:
        name: One of `NAMES`.
        kind: The images.

    Raises:
        ValueError: An unknown name, or images that the patch does not divide.

    Example:
        >>> type(build("stvit", ImageKind(size=28, channels=1, classes=10))).__name__
        'STViT'
    """
    if name not in _BUILDERS:
        raise ValueError(f"model: got {name!r}, expected one of {', '.join(NAMES)}")
    model = _BUILDERS[name](kind)
    if name not in ("vig", "cnn"):  # convolutions with batch norm begin as torch has it
        _begin(model)
    return model


@torch.no_grad()
def _begin(model: nn.Module) -> None:
    """Weights by width; positions that differ as much as patches, or they are seen as a bag."""
    init_for_small(model)
    for part in model.modules():
        if isinstance(part, PositionEmbedding):
            grid = part.grid
            part.table[part.prefix :] = sine_positions(part.table.size(1), grid.height, grid.width)
