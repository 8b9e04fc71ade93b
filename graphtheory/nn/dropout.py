"""Dropout of features that may be sparse."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FeatureDropout(nn.Dropout):
    """Dropout for dense [N, F] or torch sparse CSR features: zeros stay zeros in either form.

    A linear layer takes both forms as they are, so a network of linear layers behind this one needs
    no dense copy of a bag-of-words matrix.

    Example:
        >>> x = torch.eye(3).to_sparse_csr()
        >>> FeatureDropout(0.0)(x).to_dense().trace().item()
        3.0
    """

    def forward(self, x: Tensor) -> Tensor:
        if x.layout != torch.sparse_csr:
            return super().forward(x)
        if not self.training or self.p == 0:
            return x
        entries = super().forward(x.values())
        return torch.sparse_csr_tensor(
            x.crow_indices(), x.col_indices(), entries, x.shape, check_invariants=False
        )  # the structure is that of x
