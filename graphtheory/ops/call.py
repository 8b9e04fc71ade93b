"""One attention call, checked: what every backend receives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.ops.dropout import draw_seed
from graphtheory.ops.edge_features import EdgeFeatures, check_lookup, checked_edges


class BucketedBias(NamedTuple):
    """A bias by edge buckets: edge e of head h gets ``table[bucket[e], h]``; no [E, H] is built.

    Attributes:
        bucket: uint8 [num_edges], in 0..Z-1.
        table: Floating [Z, num_heads].
    """

    bucket: Tensor
    table: Tensor


class Call(NamedTuple):
    """A checked call of an operation other than attention.

    Attributes:
        operation: Its name.
        neighborhood: Who aggregates from whom.
        tensors: Its tensors, in the order of the operation's arguments; absent ones are None.
        options: What else its kernels take.
    """

    operation: str
    neighborhood: Neighborhood
    tensors: tuple[Tensor | None, ...]
    options: tuple[Any, ...] = ()


@dataclass(frozen=True)
class AttentionCall:
    """Checked arguments of attention; query [N, H, D], key and value [M, H, D].

    `k` is how many neighbors of a row and head the softmax sees at most; None is all of them.
    `edges` are features of edges, none, one or two.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    neighborhood: Neighborhood
    bias: Tensor | BucketedBias | None
    scale: float
    dropout: float
    seed: Tensor | None
    k: int | None = None
    edges: tuple[EdgeFeatures, ...] = ()

    @classmethod
    def checked(
        cls,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        neighborhood: Neighborhood,
        *,
        bias: Tensor | BucketedBias | None,
        scale: float | None,
        dropout: float,
        generator: torch.Generator | None,
        k: int | None = None,
        edges: EdgeFeatures | Sequence[EdgeFeatures] | None = None,
    ) -> AttentionCall:
        """Check what `ops.attention` takes, and draw the seed of the dropout."""
        check_nodes("query", query, neighborhood, "targets")
        check_nodes("key", key, neighborhood, "sources")
        check_nodes("value", value, neighborhood, "sources")
        for name, tensor in (("key", key), ("value", value)):
            if tensor.shape[1:] != query.shape[1:]:
                raise ValueError(
                    f"{name}: shape {tuple(tensor.shape)}, expected the heads and head_dim of "
                    f"query {tuple(query.shape)}"
                )
            if tensor.dtype != query.dtype:
                raise TypeError(
                    f"{name}: dtype {tensor.dtype}, expected {query.dtype} as query has"
                )
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout: got {dropout}, expected a probability in [0, 1)")
        if scale is not None and not isinstance(scale, (int, float)):
            raise TypeError(f"scale: got {scale!r}, expected a number or None")
        if bias is not None:
            check_bias(bias, neighborhood, query.size(1))
        found = () if edges is None else checked_edges(edges, neighborhood.num_edges, query)
        return cls.of(
            query, key, value, neighborhood, bias, scale, dropout, generator, k=k, edges=found
        )

    @classmethod
    def of(
        cls,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        neighborhood: Neighborhood,
        bias: Tensor | BucketedBias | None,
        scale: float | None,
        dropout: float,
        generator: torch.Generator | None,
        **more: Any,
    ) -> AttentionCall:
        """A call of arguments that are known to fit, with its scale and its drawn seed."""
        scale = max(query.size(2), 1) ** -0.5 if scale is None else float(scale)
        seed = draw_seed(generator, query.device) if dropout > 0 else None
        return cls(query, key, value, neighborhood, bias, scale, float(dropout), seed, **more)

    @property
    def operation(self) -> str:
        """Name of the operation."""
        return "attention" if self.k is None else "topk_attention"

    @property
    def tensors(self) -> list[Tensor]:
        """Every tensor that may need a gradient."""
        bias = self.bias.table if isinstance(self.bias, BucketedBias) else self.bias
        found = [t for t in (self.query, self.key, self.value, bias) if t is not None]
        for edges in self.edges:
            found += edges.tensors
        return found

    @property
    def needs_grad(self) -> bool:
        """Whether a backward pass may follow."""
        return needs_grad(self.tensors)


def needs_grad(tensors: Sequence[Tensor | None]) -> bool:
    """Whether a backward pass to one of the tensors may follow."""
    if torch.is_grad_enabled():
        for t in tensors:
            if t is not None and t.requires_grad:
                return True
    return False


def check_neighborhood(given: object) -> None:
    """Raise unless it is one."""
    if not isinstance(given, Neighborhood):
        raise TypeError(
            f"neighborhood: got {type(given).__name__}, expected a Neighborhood, such as "
            "Neighborhood.from_edge_index(edge_index, num_nodes)"
        )


def check_nodes(name: str, tensor: Tensor, nb: Neighborhood, side: str) -> None:
    """Raise unless `tensor` is floating [nodes of that side, heads, head_dim]."""
    check_neighborhood(nb)
    num_nodes = nb.num_dst if side == "targets" else nb.num_src
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: got {type(tensor).__name__}, expected a tensor")
    if not tensor.is_floating_point():
        raise TypeError(f"{name}: dtype {tensor.dtype}, expected a floating type")
    if tensor.dim() != 3 or tensor.size(0) != num_nodes:
        raise ValueError(
            f"{name}: shape {tuple(tensor.shape)}, expected [{num_nodes}, heads, head_dim] "
            f"(the neighborhood has {num_nodes} {side})"
        )
    check_device(name, tensor, nb)


def check_edges(name: str, tensor: Tensor, nb: Neighborhood, num_heads: int | None = None) -> None:
    """Raise unless `tensor` is floating [num_edges, num_heads]."""
    check_neighborhood(nb)
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        found = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise TypeError(f"{name}: got {found}, expected a floating tensor")
    heads = "heads" if num_heads is None else num_heads
    wrong_heads = num_heads is not None and tensor.dim() == 2 and tensor.size(1) != num_heads
    if tensor.dim() != 2 or tensor.size(0) != nb.num_edges or wrong_heads:
        raise ValueError(
            f"{name}: shape {tuple(tensor.shape)}, expected [{nb.num_edges}, {heads}] "
            "(one row per edge, in the neighborhood's order)"
        )
    check_device(name, tensor, nb)


def check_tensor(
    name: str, tensor: object, shape: Sequence[int | str], nb: Neighborhood,
    dtype: torch.dtype | None = None,
) -> None:  # fmt: skip
    """Raise unless it is a tensor of that shape, of `dtype` or else floating; words fit no size."""
    found = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
    if not isinstance(tensor, Tensor) or not (
        tensor.is_floating_point() if dtype is None else found == dtype
    ):
        wanted = "a floating tensor" if dtype is None else f"{dtype} as value has"
        raise TypeError(f"{name}: got {found}, expected {wanted}")
    if tuple(tensor.shape) != tuple(shape):
        words = ", ".join(map(str, shape))
        raise ValueError(f"{name}: shape {tuple(tensor.shape)}, expected ({words})")
    check_device(name, tensor, nb)


def edge_dim_of(matrix: object) -> int | str:
    """Features of an edge that a matrix [heads, edge_dim, head_dim] maps; a word if it is none."""
    return matrix.size(1) if isinstance(matrix, Tensor) and matrix.dim() == 3 else "edge_dim"


def check_device(name: str, tensor: Tensor, nb: Neighborhood) -> None:
    """Raise unless the tensor is where the neighborhood is."""
    if tensor.device != nb.indices.device:
        raise ValueError(
            f"{name}: on {tensor.device}, expected {nb.indices.device} as the neighborhood is"
        )


def check_bias(bias: Tensor | BucketedBias, nb: Neighborhood, num_heads: int) -> None:
    """Raise unless `bias` fits the edges and heads; `check_buckets` reads the values."""
    if not isinstance(bias, BucketedBias):
        if not isinstance(bias, Tensor):
            kind = type(bias).__name__
            raise TypeError(f"bias: got {kind}, expected a tensor or BucketedBias(bucket, table)")
        check_edges("bias", bias, nb, num_heads)
        return
    for name, part in bias._asdict().items():
        if not isinstance(part, Tensor):
            raise TypeError(f"bias.{name}: got {type(part).__name__}, expected a tensor")
        check_device(f"bias.{name}", part, nb)
    bucket, table = bias
    if bucket.dtype != torch.uint8 or bucket.shape != (nb.num_edges,):
        raise ValueError(
            f"bias.bucket: {bucket.dtype} of shape {tuple(bucket.shape)}, "
            f"expected uint8 [{nb.num_edges}]"
        )
    if not table.is_floating_point():
        raise TypeError(f"bias.table: dtype {table.dtype}, expected a floating type")
    if table.dim() != 2 or table.size(1) != num_heads or not 1 <= table.size(0) <= 256:
        raise ValueError(
            f"bias.table: shape {tuple(table.shape)}, "
            f"expected [1 to 256 buckets, {num_heads} heads]"
        )


def check_buckets(bucket: Tensor | None, rows: int) -> None:
    """Raise unless every bucket is one of the rows of a table; what looks it up calls this."""
    if bucket is not None:
        check_lookup("bias.bucket", bucket, rows, "rows of bias.table")
    elif rows:
        raise ValueError(f"bias.bucket: got None with {rows} buckets, expected one per edge")
