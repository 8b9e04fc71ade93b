"""Semantic tokens of windows that give back what they learned: the unit of STViT-R."""

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from graphtheory.graph import Grid, Neighborhood, bipartite, cliques
from graphtheory.nn import AttentionMap, Block
from graphtheory.vision.models.swin import ReorderedAttention, SwinStage
from graphtheory.vision.nn.centers import tokens_and_patches
from graphtheory.vision.nn.positions import draw_parameter


class DumbbellSets(NamedTuple):
    """Who attends to whom in a unit; semantic tokens count window by window."""

    pooled: Tensor  # patches of each bin, [tokens, k]; the number of patches stands for none
    # of each window its tokens, then the patches in and around it, as places in the tokens and
    # patches of an image
    near: Tensor
    of_near: Neighborhood  # tokens of a window attend to those
    of_both: Neighborhood  # all tokens of an image to all of its tokens and patches
    within: Neighborhood  # tokens to those of their window
    among: Neighborhood  # tokens to those of their image
    back: Neighborhood  # patches to the tokens of their image


@lru_cache(maxsize=32)
def dumbbell_sets(
    grid: Grid, window: int, side: int, reach: int, device: torch.device
) -> DumbbellSets:
    """The sets of a grid of patches, with arguments as in `WindowTokens` (kept)."""
    with torch.inference_mode(False):
        pooled, near = _places(grid, window, side, reach)
        count, images, size = len(pooled), grid.count, grid.size
        found = (
            bipartite([side**2] * (len(near) * images), [len(n) for n in near] * images),
            bipartite([count] * images, [count + size] * images),
            cliques([side**2] * (len(near) * images)),
            cliques([count] * images),
            bipartite([size] * images, [count] * images),
        )
        moved = (nb.to(device) for nb in found)
        return DumbbellSets(pooled.to(device), torch.cat(near).to(device), *moved)


def _places(grid: Grid, window: int, side: int, reach: int) -> tuple[Tensor, list[Tensor]]:
    """Of one image: the patches of each bin, and what the tokens of each window see."""
    rows, columns = (
        [slice(first, min(first + window, length)) for first in range(0, length, window)]
        for length in (grid.height, grid.width)
    )
    patch = torch.arange(grid.size).view(grid.height, grid.width)
    count, tokens = len(rows) * len(columns) * side**2, torch.arange(side**2)
    bins: list[Tensor] = []
    near = []
    for row, column in product(rows, columns):
        around = patch[_wider(row, reach), _wider(column, reach)].flatten()
        near.append(torch.cat([len(bins) + tokens, count + around]))
        inside = patch[row, column]
        cuts = product(*(_bins(length, side) for length in inside.shape))
        bins += [inside[r, c].flatten() for r, c in cuts]
    padded = nn.utils.rnn.pad_sequence(bins, batch_first=True, padding_value=grid.size)
    return padded, near


def _wider(cut: slice, reach: int) -> slice:
    return slice(max(cut.start - reach, 0), cut.stop + reach)


def _bins(length: int, side: int) -> list[slice]:
    """Where adaptive pooling cuts a row of that length."""
    return [slice(i * length // side, -(-(i + 1) * length // side)) for i in range(side)]


class WindowTokens(ReorderedAttention):
    r"""Semantic tokens of windows: centers of each, two layers that attend to patches, and others.

    .. math:: S_1 = \operatorname{Block}(P; [P, X]_{\text{near}}), \quad
        S_2 = \operatorname{Block}(S_1 + G; [S_1, X])

    P is the largest entry, feature by feature, of each of side x side bins of a window. A token
    attends to the patches in and around its window, then to all of its image. Further blocks are on
    tokens alone, by turns among those of a window and among all of an image.

    Args:
        blocks: At least the two.
        window: Rows and columns of a window, in patches.
        side: Rows and columns of semantic tokens in a window.
        tokens: Tokens of an image that learn a G, which fixes the size of images; None has no G.
        reach: Rows and columns around a window that its tokens see.
        shortcut: Whether the attention of the first block is added to P.

    Shapes:
        x [B * h * w, dim] and its grid -> [B * tokens, dim], window by window; `token_order` has
        them row by row.

    Raises:
        ValueError: Fewer than two blocks; in a forward pass images of another size than G.

    Source:
        Chang et al. (2023), Making vision transformers efficient from a token sparsification view,
        section 3.2 for Swin, with what their released code has beyond it: the reach of 3 (10 x 10
        patches of 14 x 14) and no shortcut. Differs: around an inner window of a larger grid there
        are 13 x 13 patches; a grid that the window does not divide has smaller windows at its
        border and nothing is padded or masked.
    """

    def __init__(
        self,
        blocks: list[Block],
        *,
        window: int = 7,
        side: int = 3,
        tokens: int | None = None,
        reach: int = 3,
        shortcut: bool = False,
    ) -> None:
        super().__init__()
        if len(blocks) < 2:
            raise ValueError(f"blocks: got {len(blocks)}, expected at least 2")
        self.blocks = nn.ModuleList(blocks)
        self.window, self.side, self.reach, self.shortcut = window, side, reach, shortcut
        shape = None if tokens is None else (tokens, blocks[0].attention.dim)
        self.global_centers = None if shape is None else nn.Parameter(torch.zeros(shape))

    def reset_parameters(self, generator: Generator | None = None) -> None:
        if self.global_centers is not None:
            draw_parameter(self.global_centers, generator)

    def sets(self, grid: Grid, device: torch.device) -> DumbbellSets:
        """Who attends to whom on a grid of patches."""
        return dumbbell_sets(grid, self.window, self.side, self.reach, device)

    def on_nodes(self, x: Tensor, grid: Grid, *_: Any) -> list[Callable[[AttentionMap], Any]]:
        """Of the sources of a window the tokens and then the patches of the image, row by row."""
        sets = self.sets(grid, x.device)
        many, listed = sets.of_both.num_src, len(sets.near)

        def near(found: AttentionMap) -> AttentionMap:
            rows, places = found.neighborhood.indptr, found.neighborhood.indices
            image = places.div(listed, rounding_mode="floor")
            sources = image * (many // grid.count) + sets.near[places % listed]
            return AttentionMap(Neighborhood(rows, sources, many, validate=False), found.weights)

        return [near]

    def tokens(
        self, x: Tensor, grid: Grid, generator: Generator | None = None, others: int = 0
    ) -> Tensor:
        """Semantic tokens after the first two blocks and as many `others`."""
        sets, options = self.sets(grid, x.device), {"images": grid.count, "generator": generator}
        near, both, *rest = self.blocks
        centers = _pool(x, grid, sets.pooled)
        sources = tokens_and_patches(centers, x, grid.count)[:, sets.near].flatten(0, 1)
        residual = None if self.shortcut else torch.zeros_like(centers)
        tokens = near(centers, sets.of_near, sources=sources, residual=residual, **options)
        sources = tokens_and_patches(tokens, x, grid.count).flatten(0, 1)
        if self.global_centers is not None:
            made, learned = len(tokens) // max(grid.count, 1), len(self.global_centers)
            if made != learned:
                raise ValueError(f"images: of {made} semantic tokens, expected {learned} as G has")
            tokens = tokens + self.global_centers.repeat(grid.count, 1)
        tokens = both(tokens, sets.of_both, sources=sources, **options)
        for i, block in enumerate(rest[:others]):
            tokens = block(tokens, sets.among if i % 2 else sets.within, **options)
        return tokens

    def forward(self, x: Tensor, grid: Grid, generator: Generator | None = None) -> Tensor:
        return self.tokens(x, grid, generator, len(self.blocks) - 2)


class Dumbbell(WindowTokens):
    r"""Six layers: patches in windows, semantic tokens of them, tokens among themselves, and back.

    .. math:: X_1 = \operatorname{Swin}(X), \quad S_2 = \operatorname{WindowTokens}(X_1), \quad
        X' = \operatorname{Block}(X_1; \operatorname{Block}(\operatorname{Block}(S_2)))

    Tokens attend to those of their window, then to all of their image. In the last block patches
    attend to all tokens.

    Args:
        swin: The first block, with its bias by relative position.
        blocks: The other five.
        options: Of `WindowTokens`.

    Shapes:
        x [B * h * w, dim] and its grid -> the same.

    Raises:
        ValueError: Not five blocks.

    Source:
        Chang et al. (2023), section 3.3, with G in the first unit alone as in their released code.
        Differs: see `WindowTokens`.
    """

    def __init__(self, swin: Block, blocks: list[Block], **options: Any) -> None:
        if len(blocks) != 5:
            raise ValueError(f"blocks: got {len(blocks)}, expected 5 after the one on patches")
        super().__init__(blocks, **options)
        self.swin = SwinStage([swin], self.window)

    def forward(self, x: Tensor, grid: Grid, generator: Generator | None = None) -> Tensor:
        x, _ = self.swin(x, grid, generator)
        tokens, back = self.tokens(x, grid, generator, others=2), self.blocks[4]
        sets = self.sets(grid, x.device)
        return back(x, sets.back, sources=tokens, images=grid.count, generator=generator)


@lru_cache(maxsize=32)
def token_order(
    grid: Grid, window: int, side: int, device: torch.device
) -> tuple[Grid, Tensor, Tensor]:
    """The grid of the semantic tokens of a grid of patches; arguments as in `WindowTokens` (kept).

    Returns:
        The grid; the token, window by window, that lies at each of its places; and the reverse.

    Example:
        >>> grid, order, _ = token_order(Grid(1, 4, 8), 4, 2, torch.device("cpu"))
        >>> grid, order.tolist()
        (Grid(count=1, height=2, width=4), [0, 1, 4, 5, 2, 3, 6, 7])
    """
    with torch.inference_mode(False):
        rows, columns = (-(-length // window) for length in (grid.height, grid.width))
        made = Grid(grid.count, rows * side, columns * side)
        ids = torch.arange(made.num_nodes).view(grid.count, rows, columns, side, side)
        order = ids.transpose(2, 3).flatten().to(device)
        return made, order, order.argsort()


def _pool(x: Tensor, grid: Grid, bins: Tensor) -> Tensor:
    """The largest entries of each bin, [B * tokens, dim]."""
    lowest = nn.functional.pad(x.view(grid.count, grid.size, -1), (0, 0, 0, 1), value=-torch.inf)
    return lowest[:, bins].amax(2).flatten(0, 1)
