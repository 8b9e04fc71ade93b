"""Blocks on a graph of the nearest nodes by features, found anew in every block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from graphtheory.graph import Grid, Neighborhood, neighbor_lists
from graphtheory.nn.attention import record_calls
from graphtheory.nn.blocks import DropPath
from graphtheory.vision.nn.messages import Message
from graphtheory.vision.nn.nearest import (
    NearestNeighbors,
    PositionSimilarity,
    coarser,
    position_similarity,
    resized_similarity,
)
from graphtheory.vision.nn.patch import ConvStem, to_map


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
        pos = _middles(one, height, width)
        sources = coarser(pos, one, self.reduce)
        rows = slice(image * one.size, (image + 1) * one.size)
        lists = self.neighborhood.indices.view(self.neighborhood.num_dst, -1).cpu()[rows]
        sent = lists - image * len(sources) + (one.size if self.reduce > 1 else 0)
        received = torch.arange(one.size)[:, None].expand_as(sent)
        weights = self.weights.detach().mean(1).view(self.neighborhood.num_dst, -1).cpu()[rows]
        return {
            "pos": torch.cat([pos, sources]) if self.reduce > 1 else pos,
            "edge_index": torch.stack([sent.flatten(), received.flatten()]),
            "weight": weights.flatten(),
        }


def _middles(grid: Grid, height: int, width: int) -> Tensor:
    """Place (x, y) of each node of one image in pixels, [N, 2]."""
    node = torch.arange(grid.size)
    x, y = node % grid.width + 0.5, node.div(grid.width, rounding_mode="floor") + 0.5
    return torch.stack([x * width / grid.width, y * height / grid.height], 1)


class Grapher(nn.Module):
    r"""A message over the nearest nodes between two linear maps, added to the nodes.

    .. math:: y = x + W_2\, \operatorname{message}(W_1 x;\, T), \qquad T = \text{nearest of } W_1 x

    Both maps are followed by a norm over the batch. The graph passes no gradient.

    Args:
        message: What a node makes of itself and its sources.
        nearest: Who they are.
        reduce: Sources are means of reduce x reduce nodes.
        with_place: Whether close places count as near, too; see `nn.nearest.position_similarity`.
        resized_places: Whether that is `nn.nearest.resized_similarity` instead.
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
        resized_places: bool = False,
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
        self.reduce, self.with_place, self.resized_places = reduce, with_place, resized_places
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
        place: PositionSimilarity | Tensor | None = None
        if self.with_place:
            similarity = resized_similarity if self.resized_places else position_similarity
            one = Grid(1, grid.height, grid.width)
            place = similarity(one, self.reduce, x.size(1), x.device)
        return nodes, sources, self.nearest(nodes, sources, images=grid.count, place=place)


class GraphBlock(nn.Module):
    """A `Grapher`, then x + mlp(x) with a norm over the batch after each linear map.

    Args:
        grapher: The first half, which says the width.
        mlp_ratio: Width of the MLP over that of the nodes.

    Shapes:
        x [B * h * w, dim] and its grid -> the same shape.
    """

    def __init__(self, grapher: Grapher, *, mlp_ratio: int = 4) -> None:
        super().__init__()
        dim = grapher.message.dim
        self.grapher, self.drop_path = grapher, DropPath(grapher.drop_path.p)
        self.mlp = nn.Sequential(
            nn.Linear(dim, mlp_ratio * dim), nn.BatchNorm1d(mlp_ratio * dim), nn.GELU(),
            nn.Linear(mlp_ratio * dim, dim), nn.BatchNorm1d(dim),
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


def patch_graphs_of(model: nn.Module, *inputs: Any) -> list[PatchGraph]:
    """Run a model in evaluation mode and note the graph of every `Grapher` in it, in order."""
    return record_calls(model, Grapher, Grapher.graph, *inputs)
