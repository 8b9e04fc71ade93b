"""The shifted-window transformer whose third stage works through semantic tokens: STViT-R."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from graphtheory.graph import Grid
from graphtheory.models.dumbbell import Dumbbell
from graphtheory.models.readout import MeanToken
from graphtheory.models.swin import PatchMerging, SwinStage, window_block
from graphtheory.models.vit import depth_rates
from graphtheory.nn import Attention, AttentionMap, BucketBias, SemanticBlock, attention_maps
from graphtheory.nn.init import init_transformer
from graphtheory.nn.patch import from_map


class ConvStem(nn.Module):
    """Two convolutions of 3 x 3 with stride 2 in place of patches of 4 x 4.

    Args:
        dim: Features of a node.
        in_channels: Channels of an image.

    Shapes:
        images [B, in_channels, H, W] -> nodes [B * ceil(H / 4) * ceil(W / 4), dim] and their grid.
    """

    def __init__(self, dim: int, in_channels: int = 3) -> None:
        super().__init__()
        sizes = [(in_channels, dim // 2), (dim // 2, dim)]
        self.layers = nn.Sequential(
            *(
                layer
                for a, b in sizes
                for layer in (nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.Hardswish())
            )
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Grid]:
        """Nodes, and the grid on which they lie."""
        return from_map(self.layers(images))


class DumbbellStage(nn.Module):
    """Units on one grid, then a merging of patches; see `Dumbbell`."""

    def __init__(self, units: list[Dumbbell], merge: PatchMerging | None) -> None:
        super().__init__()
        self.units, self.merge = nn.ModuleList(units), merge

    def forward(
        self, x: Tensor, grid: Grid, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Grid]:
        """Patches [B * h * w, dim], and the grid on which they lie."""
        for unit in self.units:
            x = unit(x, grid, generator)
        return (x, grid) if self.merge is None else self.merge(x, grid)


class STViTRSwin(nn.Module):
    """Patches, four stages of which the third is of dumbbell units, the mean patch.

    `stvit_r_swin` and the named constructors put the parts together.

    Args:
        stem: Makes nodes of images.
        stages: First to last.
        dim: Features of the last stage.
        head: Takes the normalised patches [B, T, dim] of the last grid.
        eps: Of the last norm.

    Shapes:
        images [B, C, H, W] of any size, if no unit has a G -> what `head` gives.

    Source:
        Chang et al. (2023), section 3.3 and the released code, whose logs say 49.626 M parameters
        and 5.826 G operations for Swin-S: here 49.626 M, and by `metrics.count_macs`, which leaves
        out norms, 5.792 G. Differs: see `Dumbbell` and `Swin`.
    """

    def __init__(
        self,
        stem: nn.Module,
        stages: list[SwinStage | DumbbellStage],
        dim: int,
        head: nn.Module,
        *,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.stem, self.stages = stem, nn.ModuleList(stages)
        self.norm, self.head = nn.LayerNorm(dim, eps), head
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weights anew; relative positions begin at 0."""
        init_transformer(self, generator)
        for part in self.modules():
            if isinstance(part, BucketBias):
                part.reset_parameters()
            if isinstance(part, Dumbbell):
                part.reset_parameters(generator)

    def features(self, images: Tensor, *, generator: torch.Generator | None = None) -> list[Any]:
        """What each stage gives, (patches [B * h * w, dim], grid), for dense tasks."""
        x, grid = self.stem(images)
        found = []
        for stage in self.stages:
            x, grid = stage(x, grid, generator)
            found.append((x, grid))
        return found

    def tokens(self, images: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Normalised patches [B, T, dim] of the last grid."""
        x, grid = self.features(images, generator=generator)[-1]
        return self.norm(x).view(grid.count, grid.size, -1)

    def forward(self, images: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """One vector an image; `generator` is the source of stochastic depth and dropout."""
        return self.head(self.tokens(images, generator=generator))

    def attention_maps(self, images: Tensor) -> list[AttentionMap]:
        """Who attended to whom in each layer, and with which weights [E, heads]; no dropout.

        Patches and semantic tokens count window by window where attention is in windows.
        """
        return attention_maps(self, images)


def stvit_r_swin(
    dim: int,
    heads: int,
    *,
    units: int = 3,
    out_channels: int = 1000,
    window: int = 7,
    side: int = 3,
    tokens: int | None = None,
    in_channels: int = 3,
    drop_path: float = 0.3,
) -> STViTRSwin:
    """STViT-R on Swin with stages of 2, 2, 6 * units and 2 layers.

    Args:
        dim: Features of a patch in the first stage; they double from one to the next.
        heads: Attention heads of the first stage; they double, too.
        units: Dumbbell units of the third stage.
        out_channels: Classes.
        window: Rows and columns of a window, in patches.
        side: Rows and columns of semantic tokens in a window.
        tokens: As in `Dumbbell`, of the first unit; 36 for 224 pixels.
        in_channels: Channels of an image.
        drop_path: Probability that an image skips the last block; earlier ones have less.
    """
    rates = depth_rates(drop_path, 6 * units + 6)
    plain = [partial(window_block, dim * 2**i, heads * 2**i, window) for i in range(4)]
    first, second, last = ([plain[i](drop_path=p) for p in rates[a:b]] for i, a, b in (
        (0, 0, 2), (1, 2, 4), (3, len(rates) - 2, len(rates))
    ))  # fmt: skip
    made = []
    for unit in range(units):
        p, *rest = rates[4 + 6 * unit : 10 + 6 * unit]
        others = [_scaled_block(4 * dim, 4 * heads, rate) for rate in rest]
        made.append(
            Dumbbell(
                plain[2](drop_path=p), others, window=window, side=side,
                tokens=tokens if unit == 0 else None,
            )
        )  # fmt: skip
    stages: list[SwinStage | DumbbellStage] = [
        SwinStage(first, window, PatchMerging(dim)),
        SwinStage(second, window, PatchMerging(2 * dim)),
        DumbbellStage(made, PatchMerging(4 * dim)),
        SwinStage(last, window),
    ]
    head = MeanToken(nn.Linear(8 * dim, out_channels))
    return STViTRSwin(ConvStem(dim, in_channels), stages, 8 * dim, head)


def _scaled_block(dim: int, heads: int, drop_path: float) -> SemanticBlock:
    return SemanticBlock(Attention(dim, heads), layer_scale=1e-5, drop_path=drop_path, eps=1e-5)


def stvit_r_swin_small(**options: Any) -> STViTRSwin:
    """STViT-R-Swin-S for 224 pixels: width 96, 3 heads, 3 units. Options as in `stvit_r_swin`."""
    return stvit_r_swin(96, 3, **options)


def stvit_r_swin_base(**options: Any) -> STViTRSwin:
    """STViT-R-Swin-B for 224 pixels: width 128, 4 heads, 3 units. Options as in `stvit_r_swin`."""
    return stvit_r_swin(128, 4, **{"drop_path": 0.4, **options})
