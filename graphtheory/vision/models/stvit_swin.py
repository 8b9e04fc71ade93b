"""Shifted-window transformers whose third stage works through semantic tokens: STViT, STViT-R."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from torch import Generator, Tensor, nn

from graphtheory.graph import Grid
from graphtheory.nn.attention import record_calls
from graphtheory.vision.models import swin
from graphtheory.vision.models.dumbbell import Dumbbell, WindowTokens, token_order
from graphtheory.vision.models.vit import MeanToken, depth_rates, prenorm_block
from graphtheory.vision.nn import ConvStem


class DumbbellStage(nn.Module):
    """Units on one grid, then a merging of patches; see `Dumbbell`."""

    def __init__(self, units: list[Dumbbell], merge: swin.PatchMerging | None) -> None:
        super().__init__()
        self.units, self.merge = nn.ModuleList(units), merge

    def forward(
        self, x: Tensor, grid: Grid, generator: Generator | None = None
    ) -> tuple[Tensor, Grid]:
        for unit in self.units:
            x = unit(x, grid, generator)
        return (x, grid) if self.merge is None else self.merge(x, grid)


class SemanticStage(nn.Module):
    """Blocks on patches, semantic tokens of them, and a linear map in place of a merging.

    Shapes:
        x [B * h * w, dim] and its grid -> tokens [B * M, 2 dim] and theirs, `side` rows and columns
        for each window.
    """

    def __init__(self, base: swin.SwinStage, semantic: WindowTokens, widen: nn.Linear) -> None:
        super().__init__()
        self.base, self.semantic, self.widen = base, semantic, widen

    def forward(
        self, x: Tensor, grid: Grid, generator: Generator | None = None
    ) -> tuple[Tensor, Grid]:
        x, grid = self.base(x, grid, generator)
        made, order, _ = token_order(grid, self.semantic.window, self.semantic.side, x.device)
        return self.widen(self.semantic(x, grid, generator)[order]), made


class StagedSwin(swin.HierarchicalViT):
    """Patches, stages on grids, the mean patch: what STViT and STViT-R on Swin share.

    Shapes: images [B, C, H, W] of any size, if no part has a G -> what `head` gives.
    """

    def __init__(
        self, stem: nn.Module, stages: Sequence[nn.Module], dim: int, head: nn.Module
    ) -> None:
        super().__init__()
        self.stem, self.stages = stem, nn.ModuleList(stages)
        self.norm, self.head = nn.LayerNorm(dim), head
        self.reset_parameters()

    def embed(self, images: Tensor) -> tuple[Tensor, Grid]:
        return self.stem(images)

    def assignment(self, images: Tensor) -> Tensor:
        """Weights [B, heads, M, N] of the patches in the layer that sees all of them; no dropout.

        Of several such layers, in the units of STViT-R, the last. Tokens and patches count row by
        row on their grids. A row has a sum below 1: the rest went to semantic tokens.
        """
        made: Any = [part for part in self.modules() if isinstance(part, WindowTokens)][-1]
        asked = (made, made.blocks[1].attention)

        def note(part: Any, *args: Any, **options: Any) -> Any:
            return args[1] if part is made else part.weights(*args, **options)

        grid, weights = record_calls(self, asked.__contains__, note, images)
        one = Grid(1, grid.height, grid.width)
        order = token_order(one, made.window, made.side, images.device)[1]
        weights = weights.view(len(images), len(order), -1, weights.size(1)).permute(0, 3, 1, 2)
        return weights[:, :, order, len(order) :]


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
        stem: Makes nodes of images, such as a `PatchEmbedding`; None are the two convolutions of
            STViT-R.
        in_channels: Channels of an image.
        drop_path: Probability that an image skips the last block; earlier ones have less.
        attention: Options of every `nn.Attention`, such as ``pattern=TopK(0.5)``.
    """
    rates = iter(depth_rates(drop_path, base + semantic + 8))
    stage = _stages(dim, heads, window, rates, attention)
    patches = [stage(0, 2), stage(1, 2), stage(2, base, merge=False)]
    blocks = [
        prenorm_block(4 * dim, 4 * heads, drop_path=p, eps=1e-5, **attention)
        for p in islice(rates, 2 + semantic)
    ]
    made = WindowTokens(blocks, window=window, side=side, tokens=tokens, shortcut=True)
    stages = [
        *patches[:2],
        SemanticStage(patches[2], made, nn.Linear(4 * dim, 8 * dim)),
        stage(3, 2, window=side, merge=False),
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
    rates = iter(depth_rates(drop_path, 6 * units + 6))
    stage = _stages(dim, heads, window, rates, attention)
    patches, made = [stage(0, 2), stage(1, 2)], list[Dumbbell]()
    for unit in range(units):
        first = swin.window_block(4 * dim, 4 * heads, window, drop_path=next(rates), **attention)
        others = [
            prenorm_block(4 * dim, 4 * heads, drop_path=p, layer_scale=1e-5, eps=1e-5, **attention)
            for p in islice(rates, 5)
        ]
        own = None if unit else tokens
        made.append(Dumbbell(first, others, window=window, side=side, tokens=own))
    stages = [*patches, DumbbellStage(made, swin.PatchMerging(4 * dim)), stage(3, 2, merge=False)]
    head = MeanToken(nn.Linear(8 * dim, out_channels))
    return STViTRSwin(_stem(dim, in_channels), stages, 8 * dim, head)


def _stages(
    dim: int, heads: int, window: int, rates: Iterator[float], attention: dict[str, Any]
) -> Callable[..., swin.SwinStage]:
    """Makes stage i of this many blocks, with the next rates of stochastic depth."""

    def stage(i: int, depth: int, *, window: int = window, merge: bool = True) -> swin.SwinStage:
        sizes = (dim * 2**i, heads * 2**i, window, islice(rates, depth))
        return swin.window_stage(*sizes, merge=merge, **attention)

    return stage


def _stem(dim: int, in_channels: int) -> ConvStem:
    widths = (dim // 2, dim)
    return ConvStem(widths, (2, 2), in_channels, activation=nn.Hardswish, activate_last=True)


stvit_r_swin_small = partial(stvit_r_swin, 96, 3)
"""STViT-R-Swin-S for 224 pixels: width 96, 3 heads, 3 units."""
stvit_r_swin_base = partial(stvit_r_swin, 128, 4, drop_path=0.4)
"""STViT-R-Swin-B for 224 pixels: width 128, 4 heads, 3 units."""
