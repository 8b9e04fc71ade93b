"""Networks for small images by name: one width, depth and patch; only the method differs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from graphtheory.patterns import TopK
from graphtheory.vision.models import ReducedViT, SmallResNet
from graphtheory.vision.models.stvit import stvit
from graphtheory.vision.models.swin import swin
from graphtheory.vision.models.vig import vig
from graphtheory.vision.models.vit import vit
from graphtheory.vision.nn import Fuse, Keep, Merge, PositionEmbedding
from graphtheory.vision.nn.positions import init_for_small, sine_positions
from graphtheory.vision.nn.reduce import Random, Reducer

_LARGER = (16, 96, 192)  # pixels from which a patch has 4, 8, 16 of them a side
_HALF, _NEAR = 0.5, 5  # of the patches that kvt attends to, of the first graph of vig


@dataclass(frozen=True)
class ImageNetwork:
    """Sizes of the networks of this zoo; each reads those that it has."""

    width: int = 64  # features of a token, a multiple of `heads`; swin begins with half of them
    depth: int = 5  # blocks; swin and cnn have a number of their own
    heads: int = 4  # of attention; swin has 2 and then 4
    # rows and columns of a patch, in pixels; None for 4, of images below 16 pixels 2, from 96
    # pixels on 8 and from 192 on 16
    patch: int | None = None
    # semantic tokens of stvit, a square number; None for 16, of 4 x 4 patches or fewer 4
    tokens: int | None = None
    # of kvt how many patches a patch attends to, as a number or below 1 as a share, None for half
    # of them; of vig the neighbors of the first block, None for 5
    k: float | None = None
    # share of the patches of evit, tome and random-drop that go on after block 1, and of those
    # after block 2; above 0, at most 1
    keep: float = _HALF

    def __post_init__(self) -> None:
        for name in ("width", "depth", "heads", "patch", "tokens"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name}: got {value}, expected 1 or more")
        if self.width % self.heads:
            raise ValueError(f"width: got {self.width}, expected a multiple of heads={self.heads}")
        if self.k is not None and (self.k <= 0 or (self.k >= 1 and self.k % 1)):
            raise ValueError(f"k: got {self.k}, expected a share below 1 or a whole number")
        if not 0 < self.keep <= 1:
            raise ValueError(f"keep: got {self.keep}, expected a share above 0, at most 1")


@dataclass(frozen=True)
class ImageKind:
    """What a network has to know of its images."""

    size: int  # rows and columns, in pixels
    channels: int  # 1 or 3
    classes: int  # C
    drop_path: float = 0.0  # probability that an image skips the last block in training
    network: ImageNetwork = ImageNetwork()

    @property
    def patch(self) -> int:
        """Rows and columns of a patch, in pixels, which divides the images."""
        patch = self.network.patch or 2 ** (1 + sum(self.size >= least for least in _LARGER))
        if self.size % patch:
            raise ValueError(f"size: got {self.size} pixels, expected a multiple of {patch}")
        return patch

    @property
    def side(self) -> int:
        """Number of patches along a side."""
        return self.size // self.patch

    @property
    def options(self) -> dict[str, Any]:
        """For constructors of `vision.models.vit` and `vision.models.stvit`."""
        return {
            "image_size": self.size, "patch_size": self.patch, "in_channels": self.channels,
            "out_channels": self.classes, "drop_path": self.drop_path,
        }  # fmt: skip


def _vit(kind: ImageKind, make: Callable[..., nn.Module] = vit, **options: Any) -> Any:
    sizes = kind.network
    return make(sizes.width, sizes.depth, sizes.heads, **kind.options, **options)


def _kvt(kind: ImageKind) -> nn.Module:
    k = kind.network.k or _HALF
    return _vit(kind, pattern=TopK(k if k < 1 else int(k)))


def _swin(kind: ImageKind) -> nn.Module:
    grid = 2 * kind.side  # patches of half the side, merged once
    window = grid // 2 if grid // 2 <= 7 else 4
    return swin(
        kind.network.width // 2, (2, 2), (2, 4), window=window, patch_size=kind.patch // 2,
        in_channels=kind.channels, out_channels=kind.classes, drop_path=kind.drop_path,
    )  # fmt: skip


def _vig(kind: ImageKind) -> nn.Module:
    sizes, near = kind.network, int(kind.network.k or _NEAR)
    if near < 1:
        raise ValueError(f"k: got {sizes.k}, expected 1 or more neighbors of a patch for vig")
    width = sizes.width
    return vig(width, sizes.depth, neighbors=near, head_width=2 * width, **kind.options)


def _reduced(kind: ImageKind, *rules: Reducer, **options: Any) -> nn.Module:
    return ReducedViT(_vit(kind), dict(enumerate(rules, 1)), inside=False, **options)


def _tome(kind: ImageKind) -> nn.Module:
    patches, gone = kind.side**2, 1 - kind.network.keep
    first = int(patches * gone)
    rules = Merge(first), Merge(int((patches - first) * gone))
    return _reduced(kind, *rules, proportional=True)


_BUILDERS: dict[str, Callable[[ImageKind], nn.Module]] = {
    "vit": _vit, "kvt": _kvt, "swin": _swin,
    "stvit": lambda kind: _vit(kind, stvit, base=1, tokens=kind.network.tokens or
                               (16 if kind.side > 4 else 4)),
    "evit": lambda kind: _reduced(kind, *2 * [Fuse(kind.network.keep)]),
    "tome": _tome,
    "random-drop": lambda kind: _reduced(kind, *2 * [Keep(kind.network.keep, Random())]),
    "vig": _vig,
    "cnn": lambda kind: SmallResNet(kind.classes, kind.channels),
}  # fmt: skip
NAMES = tuple(_BUILDERS)


def build(name: str, kind: ImageKind) -> nn.Module:
    """Make a network `model(images [B, C, H, W]) -> [B, classes]`, by the commands' name."""
    if name not in _BUILDERS:
        raise ValueError(f"model: got {name!r}, expected one of {', '.join(NAMES)}")
    model = _BUILDERS[name](kind)
    if name not in ("vig", "cnn"):  # convolutions with batch norm begin as torch has it
        begin(model)
    return model


@torch.no_grad()
def begin(model: nn.Module) -> None:
    """Give Glorot's weights, and sines as positions, which differ as much as patches do."""
    init_for_small(model)
    for part in model.modules():
        if isinstance(part, PositionEmbedding):
            grid = part.grid
            part.table[part.prefix :] = sine_positions(part.table.size(1), grid.height, grid.width)
