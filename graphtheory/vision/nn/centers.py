"""Semantic tokens in place of all patches: their first centers, and the layers that update them."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isqrt

import torch
from torch import Generator, Tensor, nn

from graphtheory.graph import Grid, Neighborhood
from graphtheory.nn.blocks import Block
from graphtheory.vision.nn.patch import check_nodes, from_map, to_map
from graphtheory.vision.nn.positions import draw_parameter


class Centers(nn.Module):
    """The first centers P of the semantic tokens of an image; a kind of them defines `pool`.

    Args:
        tokens: M, centers of an image.

    Shapes:
        x [B * h * w, dim] and its grid -> [B * M, dim], image by image.

    Raises:
        ValueError: No token; not as many nodes as the grid has; more tokens than it has patches.
    """

    def __init__(self, tokens: int) -> None:
        super().__init__()
        if tokens < 1:
            raise ValueError(f"tokens: got {tokens}, expected at least 1")
        self.tokens = tokens

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Draw anew what is neither a linear map nor a convolution."""

    def pool(self, x: Tensor, grid: Grid) -> Tensor:
        """Centers [B, M, dim] of the patches x [B, h * w, dim]."""
        raise NotImplementedError

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        check_nodes(x, grid)
        if self.tokens > grid.size:
            raise ValueError(
                f"tokens: {self.tokens} semantic tokens of {grid.size} patches, expected no more"
            )
        return self.pool(x.view(grid.count, grid.size, -1), grid).flatten(0, 1)


def centers_of(tokens: int | Centers, kind: Callable[[int], Centers]) -> Centers:
    """The centers themselves, or those of a kind of them on a square of as many tokens."""
    if isinstance(tokens, Centers):
        return tokens
    if not isinstance(tokens, int) or tokens < 1 or isqrt(tokens) ** 2 != tokens:
        raise ValueError(f"tokens: got {tokens}, expected a square number or a kind of Centers")
    return kind(isqrt(tokens))


class OnGrid(Centers):
    """Centers on a grid, by a pooling of maps. Args: side, g, for g * g centers."""

    pooling: Callable[..., Tensor]

    def __init__(self, side: int) -> None:
        if side < 1:
            raise ValueError(f"side: got {side}, expected at least 1 row and column of centers")
        super().__init__(side**2)
        self.side = side

    def pool(self, x: Tensor, grid: Grid) -> Tensor:
        maps = self.pooling(to_map(x.flatten(0, 1), grid), self.side)
        return from_map(maps)[0].view(grid.count, self.tokens, -1)


class AveragePool(OnGrid):
    """The mean of each bin; bin i of n patches is [floor(i n / g), ceil((i + 1) n / g)).

    Args:
        side: g, for g * g centers.

    Example:
        >>> AveragePool(2)(torch.arange(9.0)[:, None], Grid(1, 3, 3)).flatten().tolist()
        [2.0, 3.0, 5.0, 6.0]
    """

    pooling = staticmethod(nn.functional.adaptive_avg_pool2d)


class MaxPool(OnGrid):
    """The largest entry, feature by feature, of each bin of `AveragePool`. Arguments as there."""

    pooling = staticmethod(nn.functional.adaptive_max_pool2d)


class MaskPool(OnGrid):
    r"""Intra-window pooling: a center is the mean of its window under learned weights.

    .. math:: p = \sum_{i \in W} x_i \operatorname{softmax}_{i \in W}
        \big(w^\top \operatorname{GELU}(\operatorname{LN}(\operatorname{DWConv}(x)_i))\big)

    A side of n patches is cut into g windows of k = ceil(n / g), with k g - n zeros around them, on
    both ends alike and the odd one behind. Zeros enter the convolution, which sees one window
    alone, and no weight goes to them. Where that would leave a window empty, the windows are the
    bins of `AveragePool`.

    Args:
        side: g, for g * g centers.
        dim: Features of a patch.
        eps: Of the norm.

    Source:
        Chang et al. (2023), Making vision transformers efficient from a token sparsification view,
        section 3.2, and the authors' own lines for 14 x 14 patches and 16 centers. Differs: those
        add -100 to the logits of padding; the learned offset between windows was never published
        and is left out.

    Example:
        >>> MaskPool(4, dim=8)(torch.randn(2 * 196, 8), Grid(2, 14, 14)).shape
        torch.Size([32, 8])
    """

    def __init__(self, side: int, dim: int, *, eps: float = 1e-6) -> None:
        super().__init__(side)
        self.dim, self.eps = dim, eps
        self.depthwise = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)
        self.norm, self.score = nn.LayerNorm(dim, eps), nn.Linear(dim, 1, bias=False)

    def pool(self, x: Tensor, grid: Grid) -> Tensor:
        # A trace of torch.export may neither fill nor use the cache.
        windows_of = _windows.__wrapped__ if torch.compiler.is_exporting() else _windows
        place = windows_of(grid.height, grid.width, self.side, x.device)  # [M, k, k]
        with_zero = nn.functional.pad(x, (0, 0, 0, 1))
        windows = with_zero.index_select(1, place.flatten()).view(-1, *place.shape[1:], x.size(2))
        logits = self.logits(windows).view(grid.count, self.tokens, -1)
        weights = logits.masked_fill((place == grid.size).flatten(1), -torch.inf).softmax(2)
        return (weights.view(-1, 1, weights.size(2)) @ windows.flatten(1, 2)).view(
            grid.count, self.tokens, -1
        )

    def logits(self, windows: Tensor) -> Tensor:
        """One number [W, k, k] for each place of windows [W, k, k, dim]."""
        seen = self.depthwise(windows.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return self.score(nn.functional.gelu(self.norm(seen))).squeeze(3)


class MultiScale(Centers):
    """The centers of several kinds, one after the other.

    Args:
        parts: Such as 3 x 3 and 4 x 4 of `AveragePool`, in the same supplement, table 8.

    Raises:
        ValueError: No part.
    """

    def __init__(self, parts: Sequence[Centers]) -> None:
        if not parts:
            raise ValueError("parts: none, expected at least one kind of centers")
        super().__init__(sum(part.tokens for part in parts))
        self.parts = nn.ModuleList(parts)

    def reset_parameters(self, generator: Generator | None = None) -> None:
        for part in self.parts:
            assert isinstance(part, Centers)
            part.reset_parameters(generator)

    def pool(self, x: Tensor, grid: Grid) -> Tensor:
        found = [part(x.flatten(0, 1), grid) for part in self.parts]
        return torch.cat([p.view(grid.count, -1, x.size(2)) for p in found], 1)


class LearnedCenters(Centers):
    """Centers that do not look at the image: the same learned vectors for all.

    Args:
        tokens: M.
        dim: Features of a patch.
    """

    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__(tokens)
        self.dim = dim
        self.table = nn.Parameter(torch.zeros(tokens, dim))
        self.reset_parameters()

    def reset_parameters(self, generator: Generator | None = None) -> None:
        draw_parameter(self.table, generator)

    def pool(self, x: Tensor, grid: Grid) -> Tensor:
        return self.table.expand(grid.count, -1, -1)


class SemanticTokens(nn.Module):
    r"""Semantic tokens of the patches X: centers P, then layers that attend to the patches.

    .. math:: S_1 = \operatorname{Block}(P; X), \qquad
        S_2 = \operatorname{Block}(S_1 + G; [S_1, X])

    G, a learned vector for each token, is added to the second query alone, not to keys and values.
    X is not changed. Further layers are as the second, without G.

    Args:
        centers: Makes P.
        blocks: The layers, first to last.
        with_global: Whether there is a G.

    Shapes:
        x [B * N, dim] and its grid -> [B * M, dim].

    Raises:
        ValueError: No layer; a G with one layer alone.

    Source:
        Chang et al. (2023), section 3.2. One norm serves query, key and value, and the residual of
        the second layer is S_1 + G, as in the authors' released code for Swin.
    """

    def __init__(
        self, centers: Centers, blocks: Sequence[Block], *, with_global: bool = True
    ) -> None:
        super().__init__()
        least = 2 if with_global else 1
        if len(blocks) < least:
            raise ValueError(f"blocks: got {len(blocks)}, expected at least {least}")
        self.centers, self.blocks = centers, nn.ModuleList(blocks)
        shape = (centers.tokens, blocks[0].attention.dim)
        self.global_centers = nn.Parameter(torch.zeros(shape)) if with_global else None

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Draw G and learned centers anew."""
        self.centers.reset_parameters(generator)
        if self.global_centers is not None:
            draw_parameter(self.global_centers, generator)

    def forward(
        self,
        x: Tensor,
        grid: Grid,
        of_patches: Neighborhood,
        of_both: Neighborhood,
        *,
        generator: Generator | None = None,
    ) -> Tensor:
        """Semantic tokens; blocks of M targets, with N sources, then with M + N of them."""
        centers = self.centers(x, grid)
        options = {"images": grid.count, "generator": generator}
        tokens = self.blocks[0](centers, of_patches, sources=x, **options)
        for i, block in enumerate(self.blocks[1:]):
            sources = tokens_and_patches(tokens, x, grid.count).flatten(0, 1)
            if self.global_centers is not None and i == 0:
                tokens = tokens + self.global_centers.repeat(grid.count, 1)
            tokens = block(tokens, of_both, sources=sources, **options)
        return tokens


def tokens_and_patches(tokens: Tensor, x: Tensor, images: int) -> Tensor:
    """The tokens of each image, followed by its patches, [B, M + N, dim]."""
    return torch.cat([t.view(images, len(t) // max(images, 1), -1) for t in (tokens, x)], 1)


def _cut(length: int, parts: int) -> Tensor:
    """Places of `parts` windows in a row of `length`, [parts, k]; -1 is padding."""
    window, first = torch.arange(parts), -(-length // parts)
    missing = first * parts - length
    if -(-missing // 2) < first:
        place = torch.arange(first * parts).view(parts, first) - missing // 2
        return place.masked_fill((place < 0) | (place >= length), -1)
    start, end = window * length // parts, -(-(window + 1) * length // parts)
    place = start[:, None] + torch.arange(int((end - start).max()))
    return place.masked_fill(place >= end[:, None], -1)


@lru_cache(maxsize=32)
def _windows(height: int, width: int, side: int, device: torch.device) -> Tensor:
    """The patch at each place of each window, [side ** 2, k, k]; height * width is padding."""
    with torch.inference_mode(False):
        row = _cut(height, side)[:, None, :, None]
        column = _cut(width, side)[None, :, None, :]
        place = (row * width + column).masked_fill((row < 0) | (column < 0), height * width)
        return place.flatten(0, 1).to(device)
