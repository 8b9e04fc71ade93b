"""Features of which few are not zero, in the place of a dense tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_map_only

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.nn.conv.adjacency import cached_for, outside_inference_mode

MOST = 0.05  # the largest share of non-zeros that is read by rows
LEAST = 1 << 16  # the least number of entries for which that is worth it


class SparseFeatures(Tensor):
    r"""A tensor [N, F] that linear maps read by its non-zeros.

    .. math:: y_i = \sum_{k\,:\,x_{ik} \ne 0} x_{ik} W_{:k} + b

    Use it in the place of the dense tensor ``x``. `torch.nn.functional.linear`, ``x @ weight`` and
    dropout take time in proportion to the non-zeros: node i aggregates from its features, by
    `ops.aggregate`, with gradients of the weights. Any other function of torch gets the dense
    tensor and gives what it gives, on a plain tensor; so does every function once ``x`` was written
    to or requires gradients.

    Dropout keeps and scales each non-zero with the same probability as on the dense tensor, but it
    draws random numbers for the non-zeros alone: others than `dropout` of the dense tensor draws,
    which takes 25 times as long on Cora.

    Args:
        x: Dense features, not changed; kept, so that other functions find it.

    Shapes:
        [N, F].

    Raises:
        TypeError: If `x` is not floating.
        ValueError: If `x` is not a matrix, or requires gradients, which zeros would not get.

    Example:
        >>> x = torch.eye(4)
        >>> linear = torch.nn.Linear(4, 2)
        >>> torch.testing.assert_close(linear(SparseFeatures(x)), linear(x))
    """

    _rows: Neighborhood
    _nonzeros: Tensor
    _dense: Tensor | None
    _version_read: int

    @staticmethod
    def __new__(cls, x: Tensor) -> SparseFeatures:
        """Read the non-zeros of a dense tensor."""
        if isinstance(x, SparseFeatures):
            return x
        if not isinstance(x, Tensor) or not x.is_floating_point():
            raise TypeError(f"x: got {getattr(x, 'dtype', type(x))}, expected a floating tensor")
        if x.dim() != 2 or x.layout != torch.strided or x.requires_grad:
            raise ValueError(
                f"x: shape {tuple(x.shape)}, {x.layout}, requires_grad={x.requires_grad}, expected "
                "dense features [num_nodes, features] that need no gradient"
            )
        row, column = x.nonzero(as_tuple=True)
        counts = torch.bincount(row, minlength=x.size(0))
        indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        rows = Neighborhood(indptr, column, x.size(1), validate=False)
        return _wrap(rows, x[row, column], x)

    def __init__(self, x: Tensor) -> None:
        pass

    @property
    def dense(self) -> Tensor:
        """The same as a plain dense tensor."""
        if self._dense is None:
            nb = self._rows
            out = self._nonzeros.new_zeros(nb.num_dst, nb.num_src)
            self._dense = out.index_put_((nb.targets(), nb.indices), self._nonzeros)
            self._version_read = self._dense._version
        return self._dense

    @property
    def by_rows(self) -> bool:
        """Whether the non-zeros are still those of the dense tensor, and need no gradient."""
        dense = self._dense
        return dense is None or not (dense._version != self._version_read or dense.requires_grad)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run `func` by rows where it is one of ours, on the dense tensor elsewhere."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func in _OF_SHAPE:
                return func(*args, **kwargs)
            first = args[0] if args else None
            if func in _BY_ROWS and isinstance(first, SparseFeatures) and first.by_rows:
                out = _BY_ROWS[func](*args, **kwargs)
                if out is not NotImplemented:
                    return out
            args, kwargs = tree_map_only(SparseFeatures, lambda x: x.dense, (args, kwargs))
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """What code in C++ calls, on the dense tensor."""
        args, kwargs = tree_map_only(SparseFeatures, lambda x: x.dense, (args, kwargs or {}))
        return func(*args, **kwargs)


def _wrap(rows: Neighborhood, values: Tensor, dense: Tensor | None) -> SparseFeatures:
    size = (rows.num_dst, rows.num_src)
    out = Tensor._make_wrapper_subclass(
        SparseFeatures, size, dtype=values.dtype, device=values.device
    )
    assert isinstance(out, SparseFeatures)
    out._rows, out._nonzeros, out._dense = rows, values, dense
    out._version_read = 0 if dense is None else dense._version
    return out


def _linear(x: SparseFeatures, weight: Tensor, bias: Tensor | None = None) -> Any:
    out = _times(x, weight.t())
    return out if out is NotImplemented or bias is None else out + bias


def _times(x: SparseFeatures, weight: Any) -> Any:
    if type(weight) not in (Tensor, torch.nn.Parameter) or weight.dim() != 2:
        return NotImplemented
    if weight.layout != torch.strided or weight.shape[0] != x._rows.num_src:
        return NotImplemented  # torch refuses it in its own words
    if weight.dtype != x._nonzeros.dtype or torch.is_autocast_enabled(weight.device.type):
        return NotImplemented
    return ops.aggregate(x._nonzeros[:, None], weight[:, None], x._rows).squeeze(1)


def _dropout(
    input: SparseFeatures, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    if not training or p == 0:
        return input
    if inplace:
        return NotImplemented
    return _wrap(input._rows, functional.dropout(input._nonzeros, p), None)


_BY_ROWS: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.linear: _linear, functional.dropout: _dropout, Tensor.matmul: _times,
    Tensor.__matmul__: _times, Tensor.mm: _times, torch.matmul: _times, torch.mm: _times,
}  # fmt: skip
_OF_SHAPE: set[Any] = {
    Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point, Tensor.__len__,
    *(
        getattr(Tensor, name).__get__
        for name in ("shape", "ndim", "dtype", "device", "layout", "is_sparse", "is_cuda")
    ),
}  # fmt: skip


def with_few(x: Any) -> Any:
    """`x` by its non-zeros if it was seen before and has few, otherwise as it is.

    The first time that a tensor is seen it is only marked, so a batch that is used once costs
    nothing.
    """
    if type(x) is not Tensor or x.dim() != 2 or x.numel() < LEAST or not x.is_floating_point():
        return x
    if x.requires_grad or x.layout is not torch.strided or torch.compiler.is_compiling():
        return x
    cache = cached_for(x)
    if cache is None:
        return x
    if "seen" not in cache:
        cache["seen"] = True
    elif "few" not in cache:
        few = _share(x[:64]) <= MOST and _share(x) <= MOST
        cache["few"] = outside_inference_mode(lambda: SparseFeatures(x)) if few else None
    return x if cache.get("few") is None else cache["few"]


def _share(x: Tensor) -> float:
    return int(x.count_nonzero()) / x.numel()
