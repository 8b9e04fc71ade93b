"""Features of edges beside the keys and values of an attention call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphtheory.graph.content import is_plain, within
from graphtheory.graph.inference import leave_inference_mode, unwrapped
from graphtheory.ops.once import PerTensorCache

MOST_ROWS = 256  # of a table: a row number is a byte, and sums by row are [num_dst, heads, rows]


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
        """D, features of an edge."""
        return self.features.size(-1)

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor that may need a gradient."""
        return [self.features] if self.query is None else [self.features, self.query]

    def per_edge(self) -> Tensor:
        """The features of every edge, [num_edges, 1 or heads, D]."""
        if self.row is None:
            return self.features[:, None]
        check_rows(self.row, self.features.size(0))
        found = self.features.index_select(0, self.row.long())
        return found[:, None] if found.dim() == 2 else found


def checked_edges(
    edges: EdgeFeatures | Sequence[EdgeFeatures], num_edges: int, query: Tensor
) -> tuple[EdgeFeatures, ...]:
    """The features of edges of a call as a tuple, after a look at every shape."""
    given = (edges,) if isinstance(edges, EdgeFeatures) else edges
    if not isinstance(given, (tuple, list)):
        kind = type(edges).__name__
        raise TypeError(f"edges: got {kind}, expected EdgeFeatures(features, query)")
    for one in given:
        if not isinstance(one, EdgeFeatures):
            kind = type(one).__name__
            raise TypeError(f"edges: got a {kind} among them, expected EdgeFeatures")
        _check(one, num_edges, query)
    tables = sum(one.row is not None for one in given)
    if not 1 <= len(given) <= 2 or tables > 1 or len(given) - tables > 1:
        raise ValueError(
            f"edges: got {len(given)}, of which {tables} have a table; expected one, or one by "
            "edge and one with a table"
        )
    return tuple(given)


def _check(edges: EdgeFeatures, num_edges: int, query: Tensor) -> None:
    (num_dst, heads, _), features = query.shape, edges.features
    if not isinstance(features, Tensor) or not features.is_floating_point():
        found = features.dtype if isinstance(features, Tensor) else type(features).__name__
        raise TypeError(f"edges.features: got {found}, expected a floating tensor")
    shape = tuple(features.shape)
    if edges.row is None and (len(shape) != 2 or shape[0] != num_edges):
        raise ValueError(
            f"edges.features: shape {shape}, expected [{num_edges}, edge_dim] "
            "(one row per edge, in the neighborhood's order)"
        )
    if edges.row is not None:
        _check_table(edges.row, shape, num_edges, heads)
    wanted = (num_dst, heads, edges.dim)
    if edges.query is not None and tuple(edges.query.shape) != wanted:
        raise ValueError(f"edges.query: shape {tuple(edges.query.shape)}, expected {wanted}")
    if edges.query is not None and edges.query.dtype != query.dtype:
        raise TypeError(
            f"edges.query: dtype {edges.query.dtype}, expected {query.dtype} as query has"
        )


def _check_table(row: Tensor, shape: tuple[int, ...], num_edges: int, heads: int) -> None:
    per_head = len(shape) == 3 and shape[1] == heads
    if not (len(shape) == 2 or per_head) or not 1 <= shape[0] <= MOST_ROWS:
        raise ValueError(
            f"edges.features: a table of shape {shape}, expected [1 to {MOST_ROWS} rows, D] or "
            f"[rows, {heads} heads, D]; of more rows give features[row] without row"
        )
    if row.dtype not in (torch.uint8, torch.int64) or row.shape != (num_edges,):
        raise ValueError(
            f"edges.row: {row.dtype} of shape {tuple(row.shape)}, "
            f"expected uint8 or int64 [{num_edges}]"
        )


def check_rows(row: Tensor | None, num_rows: int) -> None:
    """Raise unless entries are 0..num_rows - 1; what looks the table up calls this first."""
    if row is not None:
        check_lookup("edges.row", row, num_rows, "rows of edges.features")


_range: PerTensorCache[tuple[int, int]] = PerTensorCache(
    lambda ids: (int(ids.min()), int(ids.max()))
)


def check_lookup(name: str, ids: Tensor, rows: int, what: str) -> None:
    """Raise unless every entry is in 0..rows-1; in main memory each call reads them.

    To look at a GPU's memory waits for the device: once a tensor, and after a change in place.
    """
    if torch.compiler.is_compiling() or ids.numel() == 0 or ids.is_meta:
        return
    if ids.is_cpu and is_plain(ids) and within(ids, rows):
        return
    with leave_inference_mode():
        ids = unwrapped(ids)
        if ids.is_cpu and is_plain(ids) and within(ids, rows):
            return
        low, high = _range(ids)
    if low < 0 or high >= rows:
        raise IndexError(f"{name}: entries {low} to {high}, expected 0..{rows - 1} ({what})")
