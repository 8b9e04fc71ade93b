"""A trained number for each bucket of an edge: distances, relative positions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from graphtheory.graph import TOKEN
from graphtheory.graph.cache import PerTensorCache
from graphtheory.ops import BucketedBias
from graphtheory.ops.look_up import bias_per_edge, look_up
from graphtheory.structure import UNREACHABLE

_BYTE = 254  # buckets that fit a byte beside `UNREACHABLE`


@dataclass(frozen=True)
class _Sorting:
    """How `BucketBias` sorts distances, which layers of equal buckets do once for a tensor."""

    size: int
    own_unreachable: bool
    own_token: bool
    saturate: bool

    def __call__(self, distance: Tensor, *order: Tensor) -> Tensor:
        """Bytes, or int64 where there are too many buckets for a byte."""
        if torch.compiler.is_compiling():
            return self._buckets(distance, *order)
        return _known(self)(distance, *order)

    def _checked(self, distance: Tensor, *order: Tensor) -> Tensor:
        self._check_range(distance)
        return self._buckets(distance, *order)

    def _buckets(self, distance: Tensor, *order: Tensor) -> Tensor:
        if order:
            distance = distance.index_select(0, *order)
        if self.size > _BYTE:
            return distance.long().clamp(max=self.size - 1)
        bucket = distance.clamp(max=self.size - 1).to(torch.uint8)
        if self.own_unreachable:
            bucket = torch.where(distance == UNREACHABLE, self.size, bucket).to(torch.uint8)
        if self.own_token:
            last = self.size + self.own_unreachable
            bucket = torch.where(distance == TOKEN, last, bucket).to(torch.uint8)
        return bucket

    def _check_range(self, distance: Tensor) -> None:
        if distance.dtype != torch.uint8 and distance.numel() and int(distance.min()) < 0:
            raise ValueError(f"distance: got {int(distance.min())}, expected hops of 0 or more")
        if self.saturate:
            return
        reachable = distance[distance != UNREACHABLE]
        if self.own_token:
            reachable = reachable[reachable != TOKEN]
        longest = int(reachable.max()) if reachable.numel() else 0
        if longest >= self.size:
            raise ValueError(
                f"distance: {longest} hops, expected at most {self.size - 1} with "
                f"num_buckets={self.size} and saturate=False"
            )


@lru_cache
def _known(sorting: _Sorting) -> PerTensorCache[Tensor]:
    return PerTensorCache(sorting._checked)


class BucketBias(nn.Module):
    r"""Bias u^T b of eq. (3.2): a learned number for each bucket and head, zero at the start.

    .. math:: \text{bucket}(z) = \min(z, Z - 1)

    A distance of z hops falls into row z of the table, and everything of Z - 1 hops or more,
    unreachable pairs (255) included, into the last. With `own_unreachable` the table has one row
    more, for pairs without a path; with `own_token` one more behind it, for pairs with the token of
    a graph (`graph.TOKEN` = 254). Relative positions in a window are buckets, too; more than 254 of
    them, which no distance needs, are looked up for each edge.

    Args:
        num_buckets: Z, at least 1; at most 254 with `own_unreachable`, 253 with `own_token`.
        heads: Heads that each learn their own b.
        own_unreachable: Give unreachable pairs a bucket of their own.
        own_token: Give pairs with a graph token a bucket of their own, the last.
        saturate: False makes a reachable distance of Z hops or more an error instead.

    Shapes:
        distance, an integer tensor [num_edges] in hops, and the order int64 [num_edges] in which it
        is taken, if that is another one -> `ops.BucketedBias` with table [Z, heads]; with more than
        254 buckets a tensor [num_edges, heads].

    Raises:
        ValueError: `num_buckets` or `heads` out of range; a distance below 0, or too long for the
            buckets.
        TypeError: Distances that are no integers.

    Source: Li (2024), eq. (3.2). Differs: buckets count from 0; the last may be split in two.

    Example:
        >>> bias = BucketBias(num_buckets=3, heads=1)
        >>> bias(torch.tensor([0, 1, 2, 9, 255])).bucket.tolist()
        [0, 1, 2, 2, 2]
    """

    is_bucket_bias = True

    def __init__(
        self,
        num_buckets: int,
        heads: int,
        *,
        own_unreachable: bool = False,
        own_token: bool = False,
        saturate: bool = True,
    ) -> None:
        super().__init__()
        for name, value in (("num_buckets", num_buckets), ("heads", heads)):
            if value < 1:
                raise ValueError(f"{name}: got {value}, expected at least 1")
        limits = (("own_unreachable", own_unreachable, _BYTE), ("own_token", own_token, _BYTE - 1))
        for option, is_on, most in limits:
            if is_on and num_buckets > most:
                raise ValueError(
                    f"num_buckets: got {num_buckets}, expected at most {most} with {option}"
                )
        self.num_buckets, self.saturate = num_buckets, saturate
        self.own_unreachable, self.own_token = own_unreachable, own_token
        rows = num_buckets + own_unreachable + own_token
        self.table = nn.Parameter(torch.zeros(rows, heads))

    def reset_parameters(self) -> None:
        """Back to b = 0."""
        nn.init.zeros_(self.table)

    def forward(self, distance: Tensor, order: Tensor | None = None) -> BucketedBias | Tensor:
        if distance.is_floating_point() or distance.dim() != 1:
            raise TypeError(
                f"distance: {distance.dtype} of shape {tuple(distance.shape)}, expected integer "
                "hops [num_edges]"
            )
        options = self.num_buckets, self.own_unreachable, self.own_token, self.saturate
        bucket = _Sorting(*options)(*((distance,) if order is None else (distance, order)))
        if self.num_buckets > _BYTE:
            return look_up(self.table, bucket)
        return BucketedBias(bucket, self.table)

    def extra_repr(self) -> str:
        return f"num_buckets={self.num_buckets}, heads={self.table.size(1)}"


class JointBias(nn.Module):
    r"""Sum of the biases of several distances, such as hops and resistance.

    .. math:: b_{(s,n)} = \sum_k b_k[\text{bucket}_k(s, n)]

    While all combinations of buckets are at most 256, they are the rows of one table, and no value
    per pair and head is built.

    Args:
        parts: A `BucketBias` for each column of distances.

    Shapes:
        distance, an integer tensor [num_edges, parts] -> `ops.BucketedBias`, or with more
        combinations a tensor [num_edges, heads].

    Raises:
        ValueError: If there are no parts, they differ in heads, or there are more or fewer columns.

    Source:
        Zhang et al. (2023), Graphormer-GD: hops and resistance in one bias. Differs: a sum, and
        only in the logits.

    Example:
        >>> joint = JointBias(BucketBias(20, 4), BucketBias(12, 4))
        >>> joint(torch.tensor([[1, 2], [255, 0]])).bucket.tolist()
        [14, 228]
    """

    def __init__(self, *parts: BucketBias) -> None:
        super().__init__()
        heads = {part.table.size(1) for part in parts}
        if len(heads) != 1:
            raise ValueError(f"parts: got {len(parts)} with heads {sorted(heads)}, expected equal")
        self.parts = nn.ModuleList(parts)

    def reset_parameters(self) -> None:
        """Back to b = 0."""
        for table in self.parameters():
            nn.init.zeros_(table)

    def forward(self, distance: Tensor) -> BucketedBias | Tensor:
        if distance.dim() != 2 or distance.size(1) != len(self.parts):
            shape = tuple(distance.shape)
            raise ValueError(f"distance: shape {shape}, expected [num_edges, {len(self.parts)}]")
        made = [part(column) for part, column in zip(self.parts, distance.unbind(1), strict=True)]
        if math.prod(len(table) for table in self.parameters()) > _BYTE + 2:
            return torch.stack([bias_per_edge(one) for one in made]).sum(0)
        (bucket, table), *others = made
        for more, rows in others:
            bucket = bucket * len(rows) + more
            table = (table[:, None] + rows).flatten(0, 1)
        return BucketedBias(bucket, table)
