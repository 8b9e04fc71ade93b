"""What STViT and STViT-R on Swin share: stages on grids, the third of which has semantic tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphtheory.graph import Grid
from graphtheory.nn import Attention
from graphtheory.nn.attention import record_calls
from graphtheory.vision.models.dumbbell import Dumbbell, WindowTokens, token_order
from graphtheory.vision.models.swin import PatchMerging, Staged, SwinStage


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


class SemanticStage(nn.Module):
    """Blocks on patches, semantic tokens of them, and a linear map in place of a merging.

    Args:
        base: Shifted windows on the patches, without a merging.
        semantic: Makes the tokens, which go on alone.
        widen: Of each token.

    Shapes:
        x [B * h * w, dim] and its grid -> tokens [B * M, 2 dim] and theirs, `side` rows and columns
        for each window.
    """

    def __init__(self, base: SwinStage, semantic: WindowTokens, widen: nn.Linear) -> None:
        super().__init__()
        self.base, self.semantic, self.widen = base, semantic, widen

    def forward(
        self, x: Tensor, grid: Grid, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Grid]:
        """Semantic tokens row by row, and the grid on which they lie."""
        x, grid = self.base(x, grid, generator)
        made, order, _ = token_order(grid, self.semantic.window, self.semantic.side, x.device)
        return self.widen(self.semantic(x, grid, generator)[order]), made


class StagedSwin(Staged):
    """Patches, stages on grids, the mean patch: what STViT and STViT-R on Swin share.

    Args:
        stem: Makes nodes of images.
        stages: First to last.
        dim: Features of the last stage.
        head: Takes the normalized nodes [B, T, dim] of the last grid.
        eps: Of the last norm.

    Shapes:
        images [B, C, H, W] of any size, if no part has a G -> what `head` gives.
    """

    def __init__(
        self,
        stem: nn.Module,
        stages: Sequence[SwinStage | DumbbellStage | SemanticStage],
        dim: int,
        head: nn.Module,
        *,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.stem, self.stages = stem, nn.ModuleList(stages)
        self.norm, self.head = nn.LayerNorm(dim, eps), head
        self.reset_parameters()

    def start(self, images: Tensor) -> tuple[Tensor, Grid]:
        """Nodes of the stem, and their grid."""
        return self.stem(images)

    def assignment(self, images: Tensor) -> Tensor:
        """Weights [B, heads, M, N] of the patches in the layer that sees all of them; no dropout.

        Of several such layers, in the units of STViT-R, the last. Tokens and patches count row by
        row on their grids. A row has a sum below 1: the rest went to semantic tokens.
        """
        made: Any = [part for part in self.modules() if isinstance(part, WindowTokens)][-1]
        asked = made.blocks[1].attention

        def note(part: Any, *args: Any, **options: Any) -> Any:
            if part is made:
                return args[1]
            return part.weights(*args, **options) if part is asked else None

        found = record_calls(self, (Attention, WindowTokens), note, images)
        grid, weights = (each for each in found if each is not None)
        one = Grid(1, grid.height, grid.width)
        order = token_order(one, made.window, made.side, images.device)[1]
        weights = weights.view(len(images), len(order), -1, weights.size(1)).permute(0, 3, 1, 2)
        return weights[:, :, order, len(order) :]
