"""Shifted-window transformers whose third stage works through semantic tokens: STViT, STViT-R."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from graphtheory.vision.models.dumbbell import Dumbbell, WindowTokens
from graphtheory.vision.models.readout import MeanToken
from graphtheory.vision.models.staged_swin import DumbbellStage, SemanticStage, StagedSwin
from graphtheory.vision.models.swin import PatchMerging, SwinStage, window_block
from graphtheory.vision.models.vit import depth_rates, prenorm_block
from graphtheory.vision.nn import ConvStem


class STViTRSwin(StagedSwin):
    """Patches, four stages of which the third is of dumbbell units, the mean patch.

    `stvit_r_swin` and the named constructors put the parts together. Arguments and shapes as in
    `StagedSwin`.

    Source:
        Chang et al. (2023), section 3.3 and the released code, whose logs say 49.626 M parameters
        and 5.826 G operations for Swin-S: here 49.626 M, and by `count_macs`, which leaves
        out norms, 5.792 G. Differs: see `WindowTokens` and `Swin`.
    """


class STViTSwin(StagedSwin):
    """Patches, four stages of which the third ends in semantic tokens, the mean token.

    `stvit_swin` and the named constructors put the parts together. Arguments and shapes as in
    `StagedSwin`.

    Source:
        Chang et al. (2023), section 3.2, and table 2 of the supplement, whose code was never
        released. The blocks on tokens alternate as in the code of STViT-R; the first layer that
        makes tokens has its residual and nothing is scaled, as the paper says and that code does
        otherwise. Unknown and chosen here: the last stage has Swin's shift and biases. The stem is
        that of STViT-R, with which `count_macs` gives 24, 26 and 26 % less than Swin-T, S
        and B, for the published 24, 25 and 25 %; with Swin's patches it is 27 % of each. Differs:
        see `WindowTokens` and `Swin`.
    """


def stvit_swin(
    dim: int,
    heads: int,
    *,
    base: int = 2,
    semantic: int = 2,
    out_channels: int = 1000,
    window: int = 7,
    side: int = 3,
    tokens: int | None = None,
    shortcut: bool = True,
    stem: nn.Module | None = None,
    in_channels: int = 3,
    drop_path: float = 0.2,
    **attention: Any,
) -> STViTSwin:
    """STViT on Swin with stages of 2, 2, base + 2 + semantic and 2 blocks.

    Args:
        dim: Features of a patch in the first stage; they double from one to the next.
        heads: Attention heads of the first stage; they double, too.
        base: Blocks on patches in the third stage.
        semantic: Blocks there on semantic tokens alone, after the two that make them.
        out_channels: Classes.
        window: Rows and columns of a window, in patches.
        side: Rows and columns of semantic tokens in a window, and of a window of tokens.
        tokens: As in `WindowTokens`; 36 for 224 pixels.
        shortcut: As in `WindowTokens`.
        stem: Makes nodes of images, such as a `PatchEmbedding`; None are the two convolutions of
            STViT-R.
        in_channels: Channels of an image.
        drop_path: Probability that an image skips the last block; earlier ones have less.
        attention: Options of every `nn.Attention`, such as ``pattern=TopK(0.5)``.
    """
    depths = (2, 2, base, 2 + semantic, 2)
    rates = iter(depth_rates(drop_path, sum(depths)))
    plain = [partial(window_block, dim * 2**i, heads * 2**i, window, **attention) for i in range(3)]
    first, second, third = (
        [make(drop_path=next(rates)) for _ in range(depth)]
        for make, depth in zip(plain, depths, strict=False)
    )
    blocks = [
        prenorm_block(4 * dim, 4 * heads, drop_path=next(rates), eps=1e-5, **attention)
        for _ in range(depths[3])
    ]
    made = WindowTokens(blocks, window=window, side=side, tokens=tokens, shortcut=shortcut)
    last = [
        window_block(8 * dim, 8 * heads, side, drop_path=next(rates), **attention) for _ in range(2)
    ]
    stages: list[SwinStage | SemanticStage] = [
        SwinStage(first, window, PatchMerging(dim)),
        SwinStage(second, window, PatchMerging(2 * dim)),
        SemanticStage(SwinStage(third, window), made, nn.Linear(4 * dim, 8 * dim)),
        SwinStage(last, side),
    ]
    stem = _stem(dim, in_channels) if stem is None else stem
    return STViTSwin(stem, stages, 8 * dim, MeanToken(nn.Linear(8 * dim, out_channels)))


stvit_swin_tiny = partial(stvit_swin, 96, 3)
"""STViT-Swin-T for 224 pixels: width 96, 3 heads, 2 + 2 + 2 blocks in the third stage."""
stvit_swin_small = partial(stvit_swin, 96, 3, base=10, semantic=6, drop_path=0.3)
"""STViT-Swin-S for 224 pixels: width 96, 3 heads, 10 + 2 + 6 blocks in the third stage."""
stvit_swin_base = partial(stvit_swin, 128, 4, base=10, semantic=6, drop_path=0.5)
"""STViT-Swin-B for 224 pixels: width 128, 4 heads, 10 + 2 + 6 blocks in the third stage."""


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
    **attention: Any,
) -> STViTRSwin:
    """STViT-R on Swin with stages of 2, 2, 6 * units and 2 layers.

    `units` are the dumbbell units of the third stage, `tokens` are those of the first unit, as in
    `Dumbbell`, 36 for 224 pixels. All other arguments as in `stvit_swin`.
    """
    rates = depth_rates(drop_path, 6 * units + 6)
    plain = [partial(window_block, dim * 2**i, heads * 2**i, window, **attention) for i in range(4)]
    first, second, last = ([plain[i](drop_path=p) for p in rates[a:b]] for i, a, b in (
        (0, 0, 2), (1, 2, 4), (3, len(rates) - 2, len(rates))
    ))  # fmt: skip
    scaled = partial(prenorm_block, 4 * dim, 4 * heads, layer_scale=1e-5, eps=1e-5, **attention)
    made = []
    for unit in range(units):
        p, *rest = rates[4 + 6 * unit : 10 + 6 * unit]
        others = [scaled(drop_path=rate) for rate in rest]
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
    return STViTRSwin(_stem(dim, in_channels), stages, 8 * dim, head)


def _stem(dim: int, in_channels: int) -> ConvStem:
    widths = (dim // 2, dim)
    return ConvStem(widths, (2, 2), in_channels, activation=nn.Hardswish, activate_last=True)


stvit_r_swin_small = partial(stvit_r_swin, 96, 3)
"""STViT-R-Swin-S for 224 pixels: width 96, 3 heads, 3 units."""
stvit_r_swin_base = partial(stvit_r_swin, 128, 4, drop_path=0.4)
"""STViT-R-Swin-B for 224 pixels: width 128, 4 heads, 3 units."""
