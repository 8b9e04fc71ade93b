"""Images as PyG graphs: a node is a patch or a superpixel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import ToSLIC
from torch_geometric.utils import from_scipy_sparse_matrix, to_undirected

from graphtheory.graph import Grid, grid_neighbors, windows
from graphtheory.graph.grid import check_floating

Edges = Callable[[Tensor, Grid], Tensor]
"""Who is linked to whom: nodes x [h * w, F] on a grid of one image -> edge list [2, E]."""


@dataclass(frozen=True)
class Beside:
    """The 4 patches beside each patch, or the 8 around it.

    Args:
        diagonal: Whether the 4 diagonal ones count, too.
    """

    diagonal: bool = False

    def __call__(self, x: Tensor, grid: Grid) -> Tensor:
        return grid_neighbors(grid, diagonal=self.diagonal).edge_index()


@dataclass(frozen=True)
class InWindow:
    """All patches of the window, the patch itself included; see `graph.windows`.

    Args:
        size: Rows and columns of a window, in patches.
    """

    size: int

    def __call__(self, x: Tensor, grid: Grid) -> Tensor:
        return windows(grid, self.size).on_nodes().edge_index()


@dataclass(frozen=True)
class Nearest:
    """From the k patches with the nearest features to each patch, itself left out.

    Distances are Euclidean, by scikit-learn; of an image of k patches or fewer all others are near.

    Args:
        k: Neighbors of a patch.

    Raises:
        ValueError: k below 1.
    """

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k: got {self.k}, expected 1 or more neighbors")

    def __call__(self, x: Tensor, grid: Grid) -> Tensor:
        k = min(self.k, grid.size - 1)
        if k < 1:
            return torch.empty(2, 0, dtype=torch.int64)
        from sklearn.neighbors import kneighbors_graph  # takes a second to load

        pixels = x.detach().flatten(1).cpu().double()
        near = kneighbors_graph(pixels.numpy(), k)  # row: the patch, column: a neighbor
        return from_scipy_sparse_matrix(near)[0].flip(0)


def patch_graphs(
    images: Tensor, patch_size: int, edges: Edges, y: Tensor | Sequence[Any] | None = None
) -> Batch:
    """A graph for each image: its patches as nodes, linked by a rule.

    Args:
        images: Floating [B, C, H, W]; the patch divides H and W.
        patch_size: Rows and columns of a patch, in pixels.
        edges: `Beside`, `InWindow`, `Nearest`, or any function of the nodes and their grid.
        y: Label of each image, [B] or [B, 1], or several, [B, T]; or None.

    Returns:
        A PyG batch: x [B * h * w, C * patch_size^2] (channel, row, column of the patch), pos (x, y)
        the middle of each patch in pixels [B * h * w, 2], edge_index, and y [B] or [B, T].

    Raises:
        ValueError: Images of another shape or size; not as many labels as images.
        TypeError: Images that are no floating tensor.

    Example:
        >>> batch = patch_graphs(torch.rand(2, 3, 8, 8), patch_size=4, edges=Beside())
        >>> batch
        DataBatch(x=[8, 48], edge_index=[2, 16], pos=[8, 2], batch=[8], ptr=[3])
    """
    if patch_size < 1:
        raise ValueError(f"patch_size: got {patch_size}, expected 1 or more pixels")
    check_floating(images)
    if images.dim() != 4 or any(side % patch_size for side in images.shape[2:]):
        raise ValueError(
            f"images: shape {tuple(images.shape)}, expected [B, C, H, W] with multiples of "
            f"patch_size={patch_size} for H and W"
        )
    if not len(images):
        raise ValueError("images: got 0, expected 1 or more")
    height, width = (side // patch_size for side in images.shape[2:])
    grid = Grid(1, height, width)
    rows = nodes_of(images, patch_size)
    middle = (torch.arange(grid.size)[:, None] // torch.tensor([1, width])) % torch.tensor(
        [width, height]
    )
    pos = (middle + 0.5) * patch_size
    graphs = [Data(x=x, edge_index=edges(x, grid), pos=pos) for x in rows]
    for graph, label in zip(graphs, () if y is None else _labels(y, len(images)), strict=False):
        graph.y = label
    return Batch.from_data_list(graphs)


def _labels(y: Tensor | Sequence[Any], images: int) -> Sequence[Tensor]:
    try:
        found = torch.stack([torch.as_tensor(label) for label in y])
    except (TypeError, ValueError, RuntimeError) as error:
        what = f"y: got {y!r:.80}, expected one number for each image, or equally many"
        raise ValueError(what) from error
    if len(found) != images:
        raise ValueError(f"y: {len(found)} labels, expected one an image: {images}")
    return (found.flatten() if found.numel() == images else found).split(1)


def nodes_of(images: Tensor, patch_size: int) -> Tensor:
    """The pixels of each patch, [B, h * w, C * patch_size^2]."""
    return torch.nn.functional.unfold(images, patch_size, stride=patch_size).transpose(1, 2)


def superpixel_graph(image: Tensor, num_segments: int = 75, compactness: float = 10.0) -> Data:
    """A graph of the superpixels of an image: regions of one color, linked where they touch.

    PyG's `ToSLIC` makes the regions, for which scikit-image must be installed. It stretches the
    image to 0..1 and compares colors in Lab, where lightness is 0..100; gray is three equal colors.

    Args:
        image: Floating [C, H, W], C = 1 for gray or 3 for RGB.
        num_segments: About how many regions.
        compactness: Weight of place against color.

    Returns:
        Data with x, the mean color [N, C]; pos (x, y), the mean place in pixels [N, 2]; seg, the
        region of each pixel [1, H, W]; edge_index, in both directions.

    Raises:
        ValueError: An image of another shape.
        TypeError: An image that is no floating tensor.
        ImportError: scikit-image is not installed.
    """
    check_floating(image)
    if image.dim() != 3 or len(image) not in (1, 3):
        raise ValueError(f"image: shape {tuple(image.shape)}, expected [1, H, W] or [3, H, W]")
    if find_spec("skimage") is None:
        raise ImportError(
            "scikit-image: not installed, expected for superpixels; install pyg-graphtheory[images]"
        )
    segment = ToSLIC(add_seg=True, n_segments=num_segments, compactness=compactness)
    data = segment(image.expand(3, -1, -1).contiguous())  # which [H, W, C] turned round is not
    data.x = data.x[:, : len(image)]
    seg = data.seg[0]
    across = torch.stack([seg[:, 1:].flatten(), seg[:, :-1].flatten()])
    down = torch.stack([seg[1:].flatten(), seg[:-1].flatten()])
    pairs = torch.cat([across, down], 1)
    touching = pairs[:, pairs[0] != pairs[1]].long()
    data.edge_index = to_undirected(touching, num_nodes=len(data.x))
    return data
