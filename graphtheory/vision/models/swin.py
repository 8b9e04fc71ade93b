"""The shifted-window transformer: a patch attends within its window, and a shift cuts others."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Generator, Tensor, nn

from graphtheory.graph import Grid, Neighborhood, Windows
from graphtheory.nn.attention import Attention, AttentionMap, record_calls
from graphtheory.nn.bias import BucketBias
from graphtheory.nn.blocks import Block
from graphtheory.vision.models.vit import ImageModel, MeanToken, depth_rates, prenorm_block
from graphtheory.vision.nn.patch import PatchEmbedding, PositionEmbedding, from_map, to_map
from graphtheory.vision.nn.positions import init_transformer
from graphtheory.vision.nn.token_sets import token_windows


class PatchMerging(nn.Module):
    """2 x 2 patches become one of twice the width; a missing row or column counts as zeros.

    Shapes: x [B * h * w, dim] and its grid -> [B * ceil(h / 2) * ceil(w / 2), 2 dim] and its grid.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.reduction = nn.LayerNorm(4 * dim), nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        maps = nn.functional.pad(to_map(x, grid), (0, grid.width % 2, 0, grid.height % 2))
        parts = [maps[:, :, row::2, column::2] for column in range(2) for row in range(2)]
        x, grid = from_map(torch.cat(parts, 1))
        return self.reduction(self.norm(x)), grid


class ReorderedAttention(nn.Module):
    """A part whose attention counts nodes in another order than the part that it is in."""

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Draw what only this kind of part has; this base has nothing."""

    def on_nodes(self, x: Tensor, grid: Grid, *_: Any) -> list[Callable[[AttentionMap], Any]]:
        """What makes a map on nodes of the map of each of its attention layers, in order."""
        raise NotImplementedError


def _of_windows(windows: Windows, found: AttentionMap) -> AttentionMap:
    nodes = windows.on_nodes()
    assert nodes.perm is not None
    rows = Neighborhood(nodes.indptr, nodes.indices, nodes.num_src, validate=False)
    return AttentionMap(rows, found.weights[nodes.perm])


class SwinStage(ReorderedAttention):
    """Blocks on one grid, every second one on shifted windows, then a merging of patches."""

    def __init__(
        self, blocks: Sequence[Block], window: int, merge: PatchMerging | None = None
    ) -> None:
        super().__init__()
        self.blocks, self.window, self.merge = nn.ModuleList(blocks), window, merge

    def windows(self, grid: Grid, device: torch.device) -> list[Windows]:
        """The windows of each block."""
        shift = self.window // 2 if min(grid.height, grid.width) > self.window else 0
        shifts = [shift * (i % 2) for i in range(len(self.blocks))]
        return [token_windows(grid, self.window, s, device) for s in shifts]

    def on_nodes(self, x: Tensor, grid: Grid, *_: Any) -> list[Callable[[AttentionMap], Any]]:
        return [partial(_of_windows, found) for found in self.windows(grid, x.device)]

    def forward(
        self, x: Tensor, grid: Grid, generator: Generator | None = None
    ) -> tuple[Tensor, Grid]:
        for block, found in zip(self.blocks, self.windows(grid, x.device), strict=True):
            x = block(
                x[found.order], found.neighborhood, relation=found.relative,
                images=grid.count, generator=generator,
            )[found.place]  # fmt: skip
        return (x, grid) if self.merge is None else self.merge(x, grid)


class HierarchicalViT(ImageModel):
    """Base of networks of images: nodes of patches, stages on ever coarser grids, one vector.

    Subclasses set `stages`, `norm` and `head` and define `embed`.
    """

    stages: nn.ModuleList
    norm: nn.LayerNorm

    def embed(self, images: Tensor) -> tuple[Tensor, Grid]:
        """The nodes [B * h * w, dim] of the first stage, and the grid on which they lie."""
        raise NotImplementedError

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Draw the weights anew; positions, relative or not, begin at 0."""
        init_transformer(self, generator)
        for part in self.modules():
            if isinstance(part, BucketBias):
                part.reset_parameters()
            elif isinstance(part, ReorderedAttention):
                part.reset_parameters(generator)

    def features(
        self, images: Tensor, *, generator: Generator | None = None
    ) -> list[tuple[Tensor, Grid]]:
        """What each stage gives, (nodes [B * h * w, dim], grid), for dense tasks."""
        x, grid = self.embed(images)
        found = []
        for stage in self.stages:
            x, grid = stage(x, grid, generator)
            found.append((x, grid))
        return found

    def tokens(self, images: Tensor, *, generator: Generator | None = None) -> Tensor:
        """Normalized nodes [B, T, dim] of the last grid."""
        x, grid = self.features(images, generator=generator)[-1]
        return self.norm(x).view(grid.count, grid.size, -1)

    def attention_maps(self, images: Tensor) -> list[AttentionMap]:
        """Who attended to whom in each layer, and with which weights [E, heads]; no dropout.

        Patches are nodes of the layer's grid, image by image, row by row; semantic tokens count
        window by window (`dumbbell.token_order`), those of an image before its patches where both
        send.
        """
        waiting: deque[Callable[[AttentionMap], AttentionMap]] = deque()

        def note(part: Any, *args: Any, **options: Any) -> AttentionMap | None:
            if isinstance(part, ReorderedAttention):
                waiting.extendleft(reversed(part.on_nodes(*args)))
                return None
            found = AttentionMap(args[1], part.weights(*args, **options))
            return waiting.popleft()(found) if waiting else found

        asked = (Attention, ReorderedAttention)
        found = record_calls(self, lambda part: isinstance(part, asked), note, images)
        return [each for each in found if each is not None]


class Swin(HierarchicalViT):
    """Patches, stages of windowed attention on ever coarser grids, the mean patch.

    `swin` and the named constructors put the parts together.

    Args:
        patch: Makes nodes of images.
        stages: First to last; the width doubles from one to the next.
        head: Takes the normalized patches [B, T, dim] of the last grid.
        position: Learned positions of the first grid, or None.

    Shapes:
        images [B, C, H, W] of any size, if `patch` pads -> what `head` gives.

    Source:
        Liu et al. (2021), Swin Transformer. Differs: a grid that the window does not divide has
        smaller windows at its border, where the released code attends to zeros; a window that is
        wider than the grid needs no table of its own; no dropout of features.

    Example:
        >>> model = swin_pico(out_channels=10)
        >>> model(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        patch: PatchEmbedding,
        stages: Sequence[SwinStage],
        head: nn.Module,
        *,
        position: PositionEmbedding | None = None,
    ) -> None:
        super().__init__()
        self.patch, self.position = patch, position
        self.stages, self.head = nn.ModuleList(stages), head
        self.norm = nn.LayerNorm(patch.dim * 2 ** (len(stages) - 1))
        self.reset_parameters()

    def embed(self, images: Tensor) -> tuple[Tensor, Grid]:
        x, grid = self.patch(images)
        if self.position is not None:
            x = x + self.position(grid).repeat(grid.count, 1)
        return x, grid


def window_block(dim: int, heads: int, window: int, *, eps: float = 1e-5, **options: Any) -> Block:
    """A `prenorm_block`, which takes the other options, with a bias by relative position."""
    bias = BucketBias((2 * window - 1) ** 2, heads)
    return prenorm_block(dim, heads, bias=bias, eps=eps, **options)


def window_stage(
    dim: int, heads: int, window: int, rates: Iterable[float], *, merge: bool = True, **block: Any
) -> SwinStage:
    """A `window_block` for each rate of stochastic depth, then a merging of patches if asked."""
    blocks = [window_block(dim, heads, window, drop_path=p, **block) for p in rates]
    return SwinStage(blocks, window, PatchMerging(dim) if merge else None)


def swin(
    dim: int,
    depths: Sequence[int],
    heads: Sequence[int],
    *,
    out_channels: int = 1000,
    window: int = 7,
    patch_size: int = 4,
    in_channels: int = 3,
    drop_path: float = 0.2,
    **block: Any,
) -> Swin:
    """Build a shifted-window transformer of equal windows.

    Args:
        dim: Features of a patch in the first stage; they double from one to the next.
        depths: Blocks of each stage.
        heads: Attention heads of the blocks of each stage.
        out_channels: Classes.
        window: Rows and columns of a window, in patches.
        patch_size: Rows and columns of a patch, in pixels.
        in_channels: Channels of an image.
        drop_path: As in `vit`.
        block: Options of `window_block`, such as ``dropout=0.1``.

    Raises:
        ValueError: Not as many heads as depths.
    """
    if len(heads) != len(depths):
        raise ValueError(f"heads: {len(heads)} stages, expected {len(depths)} as many as depths")
    rates, last = iter(depth_rates(drop_path, sum(depths))), len(depths) - 1
    stages = [
        window_stage(dim * 2**i, heads[i], window, islice(rates, depth), merge=i < last, **block)
        for i, depth in enumerate(depths)
    ]
    patch = PatchEmbedding(dim, patch_size, in_channels, pad=True, norm=True)
    return Swin(patch, stages, MeanToken(nn.Linear(dim * 2**last, out_channels)))


swin_tiny = partial(swin, 96, (2, 2, 6, 2), (3, 6, 12, 24))
"""Swin-T for 224 pixels: width 96, blocks 2, 2, 6, 2. Options as in `swin`."""
swin_small = partial(swin, 96, (2, 2, 18, 2), (3, 6, 12, 24), drop_path=0.3)
"""Swin-S for 224 pixels: width 96, blocks 2, 2, 18, 2. Options as in `swin`."""
swin_base = partial(swin, 128, (2, 2, 18, 2), (4, 8, 16, 32), drop_path=0.5)
"""Swin-B for 224 pixels: width 128, blocks 2, 2, 18, 2. Options as in `swin`."""
_small = partial(swin, window=4, patch_size=2, drop_path=0.1)
swin_pico = partial(_small, 32, (2, 2), (2, 4))
"""For 32 pixels, patches of 2, windows of 4: width 32, blocks 2, 2. Options as in `swin`.

For 28 pixels ``window=7`` divides both grids."""
swin_nano = partial(_small, 48, (2, 4, 2), (3, 6, 12))
"""`swin_pico` of width 48 with blocks 2, 4, 2."""
swin_micro = partial(_small, 64, (2, 6, 2), (2, 4, 8))
"""`swin_pico` of width 64 with blocks 2, 6, 2."""
