"""Blocks on a graph of the nearest nodes by features and places, found anew in every block."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from graphtheory.graph import Grid, Neighborhood, neighbor_lists
from graphtheory.nn.blocks import DropPath
from graphtheory.vision.nn.messages import Message
from graphtheory.vision.nn.patch import ConvStem, from_map, to_map

_NUMBERS = 2**24  # similarities that exist at a time, unless one image has more


@dataclass(frozen=True)
class NearestNeighbors:
    r"""Of each node the sources whose features point most nearly in its own direction.

    .. math:: s_{ij} = 2 \Big\langle \frac{x_i}{|x_i|}, \frac{y_j}{|y_j|} \Big\rangle + p_{ij}

    The k * dilation largest are sorted and every dilation-th is taken, so that a node which is
    among its own sources comes first. With fewer sources than that the dilation shrinks, then k.
    No gradient passes. Similarities of some images at a time are in memory, and none is kept.

    Args:
        k: Sources of a node.
        dilation: Distance in the sorted list.

    Raises:
        ValueError: An entry below 1.

    Source:
        Han et al. (2022), Vision GNN, section 3.1: the least Euclidean distance of normalized
        features, which is 2 - s. Differs: too few nodes are no error.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [1.0, 0.3]])
        >>> NearestNeighbors(2)(x).tolist()
        [[0, 1], [1, 0], [2, 3], [3, 1]]
    """

    k: int = 9
    dilation: int = 1

    def __post_init__(self) -> None:
        for name in ("k", "dilation"):
            given = getattr(self, name)
            if not isinstance(given, int) or given < 1:
                raise ValueError(f"{name}: got {given!r}, expected a whole number from 1 up")

    @torch.no_grad()
    def __call__(
        self,
        x: Tensor,
        sources: Tensor | None = None,
        *,
        images: int = 1,
        place: Tensor | None = None,
    ) -> Tensor:
        """Lists of sources, nearest first, int64 [num_dst, k]: what `neighbor_lists` takes.

        Args:
            x: Targets [num_dst, dim], as many consecutive ones for each image.
            sources: [num_src, dim], likewise; None are the targets.
            images: Images, whose nodes do not see each other.
            place: The p [nodes, sources] of one image, the same for each.
        """
        query = _directions(x, images)
        key = query if sources is None else _directions(sources, images)
        many = key.size(1)
        k = min(self.k, many)
        dilation = max(1, min(self.dilation, many // max(k, 1)))
        part = max(1, _NUMBERS // max(query.size(1) * many, 1))
        found = [
            _similarity(q, y, place).topk(k * dilation, sorted=True).indices[..., ::dilation]
            for q, y in zip(query.split(part), key.split(part), strict=True)
        ]
        first = torch.arange(images, device=x.device)[:, None, None] * many
        return (torch.cat(found) + first).flatten(0, 1)


def _directions(x: Tensor, images: int) -> Tensor:
    """Vectors of length 1, [images, nodes, dim]."""
    if images < 0 or len(x) % max(images, 1):
        raise ValueError(f"images: got {images}, expected a divisor of the {len(x)} nodes")
    unit = nn.functional.normalize(x.float(), dim=1)
    return unit.view(images, len(x) // max(images, 1), x.size(1))


def _similarity(query: Tensor, key: Tensor, place: Tensor | None) -> Tensor:
    """The s of some images, [B, N, M]."""
    kind = query.device.type
    known = torch.amp.is_autocast_available(kind)  # not on the device "meta"
    with torch.autocast(kind, enabled=False) if known else nullcontext():
        found = 2 * query @ key.transpose(1, 2)  # near ones differ in late digits
    return found if place is None else found.add_(place)


@lru_cache(maxsize=32)
def position_similarity(grid: Grid, reduce: int, dim: int, device: torch.device) -> Tensor:
    """Similarity [N, M] of places: cosine of their sine-cosine encodings, 1 for a place and itself.

    The list of the N encodings, row by row, is resized bicubically to the M sources, with no regard
    to where rows end: for `reduce` above 1 a source's place is not that of the nodes of which it is
    the mean, but the one that the published weights were trained with. (kept)

    Source:
        Han et al. (2022), the code of Pyramid ViG, which resizes the columns of the table of
        similarities; that is the same.
    """
    if dim < 4 or dim % 4:
        raise ValueError(f"dim: got {dim}, expected a multiple of 4 for places")
    with torch.inference_mode(False):
        rows, columns = _codes(grid.height, dim)[:, None], _codes(grid.width, dim)[None]
        shape = (grid.height, grid.width, -1)
        code = torch.cat([rows.expand(shape), columns.expand(shape)], 2).flatten(0, 1)
        many = -(-grid.height // reduce) * -(-grid.width // reduce)
        resized = nn.functional.interpolate(code[None, None], (many, dim), mode="bicubic")[0, 0]
        parts = code.split(grid.width)  # a product of matrices would count as one of the model
        table = torch.cat([(part[:, None] * resized).sum(2) for part in parts])
        return (2 / dim * table).float().to(device)


def _codes(length: int, dim: int) -> Tensor:
    """Of each row or column, [length, dim / 2]."""
    frequency = 10000.0 ** -(torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    angle = torch.arange(length)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], 1)


def coarser(x: Tensor, grid: Grid, reduce: int) -> Tensor:
    """Means of reduce x reduce nodes, of fewer at the border: [B * ceil(h/r) * ceil(w/r), dim]."""
    if reduce == 1:
        return x
    pooled = nn.functional.avg_pool2d(
        to_map(x, grid), reduce, ceil_mode=True, count_include_pad=False
    )
    return from_map(pooled)[0]


class PatchGraph(NamedTuple):
    """Who sent to whom in one block of a network."""

    neighborhood: Neighborhood  # sources of each node, in the order of their distance
    weights: Tensor  # what each edge had part in, [num_edges, heads]; see the message
    grid: Grid  # on which the targets lie
    reduce: int  # rows and columns of targets of which a source is the mean

    def drawing(self, image: int, height: int, width: int) -> dict[str, Tensor]:
        """Of one image what `plot.image_graph` takes: `pos`, `edge_index` and `weight`.

        Sources that are means of several nodes are nodes of their own, behind the others.
        """
        if not 0 <= image < self.grid.count:
            raise ValueError(f"image: got {image}, expected 0..{self.grid.count - 1}")
        one = Grid(1, self.grid.height, self.grid.width)
        node = torch.arange(one.size)
        x, y = node % one.width + 0.5, node.div(one.width, rounding_mode="floor") + 0.5
        pos = torch.stack([x * width / one.width, y * height / one.height], 1)
        sources = coarser(pos, one, self.reduce)
        rows = slice(image * one.size, (image + 1) * one.size)
        lists = self.neighborhood.indices.view(self.neighborhood.num_dst, -1).cpu()[rows]
        sent = lists - image * len(sources) + (one.size if self.reduce > 1 else 0)
        received = node[:, None].expand_as(sent)
        weights = self.weights.detach().mean(1).view(self.neighborhood.num_dst, -1).cpu()[rows]
        return {
            "pos": torch.cat([pos, sources]) if self.reduce > 1 else pos,
            "edge_index": torch.stack([sent.flatten(), received.flatten()]),
            "weight": weights.flatten(),
        }


class Grapher(nn.Module):
    r"""A message over the nearest nodes between two linear maps, added to the nodes.

    .. math:: y = x + W_2\, \operatorname{message}(W_1 x;\, T), \qquad T = \text{nearest of } W_1 x

    Both maps are followed by a norm over the batch. The graph passes no gradient.

    Args:
        message: What a node makes of itself and its sources.
        nearest: Who they are.
        reduce: Sources are means of reduce x reduce nodes.
        with_place: Whether close places count as near, too; see `position_similarity`.
        drop_path: Probability that an image skips the branch in training.

    Shapes:
        x [B * h * w, dim] and its grid -> the same shape.

    Raises:
        ValueError: `reduce` below 1; places with a width that is no multiple of 4.

    Source: Han et al. (2022), Vision GNN, eqs. (4) and (6) to (8).

    Example:
        >>> from graphtheory.vision.nn import MaxRelative
        >>> layer = Grapher(MaxRelative(8), NearestNeighbors(3))
        >>> layer(torch.randn(2 * 12, 8), Grid(2, 3, 4)).shape
        torch.Size([24, 8])
    """

    def __init__(
        self,
        message: Message,
        nearest: NearestNeighbors,
        *,
        reduce: int = 1,
        with_place: bool = False,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        dim = message.dim
        if reduce < 1:
            raise ValueError(f"reduce: got {reduce}, expected 1 or more rows and columns")
        if with_place and dim % 4:
            raise ValueError(f"message: of width {dim}, expected a multiple of 4 for places")
        self.before = nn.Sequential(nn.Linear(dim, dim), nn.BatchNorm1d(dim))
        self.message, self.nearest = message, nearest
        self.after = nn.Sequential(nn.Linear(2 * dim, dim), nn.BatchNorm1d(dim))
        self.reduce, self.with_place = reduce, with_place
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, grid: Grid, generator: Generator | None = None) -> Tensor:
        branch = self.after(self.message(*self._ask(x, grid)))
        return x + self.drop_path(branch, grid.count, generator)

    def graph(self, x: Tensor, grid: Grid, generator: Generator | None = None) -> PatchGraph:
        """Who sends to whom in `forward` with the same arguments."""
        nodes, sources, lists = self._ask(x, grid)
        weights = self.message.weights(nodes, sources, lists)
        return PatchGraph(neighbor_lists(lists, len(sources)), weights, grid, self.reduce)

    def _ask(self, x: Tensor, grid: Grid) -> tuple[Tensor, Tensor, Tensor]:
        """Targets, sources, and the lists of the nearest sources."""
        nodes = self.before(x)
        sources = coarser(nodes, grid, self.reduce)
        place = None
        if self.with_place:
            one = Grid(1, grid.height, grid.width)
            place = position_similarity(one, self.reduce, x.size(1), x.device)
        return nodes, sources, self.nearest(nodes, sources, images=grid.count, place=place)


class GraphBlock(nn.Module):
    """A `Grapher`, then x + mlp(x), 4 times as wide, with a norm over the batch after each map.

    Args:
        grapher: The first half, which says the width.

    Shapes:
        x [B * h * w, dim] and its grid -> the same shape.
    """

    def __init__(self, grapher: Grapher) -> None:
        super().__init__()
        dim = grapher.message.dim
        self.grapher, self.drop_path = grapher, DropPath(grapher.drop_path.p)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.BatchNorm1d(4 * dim), nn.GELU(),
            nn.Linear(4 * dim, dim), nn.BatchNorm1d(dim),
        )  # fmt: skip

    def forward(self, x: Tensor, grid: Grid, generator: Generator | None = None) -> Tensor:
        x = self.grapher(x, grid, generator)
        return x + self.drop_path(self.mlp(x), grid.count, generator)


class GraphStage(nn.Module):
    """Blocks on one grid, behind a convolution that makes a coarser one of the grid before.

    Shapes: x [B * h * w, dim] and its grid -> nodes and their grid.
    """

    def __init__(self, blocks: Sequence[GraphBlock], coarser: ConvStem | None = None) -> None:
        super().__init__()
        self.coarser, self.blocks = coarser, nn.ModuleList(blocks)

    def forward(
        self, x: Tensor, grid: Grid, generator: Generator | None = None
    ) -> tuple[Tensor, Grid]:
        if self.coarser is not None:
            x, grid = self.coarser(to_map(x, grid))
        for block in self.blocks:
            x = block(x, grid, generator)
        return x, grid
