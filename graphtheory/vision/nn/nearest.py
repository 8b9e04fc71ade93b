"""The nearest nodes by features, and by place on a grid, as sources of each node."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from graphtheory.graph import Grid
from graphtheory.vision.nn.patch import from_map, to_map

_NUMBERS = 2**24  # similarities that exist at a time, unless one image has more


class PositionSimilarity(NamedTuple):
    """How close targets and sources lie: rows [h, h'] and columns [w, w'], which add up."""

    rows: Tensor
    columns: Tensor


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
        place: PositionSimilarity | Tensor | None = None,
    ) -> Tensor:
        """Lists of sources, nearest first, int64 [num_dst, k]: what `neighbor_lists` takes.

        Args:
            x: Targets [num_dst, dim], as many consecutive ones for each image.
            sources: [num_src, dim], likewise; None are the targets.
            images: Images, whose nodes do not see each other.
            place: The p, the same for each image; as a tensor [nodes, sources] of one image.
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


def _similarity(query: Tensor, key: Tensor, place: PositionSimilarity | Tensor | None) -> Tensor:
    """The s of some images, [B, N, M]."""
    kind = query.device.type
    known = torch.amp.is_autocast_available(kind)  # not on the device "meta"
    with torch.autocast(kind, enabled=False) if known else nullcontext():
        found = 2 * query @ key.transpose(1, 2)  # near ones differ in late digits
    if isinstance(place, Tensor):
        found.add_(place)
    elif place is not None:
        (h, above), (w, left) = place.rows.shape, place.columns.shape
        found.view(len(found), h, w, above, left).add_(place.rows[:, None, :, None]).add_(
            place.columns[:, None, :]
        )
    return found


@lru_cache(maxsize=32)
def position_similarity(
    grid: Grid, reduce: int, dim: int, device: torch.device
) -> PositionSimilarity:
    """Cosine of the sine-cosine encodings of two places, sources being means of reduce x reduce.

    It is 1 for a place and itself, of which rows and columns make one half each. (kept)

    Source:
        Han et al. (2022), the code of Pyramid ViG. Differs: encodings are averaged as features
        are; theirs is `resized_similarity`.
    """
    _check(dim)
    with torch.inference_mode(False):
        axes = (_axis(n, reduce, dim).float().to(device) for n in (grid.height, grid.width))
        return PositionSimilarity(*axes)


@lru_cache(maxsize=32)
def resized_similarity(grid: Grid, reduce: int, dim: int, device: torch.device) -> Tensor:
    """Similarity [N, M] of places as the published weights of Pyramid ViG were trained with.

    The list of the N encodings, row by row, is resized bicubically to the M sources, with no regard
    to where rows end. With ``reduce=1`` it is `position_similarity`; else a source's place is not
    that of the nodes of which it is the mean. Arguments and errors as there. (kept)

    Source:
        Han et al. (2022), the code of Pyramid ViG, which resizes the columns of the table of
        similarities; that is the same.
    """
    _check(dim)
    with torch.inference_mode(False):
        rows, columns = _codes(grid.height, dim)[:, None], _codes(grid.width, dim)[None]
        shape = (grid.height, grid.width, -1)
        code = torch.cat([rows.expand(shape), columns.expand(shape)], 2).flatten(0, 1)
        many = -(-grid.height // reduce) * -(-grid.width // reduce)
        resized = nn.functional.interpolate(code[None, None], (many, dim), mode="bicubic")[0, 0]
        return (2 / dim * code @ resized.T).float().to(device)


def _check(dim: int) -> None:
    if dim < 4 or dim % 4:
        raise ValueError(f"dim: got {dim}, expected a multiple of 4 for places")


def _codes(length: int, dim: int) -> Tensor:
    """Of each row or column, [length, dim / 2]."""
    frequency = 10000.0 ** -(torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    angle = torch.arange(length)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], 1)


def _axis(length: int, reduce: int, dim: int) -> Tensor:
    """Similarities of places along one axis, [length, ceil(length / reduce)]."""
    own = _codes(length, dim)
    means = torch.stack([part.mean(0) for part in own.split(reduce)])
    return 2 / dim * own @ means.T


def coarser(x: Tensor, grid: Grid, reduce: int) -> Tensor:
    """Means of reduce x reduce nodes, of fewer at the border: [B * ceil(h/r) * ceil(w/r), dim]."""
    if reduce == 1:
        return x
    pooled = nn.functional.avg_pool2d(
        to_map(x, grid), reduce, ceil_mode=True, count_include_pad=False
    )
    return from_map(pooled)[0]
