"""From what a batch of graphs stores to vectors: features, and encodings added to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphtheory.nn.graph_positions import (
    DegreeEmbedding,
    LaplacianEncoding,
    WalkEncoding,
    check_width,
)


class CategoricalEncoder(nn.Module):
    r"""Sum of one embedding per categorical column, as the atom and bond encoders of OGB compute.

    .. math:: h = \sum_c E_c[x_c]

    Args:
        sizes: Number of categories of each column, such as those of OGB's
            ``get_atom_feature_dims()``.
        dim: Features of the result.

    Shapes:
        integers [N, columns], or [N] for one column -> [N, dim].

    Raises:
        TypeError: If the values are not integers.
        ValueError: If a size is below 1, or there are more or fewer columns than sizes.
        IndexError: If a value is outside its column's categories; the message names it.

    Example:
        >>> CategoricalEncoder((5, 3), 8)(torch.tensor([[4, 0], [1, 2]])).shape
        torch.Size([2, 8])
    """

    first: Tensor

    def __init__(self, sizes: Sequence[int], dim: int) -> None:
        super().__init__()
        self.sizes = tuple(int(size) for size in sizes)
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"sizes: got {tuple(sizes)}, expected one count of 1 or more a column")
        self.table = nn.Parameter(torch.empty(sum(self.sizes), dim))
        first = torch.tensor([0, *self.sizes[:-1]]).cumsum(0)
        self.register_buffer("first", first, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the embeddings of each column as a Xavier-uniform matrix."""
        for rows in self.table.split(self.sizes):
            nn.init.xavier_uniform_(rows.data)

    def forward(self, values: Tensor) -> Tensor:
        values = values[:, None] if values.dim() == 1 else values
        if values.is_floating_point():
            raise TypeError(f"values: {values.dtype}, expected integer categories")
        if values.dim() != 2 or values.size(1) != len(self.sizes):
            raise ValueError(
                f"values: shape {tuple(values.shape)}, expected [N, {len(self.sizes)}]: one column "
                "per size"
            )
        if not torch.compiler.is_compiling():
            self._check_range(values)
        return functional.embedding_bag(values.long() + self.first, self.table, mode="sum")

    def _check_range(self, values: Tensor) -> None:
        limit = torch.tensor(self.sizes, device=values.device)
        wrong = (values < 0) | (values >= limit)
        if bool(wrong.any()):
            row, column = wrong.nonzero()[0].tolist()
            raise IndexError(
                f"values: row {row}, column {column} is {int(values[row, column])}, expected a "
                f"category in 0..{self.sizes[column] - 1}"
            )

    def extra_repr(self) -> str:
        return f"{self.sizes}, {self.table.size(1)}"


def feature_encoder(
    features: int | Sequence[int], dim: int, *, bias: bool = True
) -> nn.Linear | CategoricalEncoder:
    """The first layer for features of nodes or edges: linear, or `CategoricalEncoder`.

    `features` is the number of floating features, or the number of categories of each column.

    Example:
        >>> feature_encoder(3, 8), feature_encoder((5, 4), 8)
        (Linear(in_features=3, out_features=8, bias=True), CategoricalEncoder((5, 4), 8))
    """
    if isinstance(features, int):
        return nn.Linear(features, dim, bias=bias)
    return CategoricalEncoder(features, dim)


class NodeEncoder(nn.Module):
    """Input of a network for graphs: features plus any encodings of the nodes' positions.

    Args:
        features: Number of floating features, or the number of categories of each column.
        dim: Features of the result.
        degree: Degree embedding to add; None is none.
        encodings: Encodings of stored attributes to add: `LaplacianEncoding`, `WalkEncoding`.
        normalize: Batch norm of floating features first, whatever their units.

    Shapes:
        a PyG `Batch` or `Data` with x, edge_index and the attribute ``encoding.name`` of each
        encoding -> [N, dim]. What it lacks a ValueError names, with the transform that computes it.

    Example:
        >>> from types import SimpleNamespace
        >>> batch = SimpleNamespace(x=torch.tensor([[0, 2], [1, 0]]), batch=None,
        ...                         edge_index=torch.tensor([[0, 1], [1, 0]]))
        >>> NodeEncoder((2, 3), 8, degree=DegreeEmbedding(4, 8))(batch).shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        features: int | Sequence[int],
        dim: int,
        *,
        degree: DegreeEmbedding | None = None,
        encodings: Sequence[LaplacianEncoding | WalkEncoding] = (),
        normalize: bool = False,
    ) -> None:
        super().__init__()
        self.norm: nn.Module = nn.Identity()
        if normalize and isinstance(features, int):
            self.norm = nn.BatchNorm1d(features)
        self.features, self.degree = feature_encoder(features, dim), degree
        self.encodings = nn.ModuleList(encodings)

    def forward(self, data: Any) -> Tensor:
        x = self._features(data)
        if self.degree is not None:
            x = x + self.degree(data.edge_index, len(x))
        for encoding in self.encodings:
            stored = getattr(data, str(encoding.name), None)
            if stored is None:
                raise ValueError(
                    f"{encoding.name}: the batch has none, expected what PyG's transform "
                    f"{encoding.transform} computes"
                )
            x = x + encoding(stored, getattr(data, "batch", None))
        return x

    def _features(self, data: Any) -> Tensor:
        x = getattr(data, "x", None)
        if x is None:
            raise ValueError("x: the batch has none, expected features of the nodes")
        if isinstance(self.features, nn.Linear):
            x = x[:, None] if x.dim() == 1 else x
            check_width("x", x, self.features.in_features)
            return self.features(self.norm(x.to(self.features.weight.dtype)))
        return self.features(x)
