"""The additive score on any device: torch's own ops on some edges at a time, twice for backward."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from graphtheory.ops.backends._wide import widened

# Numbers in one buffer [edges at a time, heads, head_dim].
_BUFFER = 2**22


def _sums(
    indptr: Tensor, indices: Tensor, source: Tensor, target: Tensor,
    features: Tensor, matrix: Tensor,
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:  # fmt: skip
    """Some edges at a time: their slice, senders, receivers and sums [edges, H, C]."""
    num_edges = indices.size(0)
    ids = torch.arange(indptr.size(0) - 1, device=indptr.device)
    rows = torch.repeat_interleave(ids, indptr.diff(), output_size=num_edges)
    step = max(1, _BUFFER // max(1, source[0].numel() if len(source) else 1))
    for first in range(0, num_edges, step):
        part = slice(first, first + step)
        j, i = indices[part], rows[part]
        z = source[j] + target[i]
        if matrix.size(1):
            z += torch.einsum("ef,hfc->ehc", features[part], matrix)
        yield part, j, i, z


def score(
    indptr: Tensor, indices: Tensor, source: Tensor, target: Tensor, att: Tensor,
    features: Tensor, matrix: Tensor, slope: float,
) -> Tensor:  # fmt: skip
    """Scores [E, H] in the dtype of `source`."""
    dtype = source.dtype
    source, target, att, features, matrix = widened(source, target, att, features, matrix)
    out = source.new_empty(indices.size(0), att.size(0))
    for part, _, _, z in _sums(indptr, indices, source, target, features, matrix):
        out[part] = (torch.where(z > 0, z, slope * z) * att).sum(-1)
    return out.to(dtype)


def score_backward(
    indptr: Tensor, indices: Tensor, t_indptr: Tensor, receivers: Tensor, perm: Tensor,
    grad: Tensor, source: Tensor, target: Tensor, att: Tensor, features: Tensor, matrix: Tensor,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of source, target, att, features and matrix; needs no transposed structure."""
    dtypes = [t.dtype for t in (source, target, att, features, matrix)]
    grad, source, target, att, features, matrix = widened(
        grad, source, target, att, features, matrix
    )
    out = [torch.zeros_like(t) for t in (source, target, att, features, matrix)]
    for part, j, i, z in _sums(indptr, indices, source, target, features, matrix):
        up = grad[part, :, None]
        up = torch.where(z > 0, up, slope * up)
        out[2] += (up * z).sum(0)
        z = up * att
        out[0].index_add_(0, j, z)
        out[1].index_add_(0, i, z)
        out[3][part] = torch.einsum("ehc,hfc->ef", z, matrix)
        out[4] += torch.einsum("ef,ehc->hfc", features[part], z)
    return tuple(g.to(d) for g, d in zip(out, dtypes, strict=True))  # type: ignore[return-value]
