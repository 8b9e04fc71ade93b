"""Biases of attention: a trained number for each bucket of an edge, or of edges along a path."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphtheory.graph import TOKEN, csr
from graphtheory.graph.content import PerTensorCache, id_range
from graphtheory.nn.batches import graph_sizes
from graphtheory.nn.graph_encoders import feature_encoder
from graphtheory.ops import BucketedBias
from graphtheory.ops.look_up import bias_per_edge, look_up

_BYTE = 254  # buckets that fit a byte beside `UNREACHABLE`


@dataclass(frozen=True)
class _Sorting:
    """How `BucketBias` sorts distances, which layers of equal buckets do once for a tensor."""

    size: int
    own_token: bool

    def checked(self, distance: Tensor, *order: Tensor) -> Tensor:
        """`buckets` of distances, none of which is negative."""
        if distance.dtype != torch.uint8 and distance.numel() and int(distance.min()) < 0:
            raise ValueError(f"distance: got {int(distance.min())}, expected hops of 0 or more")
        bucket = self.buckets(distance, *order)
        if not bucket.is_cpu:  # a device need not be asked whether they are rows of the table
            id_range.tell(bucket, [0, self.size + self.own_token - 1])
        return bucket

    def buckets(self, distance: Tensor, *order: Tensor) -> Tensor:
        """Bytes, or int64 where there are too many buckets for a byte."""
        if order:
            distance = distance.index_select(0, *order)
        if distance.dtype is torch.int8:  # which cannot hold all bounds
            distance = distance.short()
        if self.size > _BYTE:
            return distance.long().clamp(max=self.size - 1)
        bucket = distance.clamp_max(self.size - 1)
        bucket = bucket if bucket.dtype is torch.uint8 else bucket.to(torch.uint8)
        if self.own_token:
            bucket = torch.where(distance == TOKEN, self.size, bucket).to(torch.uint8)
        return bucket


@lru_cache
def _sorted(size: int, own_token: bool) -> tuple[_Sorting, PerTensorCache[Tensor]]:
    sorting = _Sorting(size, own_token)
    return sorting, PerTensorCache(sorting.checked)


class BucketBias(nn.Module):
    r"""Bias u^T b of eq. (3.2): a learned number for each bucket and head, zero at the start.

    .. math:: \text{bucket}(z) = \min(z, Z - 1)

    A distance of z hops falls into row z of the table, and everything of Z - 1 hops or more,
    unreachable pairs (255) included, into the last. With `own_token` the table has one row more,
    for pairs with the token of a graph (`graph.TOKEN` = 254). Relative positions in a window are
    buckets, too; more than 254 of them, which no distance needs, are looked up for each edge.

    Args:
        num_buckets: Z, at least 1; at most 253 with `own_token`.
        heads: Heads that each learn their own b.
        own_token: Give pairs with a graph token a bucket of their own, the last.

    Shapes:
        distance, an integer tensor [num_edges] in hops, and the order int64 [num_edges] in which it
        is taken, if that is another one -> `ops.BucketedBias` with table [Z, heads]; with more than
        254 buckets a tensor [num_edges, heads].

    Raises:
        ValueError: `num_buckets` or `heads` out of range; a distance below 0.
        TypeError: Distances that are no integers.

    Source: Li (2024), eq. (3.2). Differs: buckets count from 0; there may be one for the token.

    Example:
        >>> bias = BucketBias(num_buckets=3, heads=1)
        >>> bias(torch.tensor([0, 1, 2, 9, 255])).bucket.tolist()
        [0, 1, 2, 2, 2]
    """

    is_bucket_bias = True

    def __init__(self, num_buckets: int, heads: int, *, own_token: bool = False) -> None:
        super().__init__()
        for name, value in (("num_buckets", num_buckets), ("heads", heads)):
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name}: got {value}, expected at least 1, a whole number")
        if own_token and num_buckets >= _BYTE:
            raise ValueError(
                f"num_buckets: got {num_buckets}, expected at most {_BYTE - 1} with own_token"
            )
        self.num_buckets, self.own_token = num_buckets, own_token
        self.table = nn.Parameter(torch.zeros(num_buckets + own_token, heads))

    def reset_parameters(self) -> None:
        """Back to b = 0."""
        nn.init.zeros_(self.table)

    def forward(self, distance: Tensor, order: Tensor | None = None) -> BucketedBias | Tensor:
        if distance.is_floating_point() or distance.dim() != 1:
            raise TypeError(
                f"distance: {distance.dtype} of shape {tuple(distance.shape)}, expected integer "
                "hops [num_edges]"
            )
        buckets: Any
        if torch.compiler.is_compiling():
            buckets = _Sorting(self.num_buckets, self.own_token).buckets
        else:
            sorting, known = _sorted(self.num_buckets, self.own_token)
            bytes_there = not distance.is_cpu and distance.dtype is torch.uint8
            # a GPU sorts few in less time than its host finds out what is known of them
            few = bytes_there and distance.numel() <= csr.RANKED
            buckets = sorting.checked if few else known
        bucket = buckets(distance) if order is None else buckets(distance, order)
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
        by_edge = any(isinstance(one, Tensor) for one in made)
        if by_edge or math.prod(len(table) for table in self.parameters()) > _BYTE + 2:
            return torch.stack([bias_per_edge(one) for one in made]).sum(0)
        (bucket, table), *others = made
        for more, rows in others:
            bucket = bucket * len(rows) + more
            table = (table[:, None] + rows).flatten(0, 1)
        return BucketedBias(bucket, table)


class PathEncoding(nn.Module):
    r"""Mean over a shortest path of the products of edge features with a weight per step and head.

    .. math:: c^h_{ij} = \frac1N \sum_{n=1}^{N} x_{e_n}^\top w^h_n, \qquad N = \min(\text{hops}, S)

    A pair without edges between its nodes (the same node, no path) gets 0. All products of edges
    and steps are computed first, [E, S, heads], and averaged for each pair from its S edge ids:
    no tensor has pairs, steps and features as axes.

    Args:
        features: Floating features of an edge, or the number of categories of each column, where
            x_e stands for the one-hot columns and w for a table.
        heads: Heads of the attention.
        max_steps: S, the steps with weights of their own.

    Shapes:
        - **edge_attr:** floating [E, features] or integers [E, columns].
        - **paths:** integers [P, S] of `structure.shortest_path_edges(graph, S)`, flattened to
          pairs in the order of `graph.cliques`; entries of -1 are no edges.
        - **edge_index, batch:** of a PyG `Batch`, where edge ids count from the first edge of each
          graph; None is one graph.
        - **output:** [P, heads], for `attn_bias` of `GPSConv` or `bias` of `ops.attention`.

    Raises:
        ValueError: If shapes differ from these, or edges are not stored graph after graph.
        IndexError: If a path has an edge that its graph does not have.

    Source:
        Ying et al. (2021), eq. (7). Steps count from the target, whose query attends. Their code
        has one embedding of an edge per head and mixes heads by a matrix per step, which this
        weight per step and category contains.

    Example:
        >>> from graphtheory.graph import Neighborhood
        >>> from graphtheory.structure import shortest_path_edges
        >>> edge_index, edge_attr = torch.tensor([[0, 1], [1, 2]]), torch.randn(2, 4)
        >>> graph = Neighborhood.from_edge_index(edge_index, num_nodes=3)
        >>> paths = shortest_path_edges(graph, 5).flatten(0, 1)
        >>> PathEncoding(4, heads=2, max_steps=5)(edge_attr, paths).shape
        torch.Size([9, 2])
    """

    def __init__(self, features: int | Sequence[int], heads: int, max_steps: int = 5) -> None:
        super().__init__()
        for name, value in (("heads", heads), ("max_steps", max_steps)):
            if value < 1:
                raise ValueError(f"{name}: got {value}, expected at least 1")
        self.heads, self.max_steps = heads, max_steps
        self.products = feature_encoder(features, max_steps * heads, bias=False)

    def forward(
        self,
        edge_attr: Tensor,
        paths: Tensor,
        edge_index: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Tensor:
        if paths.is_floating_point() or paths.dim() != 2 or paths.size(1) != self.max_steps:
            raise ValueError(
                f"paths: {paths.dtype} of shape {tuple(paths.shape)}, expected integers "
                f"[num_pairs, {self.max_steps}]"
            )
        edges = len(edge_attr)
        ids, there = paths.int(), paths >= 0
        if batch is not None:
            if edge_index is None:
                raise ValueError("edge_index: got None beside a batch, expected the batch's edges")
            first, count = _edges_of_pairs(edge_index, batch, len(paths))
            _check_ids(ids, count[:, None])
            ids = ids + first[:, None].int()
        else:
            _check_ids(ids, torch.tensor(edges, device=ids.device))
        steps = torch.arange(self.max_steps, device=ids.device, dtype=torch.int32)
        none = edges * self.max_steps
        place = torch.where(there, ids * self.max_steps + steps, none)
        products = self.products(edge_attr).view(none, self.heads)
        table = torch.cat([products, products.new_zeros(1, self.heads)])
        return functional.embedding_bag(place, table, mode="mean", padding_idx=none)


def _edges_of_pairs(edge_index: Tensor, batch: Tensor, num_pairs: int) -> tuple[Tensor, Tensor]:
    """First edge and number of edges of the graph of each pair, int64 [P] each."""
    pairs = graph_sizes(batch).square()
    if num_pairs != int(pairs.sum()):
        raise ValueError(
            f"paths: {num_pairs} rows, expected {int(pairs.sum())}: one for each pair of nodes of "
            "a graph"
        )
    graph = batch[edge_index[1]]
    if bool((graph[1:] < graph[:-1]).any()):
        raise ValueError(
            "edge_index: edges of several graphs alternate, expected one after another"
        )
    count = torch.bincount(graph, minlength=len(pairs))
    both = torch.stack([count.cumsum(0) - count, count])
    first, count = both.repeat_interleave(pairs, 1, output_size=num_pairs).unbind()
    return first, count


def _check_ids(ids: Tensor, count: Tensor) -> None:
    if torch.compiler.is_compiling() or not bool((wrong := ids >= count).any()):
        return
    pair, step = wrong.nonzero()[0].tolist()
    known = int(count.expand_as(ids)[pair, step])
    raise IndexError(
        f"paths: pair {pair}, step {step} is edge {int(ids[pair, step])}, expected one of the "
        f"{known} edges of its graph"
    )
