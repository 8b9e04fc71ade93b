"""A first linear layer that takes dense or sparse features."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor, nn

from graphtheory import ops
from graphtheory.graph import Neighborhood


class InputLinear(nn.Linear):
    r"""Dropout and a linear map, x W^T + b, for dense [N, F] or torch sparse CSR features.

    A sparse feature matrix is a bipartite graph from features to nodes whose edge weights are the
    entries, so the product is an aggregation. Dropout acts on the entries; zeros stay zeros in
    either form.

    Args:
        in_features: F.
        out_features: Width of the output.
        dropout: Probability with which an entry is dropped in training.

    Example:
        >>> layer = InputLinear(3, 2)
        >>> x = torch.eye(3)
        >>> torch.allclose(layer(x), layer(x.to_sparse_csr()), atol=1e-6)
        True
    """

    def __init__(self, in_features: int, out_features: int, *, dropout: float = 0.0) -> None:
        super().__init__(in_features, out_features)
        self.dropout = dropout
        self._seen: tuple[weakref.ref[Tensor], Neighborhood] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Project."""
        if x.layout != torch.sparse_csr:
            return super().forward(nn.functional.dropout(x, self.dropout, self.training))
        nb = self._as_neighborhood(x)
        entries = nn.functional.dropout(x.values(), self.dropout, self.training)
        rows = ops.aggregate(entries[:, None], self.weight.t()[:, None, :], nb)
        return rows.squeeze(1) + self.bias

    def _as_neighborhood(self, x: Tensor) -> Neighborhood:
        """The bipartite graph of x; kept, with its transpose, while the same tensor comes in."""
        if self._seen is None or self._seen[0]() is not x:
            nb = Neighborhood(x.crow_indices(), x.col_indices(), self.in_features)
            self._seen = (weakref.ref(x), nb)
        return self._seen[1]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_seen": None}
