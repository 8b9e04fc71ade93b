"""Nodes on a grid, image by image: adjacent nodes, and windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphtheory.graph.build import cliques
from graphtheory.graph.neighborhood import Neighborhood


@dataclass(frozen=True)
class Grid:
    """Images of height x width nodes each; nodes are numbered image by image, row by row.

    Args:
        count: Number of images.
        height: Rows of nodes in an image.
        width: Columns of nodes in an image.

    Raises:
        ValueError: If an entry is not a count, or if there are no rows or no columns.

    Example:
        >>> Grid(2, 3, 4).num_nodes
        24
    """

    count: int
    height: int
    width: int

    def __post_init__(self) -> None:
        for name, least in (("count", 0), ("height", 1), ("width", 1)):
            given = getattr(self, name)
            if not isinstance(given, (int, torch.SymInt)) or given < least:
                raise ValueError(f"{name}: got {given!r}, expected a whole number from {least} up")

    @property
    def size(self) -> int:
        """The number of nodes of one image."""
        return self.height * self.width

    @property
    def num_nodes(self) -> int:
        """The number of nodes of all images."""
        return self.count * self.size


def grid_neighbors(grid: Grid, *, diagonal: bool = False) -> Neighborhood:
    """The 4 nodes adjacent to each node, or the 8 around it; fewer at the border; no self-loops.

    Args:
        grid: The nodes.
        diagonal: Include the 4 diagonal ones.

    Example:
        >>> grid_neighbors(Grid(1, 2, 2)).edge_index().tolist()
        [[1, 2, 0, 3, 0, 3, 1, 2], [0, 0, 1, 1, 2, 2, 3, 3]]
    """
    ids = torch.arange(grid.num_nodes).view(grid.count, grid.height, grid.width)
    here, there = ids[:, :, 1:], ids[:, :, :-1]
    pairs = [(here, there), (ids[:, 1:], ids[:, :-1])]
    if diagonal:
        pairs += [(here[:, 1:], there[:, :-1]), (there[:, 1:], here[:, :-1])]
    one_way = torch.cat([torch.stack([a.flatten(), b.flatten()]) for a, b in pairs], 1)
    both = torch.cat([one_way, one_way.flip(0)], 1)
    both = both[:, both[0].argsort()]  # sources of a row ascend
    return Neighborhood.from_edge_index(both, num_nodes=grid.num_nodes)


class Windows(NamedTuple):
    """Windows of a grid as sets of consecutive positions.

    Attributes:
        neighborhood: Each position aggregates from all positions of its window.
        order: Node at each position, int64 [num_nodes]: ``x[order]`` reorders nodes to positions.
        place: Position of each node, int64 [num_nodes]: ``x[place]`` reorders positions to nodes.
        relative: (dy + size - 1) * (2 * size - 1) + dx + size - 1 for each edge, where the target
            is dy rows below and dx columns right of the source; uint8 [num_edges] if that fits,
            else int16.
    """

    neighborhood: Neighborhood
    order: Tensor
    place: Tensor
    relative: Tensor

    def on_nodes(self) -> Neighborhood:
        """The same edges between nodes; its edge e is edge ``perm[e]`` of `neighborhood`."""
        rows = self.neighborhood.rows(self.place)
        sources = self.order[rows.indices]
        return Neighborhood(rows.indptr, sources, rows.num_src, perm=rows.perm, validate=False)

    def to(self, device: torch.device | str) -> Windows:
        """The same grid on another device."""
        tensors = (tensor.to(device) for tensor in self[1:])
        return Windows(self.neighborhood.to(device), *tensors)


def windows(grid: Grid, size: int, shift: int = 0) -> Windows:
    """Complete sets of the nodes in windows of size x size, moved by `shift` rows and columns.

    With a shift, the first windows on each axis have `shift` rows or columns. A cyclic shift would
    join them with the last windows, and the mask of a shifted-window network would separate them
    again. If the size does not divide the grid, the last windows are smaller; nothing is padded.

    Args:
        grid: The nodes.
        size: Rows and columns of a window.
        shift: Rows and columns of the first windows, 0..size-1; 0 means full windows.

    Returns:
        The windows, image by image, row by row; the neighborhood carries them as `sets`.

    Raises:
        ValueError: If the size is below 1, or if the shift is not below the size.

    Source:
        Liu et al. (2021), Swin Transformer, section 3.2 and figures 2 and 4. Differs: windows are
        cut instead of shifted and masked, which gives the same pairs; nothing attends to padding.

    Example:
        >>> cut = windows(Grid(1, 1, 5), size=4, shift=2)
        >>> cut.neighborhood.degree().tolist(), cut.order.tolist()
        ([2, 2, 3, 3, 3], [0, 1, 2, 3, 4])
    """
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"size: got {size!r}, expected a whole number from 1 up")
    if not isinstance(shift, int) or not 0 <= shift < size:
        raise ValueError(f"shift: got {shift!r}, expected 0..{size - 1}, below size={size}")
    row, column = torch.arange(grid.size) // grid.width, torch.arange(grid.size) % grid.width
    number = (row - shift).div(size, rounding_mode="floor") * grid.width
    number = number + (column - shift).div(size, rounding_mode="floor")
    order = number.argsort(stable=True)
    sizes = number.unique(return_counts=True)[1].tolist()
    first = torch.arange(grid.count)[:, None] * grid.size
    one, span = cliques(sizes), 2 * size - 1
    sources, targets = order[one.edge_index()]
    dy, dx = (at[targets] - at[sources] for at in (row, column))
    relative = (dy + size - 1) * span + dx + size - 1
    return Windows(
        cliques(sizes * grid.count),
        (first + order).flatten(),
        (first + order.argsort()).flatten(),
        relative.to(_smallest(span**2)).repeat(grid.count),
    )


def _smallest(count: int) -> torch.dtype:
    """The smallest of some types that holds the numbers below `count`."""
    return torch.uint8 if count <= 2**8 else torch.int16 if count <= 2**15 else torch.int32


def check_floating(images: object) -> None:
    """Raise TypeError unless images are a floating tensor."""
    if not isinstance(images, Tensor) or not images.is_floating_point():
        found = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise TypeError(
            f"images: got {found}, expected a floating tensor; lab.datasets.image_sets.as_pixels "
            "makes bytes of PIL images and arrays, and of bytes .float() / 255 makes numbers 0..1"
        )
