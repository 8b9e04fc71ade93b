"""Features of which few are not zero, in the place of a dense tensor."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

from graphtheory import ops
from graphtheory.graph import Neighborhood
from graphtheory.graph.content import holds, is_plain, is_tracing
from graphtheory.nn.conv.adjacency import outside_inference_mode
from graphtheory.ops.derivatives import may_run_twice

MAX_DENSITY = 0.05  # the largest share of non-zeros that is read by rows
MIN_ENTRIES = 1 << 16  # the least number of entries for which that is worth it


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
        x: Dense features [N, F], not changed; kept, so that other functions find it.

    Raises:
        TypeError: If `x` is not floating.
        ValueError: If `x` is not a matrix, or requires gradients, which zeros would not get.

    Example:
        >>> x = torch.eye(4)
        >>> linear = torch.nn.Linear(4, 2)
        >>> torch.testing.assert_close(linear(SparseFeatures(x)), linear(x))
    """

    _read: "_NonZeros"
    _dense: Tensor | None
    _looks: bool  # whether the dense tensor has to be compared before each use

    @staticmethod
    def __new__(cls, x: Tensor) -> "SparseFeatures":
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
        return _wrap(outside_inference_mode(lambda: _read(x)), x, looks=True)

    def __init__(self, x: Tensor) -> None:
        pass

    @property
    def dense(self) -> Tensor:
        """The same as a plain dense tensor."""
        if self._dense is None:
            nb, values, _ = self._read
            out = values.new_zeros(nb.num_dst, nb.num_src)
            self._dense = out.index_put_((nb.targets(), nb.indices), values)
            self._read = self._read._replace(version=version_of(self._dense))
        return self._dense

    @property
    def by_rows(self) -> bool:
        """Whether the non-zeros are still those of the dense tensor, and need no gradient."""
        dense = self._dense
        if dense is None:
            return True
        if version_of(dense) != self._read.version or dense.requires_grad:
            return False
        return not self._looks or self._read.hold_of(dense)

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


def version_of(dense: Tensor) -> int:
    """Torch's count of changes, 0 of a tensor of inference mode, which has none."""
    return 0 if dense.is_inference() else dense._version


def _wrap(read: "_NonZeros", dense: Tensor | None, *, looks: bool = False) -> SparseFeatures:
    rows, values, _ = read
    size = (rows.num_dst, rows.num_src)
    out = Tensor._make_wrapper_subclass(
        SparseFeatures, size, dtype=values.dtype, device=values.device
    )
    assert isinstance(out, SparseFeatures)
    out._read, out._dense, out._looks = read, dense, looks
    return out


def _linear(x: SparseFeatures, weight: Tensor, bias: Tensor | None = None) -> Any:
    out = _times(x, weight.t())
    return out if out is NotImplemented or bias is None else out + bias


def _times(x: SparseFeatures, weight: Any) -> Any:
    if type(weight) not in (Tensor, torch.nn.Parameter) or weight.dim() != 2:
        return NotImplemented
    rows, values, _ = x._read
    if weight.layout != torch.strided or weight.shape[0] != rows.num_src:
        return NotImplemented  # torch refuses it in its own words
    if weight.dtype != values.dtype or torch.is_autocast_enabled(weight.device.type):
        return NotImplemented
    return ops.aggregate(values[:, None], weight[:, None], rows).squeeze(1)


def _dropout(
    input: SparseFeatures, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    if not training or p == 0:
        return input
    if inplace:
        return NotImplemented
    return _wrap(input._read._replace(values=functional.dropout(input._read.values, p)), None)


_BY_ROWS: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.linear: _linear, functional.dropout: _dropout, Tensor.matmul: _times,
    Tensor.__matmul__: _times, Tensor.mm: _times, torch.matmul: _times, torch.mm: _times,
}  # fmt: skip
_OF_SHAPE: set[Any] = {
    Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point, Tensor.__len__,
}  # fmt: skip
for _name in ("shape", "ndim", "dtype", "device", "layout", "is_sparse", "is_cuda"):
    _OF_SHAPE.add(getattr(Tensor, _name).__get__)


def read_few(model: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """A hook before the forward pass, which reads features with few non-zeros by these."""
    if torch.compiler.is_compiling() or may_run_twice(model.training):
        return None
    for x in (*args, *kwargs.values()):
        if (type(x) is Tensor and x.numel() >= MIN_ENTRIES) or type(x) is dict:
            return tuple(map(_few, args)), {name: _few(x) for name, x in kwargs.items()}
    return None


def may_change(hooks: Mapping[int, Any], inputs: Iterable[Any]) -> bool:
    """Whether hooks before a forward pass are others than `read_few`, or may change the inputs."""
    if not hooks:
        return False
    for hook in hooks.values():
        if hook is not read_few:
            return True
    for x in inputs:
        if type(x) is Tensor and x.numel() >= MIN_ENTRIES and x.is_floating_point():
            return True
    return False


def _few(x: Any) -> Any:
    return {kind: maybe_sparse(v) for kind, v in x.items()} if type(x) is dict else maybe_sparse(x)


def maybe_sparse(x: Any) -> Any:
    """`x` by its non-zeros if it has few and was seen before: a batch used once costs nothing."""
    if type(x) is not Tensor or x.dim() != 2 or x.numel() < MIN_ENTRIES or x.requires_grad:
        return x
    if not (x.is_floating_point() and is_plain(x)) or x.is_inference() or is_tracing():
        return x
    known = _SEEN.get(x, _NEW)
    if known is _NEW or (known and not known.hold_of(x)):
        _SEEN[x] = None
        return x
    if known is None:
        few = _share(x[:64]) <= MAX_DENSITY and _share(x) <= MAX_DENSITY
        known = _SEEN[x] = outside_inference_mode(lambda: _read(x)) if few else ()
    return _wrap(known, x) if known else x


# Tensors seen -> their non-zeros; () of those to be read as they are; None until the second time.
_SEEN = WeakIdKeyDictionary()
_NEW = object()


class _NonZeros(NamedTuple):
    """What differs from 0 in a version of a tensor, to which it keeps no reference."""

    rows: Neighborhood
    values: Tensor
    version: int

    def hold_of(self, x: Tensor) -> bool:
        """Whether they are still those of x; off a CPU torch's count of changes alone decides."""
        if version_of(x) != self.version or x.shape != (self.rows.num_dst, self.rows.num_src):
            return False
        return not x.is_cpu or holds(x, self.rows.indptr, self.rows.indices, self.values)


def _read(x: Tensor) -> _NonZeros:
    row, column = x.nonzero(as_tuple=True)
    counts = torch.bincount(row, minlength=x.size(0))
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    rows = Neighborhood(indptr, column, x.size(1), validate=False)
    return _NonZeros(rows, x[row, column], version_of(x))


def _share(x: Tensor) -> float:
    return int(x.count_nonzero()) / x.numel()
