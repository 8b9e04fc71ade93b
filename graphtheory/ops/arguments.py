"""Biases and features of edges, and checks of what attention is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.content import check_lookup
from graphtheory.ops.bounds import check_arguments, check_device

MOST_ROWS = 256  # of a table: a row number is a byte, and sums by row are [num_dst, heads, rows]


class BucketedBias(NamedTuple):
    """A bias by edge buckets: edge e of head h gets ``table[bucket[e], h]``; no [E, H] is built.

    Attributes:
        bucket: uint8 [num_edges], in 0..Z-1.
        table: Floating [Z, num_heads].
    """

    bucket: Tensor
    table: Tensor

    def check(self) -> None:
        """Raise unless every bucket is a row of the table; what looks it up calls this."""
        check_lookup("bias.bucket", self.bucket, self.table)


@dataclass(frozen=True, eq=False)
class EdgeFeatures:
    r"""Features f of edges, which enter the logits and are summed with the attention weights.

    .. math::
        s_{ij,h} = \text{scale} \cdot \big( \langle q_{i,h}, k_{j,h} \rangle
        + \langle q'_{i,h}, f_{ij} \rangle \big) + b_{ij,h}, \qquad
        \text{sums}_{i,h} = \sum_{j \in T^i} a_{ij,h} f_{ij}

    With q' = W^T q this is attention whose keys and values are k + W f and v + W f, since
    q . (k + W f) = q . k + (W^T q) . f and sum a (v + W f) = sum a v + W sum a f. No tensor with an
    edge axis and a feature axis is built beside f itself and, if it needs one, its gradient; with a
    table nothing of the size of f exists at all.

    Args:
        features: f, one row per edge in the neighborhood's order. With `row` a table, whose rows
            edges share; it may have different rows for each head.
        query: q', one vector per target node and head, of the dtype of the attention's query. None
            leaves the logits as they are.
        row: The row of the table of each edge: a bucket of distance, a type of bond.

    Shapes:
        features [num_edges, D]; or with row a table [R, D] or [R, heads, D] of R = 1 to 256 rows;
        query [num_dst, heads, D], row uint8 or int64 [num_edges].

    Source:
        Shi et al. (2021), eq. (3) and (4); with a table, Shaw et al. (2018), eq. (3) and (4).

    Example:
        >>> from graphtheory import Neighborhood, ops
        >>> nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), num_nodes=2)
        >>> x, f = torch.zeros(2, 1, 3), torch.tensor([[1.0], [5.0]])
        >>> out, sums = ops.attention(x, x, x, nb, edges=ops.EdgeFeatures(f))
        >>> sums.flatten().tolist()
        [0.0, 3.0]
    """

    features: Tensor
    query: Tensor | None = None
    row: Tensor | None = None

    @property
    def dim(self) -> int:
        """Features of an edge, D."""
        return self.features.size(-1)

    def per_edge(self) -> Tensor:
        """The features of every edge, [num_edges, 1 or heads, D]."""
        if self.row is None:
            return self.features[:, None]
        check_lookup("edges.row", self.row, self.features)
        found = self.features.index_select(0, self.row.long())
        return found[:, None] if found.dim() == 2 else found


def check_attention(
    query: Tensor, key: Tensor, value: Tensor, neighborhood: Neighborhood,
    bias: Tensor | BucketedBias | None, scale: float | None, dropout: float,
    edges: EdgeFeatures | Sequence[EdgeFeatures] | None = None,
) -> None:  # fmt: skip
    """Raise unless the arguments of attention fit together."""
    by_bucket = isinstance(bias, BucketedBias)
    if not (by_bucket or bias is None or isinstance(bias, Tensor)):
        kind = type(bias).__name__
        raise TypeError(f"bias: got {kind}, expected a tensor or BucketedBias(bucket, table)")
    dense, table = (None, bias.table) if by_bucket else (bias, None)  # type: ignore[union-attr]
    check_arguments(
        neighborhood, "NHD MHD= MHD= EH? RH?",
        query=query, key=key, value=value, bias=dense, **{"bias.table": table},
    )  # fmt: skip
    check_dropout(dropout)
    if scale is not None and not isinstance(scale, (int, float)):
        raise TypeError(f"scale: got {scale!r}, expected a number or None")
    if isinstance(bias, BucketedBias):
        _check_rows(
            "bias.bucket", bias.bucket, (torch.uint8,), "bias.table", bias.table, neighborhood
        )
    if edges is not None:
        _check_edges(edges, neighborhood, query)


def check_dropout(dropout: float) -> None:
    """Raise unless it is the probability of dropping some."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: got {dropout}, expected a probability in [0, 1)")


def _check_edges(
    edges: EdgeFeatures | Sequence[EdgeFeatures], neighborhood: Neighborhood, query: Tensor
) -> None:
    given = edges if isinstance(edges, (tuple, list)) else (edges,)
    for one in given:
        if not isinstance(one, EdgeFeatures):
            raise TypeError(f"edges: got {type(one).__name__}, expected EdgeFeatures, one or two")
        words = "EK"
        if one.row is not None:
            words = "RHK" if one.features.dim() == 3 else "RK"
        of_edges = {"edges.features": one.features, "edges.query": one.query}
        check_arguments(neighborhood, f"NHD {words} NHK=?", query=query, **of_edges)
        if one.row is not None:
            kinds = (torch.uint8, torch.int64)
            _check_rows("edges.row", one.row, kinds, "edges.features", one.features, neighborhood)
    tables = sum(one.row is not None for one in given)
    if not 1 <= len(given) <= 2 or tables > 1 or len(given) - tables > 1:
        raise ValueError(
            f"edges: got {len(given)}, of which {tables} have a table; expected one, or one by "
            "edge and one with a table"
        )


def _check_rows(
    name: str, ids: Tensor, dtypes: tuple[torch.dtype, ...], of: str, table: Tensor,
    nb: Neighborhood,
) -> None:  # fmt: skip
    """Raise unless there is a row number for each edge; `check_lookup` reads them."""
    edges = nb.indices.size(0)
    if not isinstance(ids, Tensor):
        raise TypeError(f"{name}: got {type(ids).__name__}, expected a tensor")
    if ids.dtype not in dtypes or ids.shape != (edges,):
        kinds = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ValueError(
            f"{name}: {ids.dtype} of shape {tuple(ids.shape)}, expected {kinds} [{edges}]"
        )
    if ids.device != nb.indices.device:
        check_device(name, ids, nb)
    if not 1 <= table.size(0) <= MOST_ROWS:
        raise ValueError(f"{of}: {table.size(0)} rows, expected 1 to {MOST_ROWS}")
