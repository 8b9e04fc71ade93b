"""From what a batch of graphs stores to vectors: features, and encodings of where nodes lie."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class DegreeEmbedding(nn.Module):
    r"""Centrality encoding: a learned vector for the in-degree and one for the out-degree.

    .. math:: h_n = x_n + z^-_{\deg^-(n)} + z^+_{\deg^+(n)}

    The module computes the two terms that are added. Degrees of `max_degree` or more share the last
    vector; duplicate edges and self-loops count each time.

    Args:
        max_degree: Largest degree with a vector of its own, 0 or more edges.
        dim: Features of a node.

    Shapes:
        edge_index int64 [2, E] and the number of nodes -> [N, dim].

    Raises:
        ValueError: If `max_degree` is negative.

    Source:
        Ying et al. (2021), Do transformers really perform bad for graph representation?, eq. (5).
        Differs: undirected graphs have two vectors as well, as in the authors' code.

    Example:
        >>> DegreeEmbedding(4, 8)(torch.tensor([[0, 1], [1, 0]]), 3).shape
        torch.Size([3, 8])
    """

    def __init__(self, max_degree: int, dim: int) -> None:
        super().__init__()
        if max_degree < 0:
            raise ValueError(f"max_degree: got {max_degree}, expected 0 or more")
        self.max_degree = max_degree
        self.in_degree, self.out_degree = (nn.Embedding(max_degree + 1, dim) for _ in range(2))

    def forward(self, edge_index: Tensor, num_nodes: int | None = None) -> Tensor:
        if num_nodes is None:
            num_nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
        degrees = (torch.bincount(ends, minlength=num_nodes) for ends in edge_index)
        out, into = (d.clamp(max=self.max_degree) for d in degrees)
        return self.in_degree(into) + self.out_degree(out)


class LaplacianEncoding(nn.Module):
    r"""Linear map of Laplacian eigenvectors, whose signs are drawn again in every training step.

    .. math:: p_n = W (s_{g(n)} \odot \lambda_n) + c, \qquad s_g \in \{-1, 1\}^k

    An eigenvector is defined up to its sign: in training one sign per graph and eigenvector is
    drawn, in evaluation all signs are +1.

    Args:
        k: Eigenvectors of each graph.
        dim: Features of the result.

    Shapes:
        eigenvectors floating [N, k] of `AddLaplacianEigenvectorPE(k)`, which reads edge_weight;
        batch int64 [N], the graph of each node, or None for one graph -> [N, dim].

    Source: Dwivedi et al. (2020), Benchmarking graph neural networks, section 4.

    Example:
        >>> LaplacianEncoding(2, 8)(torch.randn(4, 2), torch.tensor([0, 0, 1, 1])).shape
        torch.Size([4, 8])
    """

    name = "laplacian_eigenvector_pe"
    transform = "AddLaplacianEigenvectorPE"

    def __init__(self, k: int, dim: int) -> None:
        super().__init__()
        if k < 1:
            raise ValueError(f"k: got {k}, expected at least 1 eigenvector")
        self.linear = nn.Linear(k, dim)

    def forward(
        self,
        eigenvectors: Tensor,
        batch: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw signs in training and apply the map; `generator` is the source of the signs."""
        check_width(self.name, eigenvectors, self.linear.in_features)
        if self.training:
            graphs = 1 if batch is None or not len(batch) else int(batch.max()) + 1
            device = eigenvectors.device if generator is None else generator.device
            size = graphs, eigenvectors.size(1)
            draw = torch.randint(2, size, generator=generator, device=device)
            sign = (2 * draw - 1).to(eigenvectors)
            eigenvectors = eigenvectors * (sign if batch is None else sign[batch])
        return self.linear(eigenvectors)


class WalkEncoding(nn.Module):
    r"""Normalized return probabilities of a random walk, through a linear map.

    .. math:: p_n = W \operatorname{BN}\big((R^1)_{nn}, \dots, (R^k)_{nn}\big) + c

    Args:
        steps: Steps k of the walk.
        dim: Features of the result.

    Shapes:
        probabilities floating [N, steps] of PyG's `AddRandomWalkPE(k)`, no more or fewer, which
        are right of graphs without weights and duplicate edges alone -> [N, dim].

    Source:
        Dwivedi et al. (2022), Graph neural networks with learnable structural and positional
        representations, section 3.2. The batch norm is that of Rampášek et al. (2022).

    Example:
        >>> WalkEncoding(3, 8)(torch.rand(4, 3)).shape
        torch.Size([4, 8])
    """

    name = "random_walk_pe"
    transform = "AddRandomWalkPE"

    def __init__(self, steps: int, dim: int) -> None:
        super().__init__()
        if steps < 1:
            raise ValueError(f"steps: got {steps}, expected at least 1")
        self.norm, self.linear = nn.BatchNorm1d(steps), nn.Linear(steps, dim)

    def forward(self, probabilities: Tensor, batch: Tensor | None = None) -> Tensor:
        """Normalize and map; `batch` is not read."""
        check_width(self.name, probabilities, self.linear.in_features)
        return self.linear(self.norm(probabilities))


def check_width(name: str, value: Tensor, columns: int) -> None:
    """Raise unless there are that many columns for each node."""
    if value.dim() != 2 or value.size(1) != columns:
        raise ValueError(f"{name}: shape {tuple(value.shape)}, expected [num_nodes, {columns}]")


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
