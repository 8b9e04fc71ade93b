"""Vision GNN: an image is a graph of patches that are near by their features."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

import torch
from torch import Tensor, nn

from graphtheory.graph import Grid
from graphtheory.nn import Attention, AttentionMap
from graphtheory.nn.attention import record_calls
from graphtheory.vision.models.swin import HierarchicalViT
from graphtheory.vision.models.vit import MeanToken, depth_rates, patches_along
from graphtheory.vision.nn import (
    ConvStem,
    GraphBlock,
    Grapher,
    MaxRelative,
    Message,
    NearestNeighbors,
    PositionEmbedding,
)
from graphtheory.vision.nn.grapher import GraphStage, PatchGraph
from graphtheory.vision.nn.messages import GroupedLinear
from graphtheory.vision.nn.positions import init_transformer


class ViG(HierarchicalViT):
    """Overlapping patches, blocks on graphs of near ones, the mean patch.

    `vig`, `pyramid_vig` and the named constructors put the parts together. Norms are over the
    batch: in training one image alone is an error of the head's.

    Args:
        stem: Makes nodes of images.
        position: Of the nodes.
        stages: First to last.
        head: Takes the nodes [B, T, dim] of the last grid.

    Shapes:
        images [B, C, H, W] of any size -> what `head` gives.

    Source:
        Han et al. (2022), Vision GNN, and its released code. Parameters and operations are the
        published ones to their last digit, if an operation is counted for each entry of a norm as
        there, but for two sizes: of ViG-Ti 7.18 M for 7.1 M, of Pyramid ViG-B 92.98 M for 82.6 M,
        with 16.8 G operations for 16.8 G. Of Pyramid ViG-M the published 51.7 M count 2.16 M of
        fixed tables of places, those of the others do not; no such table is kept here.
        Differs: see `MaxRelative` and `NearestNeighbors`; nodes left over at the border are
        averaged in smaller groups.

    Example:
        >>> model = vig_nano(out_channels=10)
        >>> model(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        stem: ConvStem,
        position: PositionEmbedding,
        stages: Sequence[GraphStage],
        head: nn.Module,
    ) -> None:
        super().__init__()
        self.stem, self.position = stem, position
        self.stages, self.head = nn.ModuleList(stages), head
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        for part in self.modules():
            if isinstance(part, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(part.weight, generator=generator)
                assert part.bias is not None
                nn.init.zeros_(part.bias)
            elif isinstance(part, GroupedLinear):
                part.reset_parameters(generator)
            elif isinstance(part, nn.modules.batchnorm._BatchNorm):
                part.reset_parameters()
        for part in self.modules():
            if isinstance(part, Attention):
                init_transformer(part, generator)
        nn.init.zeros_(self.position.table)

    def embed(self, images: Tensor) -> tuple[Tensor, Grid]:
        x, grid = self.stem(images)
        return x + self.position(grid).repeat(grid.count, 1), grid

    def tokens(self, images: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        x, grid = self.features(images, generator=generator)[-1]
        return x.view(grid.count, grid.size, -1)

    def graphs(self, images: Tensor) -> list[PatchGraph]:
        """The graph of each block: ``neighborhood.edge_index()``, or `drawing` for a picture."""
        return record_calls(self, lambda part: isinstance(part, Grapher), Grapher.graph, images)

    def attention_maps(self, images: Tensor) -> list[AttentionMap]:
        """Who sent to whom in each block, and what each edge had part in, [E, heads].

        With `MaxRelative` that is the share of features in which the source is the largest. Nodes
        are the patches of the block's grid, or means of them, image by image, row by row.
        """
        return [AttentionMap(found.neighborhood, found.weights) for found in self.graphs(images)]


def vig(
    dim: int,
    depth: int,
    *,
    out_channels: int = 1000,
    image_size: int = 224,
    patch_size: int = 16,
    in_channels: int = 3,
    neighbors: int = 9,
    message: Callable[[int], Message] = MaxRelative,
    head_width: int = 1024,
    drop_path: float = 0.0,
) -> ViG:
    """A network of equal blocks on one grid.

    The neighbors grow over the blocks from `neighbors` to twice as many, the dilation by one every
    four blocks.

    Args:
        dim: Features of a node, a multiple of 4.
        depth: Blocks.
        out_channels: Classes.
        image_size: As in `vit`.
        patch_size: Distance of two nodes in pixels, a power of 2.
        in_channels: Channels of an image.
        neighbors: Sources of a node in the first block.
        message: Makes the message for a width: `MaxRelative`, `EdgeMessage`,
            `SageMessage`, `AttentionMessage`.
        head_width: Features of the hidden layer of the head.
        drop_path: As in `vit`.

    Raises:
        ValueError: A patch that is no power of 2, or one that does not divide the image.
    """
    side = _side(image_size, patch_size)
    most = max(side**2 // (2 * neighbors), 1)

    def block(i: int, drop: float) -> GraphBlock:
        k = neighbors + neighbors * i // max(depth - 1, 1)
        nearest = NearestNeighbors(k, min(i // 4 + 1, most))
        return GraphBlock(Grapher(message(dim), nearest, drop_path=drop))

    blocks = [block(i, drop) for i, drop in enumerate(depth_rates(drop_path, depth))]
    stem = _stem(dim, patch_size, in_channels)
    head = _head(dim, head_width, out_channels)
    return ViG(stem, PositionEmbedding(dim, side, side), [GraphStage(blocks)], head)


def pyramid_vig(
    dims: Sequence[int],
    depths: Sequence[int],
    *,
    out_channels: int = 1000,
    image_size: int = 224,
    patch_size: int = 4,
    in_channels: int = 3,
    neighbors: int = 9,
    reduce: Sequence[int] = (4, 2, 1, 1),
    message: Callable[[int], Message] = MaxRelative,
    head_width: int = 1024,
    drop_path: float = 0.0,
) -> ViG:
    """A network of stages on ever coarser grids, in which close places count as near, too.

    Each stage has features of a node `dims`, multiples of 4, `depths` blocks, and sources that are
    means of `reduce` rows and columns of nodes. The patch size is that of the first stage. All
    other arguments as in `vig`; the number of neighbors does not grow.

    Raises:
        ValueError: As in `vig`; lists of other lengths.
    """
    for name, given in (("depths", depths), ("reduce", reduce)):
        if len(given) != len(dims):
            raise ValueError(f"{name}: {len(given)} stages, expected {len(dims)} as many as dims")
    side, last = _side(image_size, patch_size), -(-image_size // (patch_size << (len(dims) - 1)))
    rates, most = enumerate(depth_rates(drop_path, sum(depths))), last**2 // neighbors

    def block(dim: int, ratio: int, j: int, drop: float) -> GraphBlock:
        nearest = NearestNeighbors(neighbors, max(min(j // 4 + 1, most), 1))
        grapher = Grapher(message(dim), nearest, reduce=ratio, with_place=True, drop_path=drop)
        return GraphBlock(grapher)

    stages: list[GraphStage] = []
    for i, (dim, depth, ratio) in enumerate(zip(dims, depths, reduce, strict=True)):
        blocks = [block(dim, ratio, *at) for at in islice(rates, depth)]
        stages.append(GraphStage(blocks, ConvStem((dim,), (2,), dims[i - 1]) if i else None))
    stem = _stem(dims[0], patch_size, in_channels)
    head = _head(dims[-1], head_width, out_channels)
    return ViG(stem, PositionEmbedding(dims[0], side, side), stages, head)


def _side(image_size: int, patch_size: int) -> int:
    if patch_size < 2 or patch_size & (patch_size - 1):
        raise ValueError(f"patch_size: got {patch_size}, expected a power of 2, at least 2")
    return patches_along(image_size, patch_size)


def _stem(dim: int, patch_size: int, in_channels: int) -> ConvStem:
    """Convolutions that halve the image and double the width, and one more."""
    halvings = patch_size.bit_length() - 1
    widths = [dim >> (halvings - 1 - i) for i in range(halvings)]
    return ConvStem([*widths, dim], [2] * halvings + [1], in_channels)


def _head(dim: int, width: int, out_channels: int) -> MeanToken:
    return MeanToken(
        nn.Sequential(
            nn.Linear(dim, width), nn.BatchNorm1d(width), nn.GELU(), nn.Linear(width, out_channels)
        )
    )


vig_tiny = partial(vig, 192, 12, drop_path=0.1)
"""ViG-Ti for 224 pixels: width 192, 12 blocks. Options as in `vig`."""
vig_small = partial(vig, 320, 16, drop_path=0.1)
"""ViG-S for 224 pixels: width 320, 16 blocks. Options as in `vig`."""
vig_base = partial(vig, 640, 16, drop_path=0.1)
"""ViG-B for 224 pixels: width 640, 16 blocks. Options as in `vig`."""
vig_nano = partial(vig, 128, 6, image_size=32, patch_size=4, neighbors=5, head_width=256)
"""For 32 or 28 pixels, nodes 4 pixels apart: width 128, 6 blocks, 5 to 10 neighbors."""
pyramid_vig_tiny = partial(pyramid_vig, (48, 96, 240, 384), (2, 2, 6, 2), drop_path=0.1)
"""Pyramid ViG-Ti for 224 pixels: 12 blocks of width 48 to 384. Options as in `pyramid_vig`."""
pyramid_vig_small = partial(pyramid_vig, (80, 160, 400, 640), (2, 2, 6, 2), drop_path=0.1)
"""Pyramid ViG-S for 224 pixels: 12 blocks of width 80 to 640. Options as in `pyramid_vig`."""
pyramid_vig_medium = partial(pyramid_vig, (96, 192, 384, 768), (2, 2, 16, 2), drop_path=0.1)
"""Pyramid ViG-M for 224 pixels: 22 blocks of width 96 to 768. Options as in `pyramid_vig`."""
pyramid_vig_base = partial(pyramid_vig, (128, 256, 512, 1024), (2, 2, 18, 2), drop_path=0.1)
"""Pyramid ViG-B for 224 pixels: 24 blocks of width 128 to 1024. Options as in `pyramid_vig`."""
