"""Pickled raw files, read without giving them the power to run anything or to forge memory.

What a file makes are stand-ins of our own, which hold checked parts. Arrays, matrices and tensors
are made of them here at the end: numpy and torch take no state from a file.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch._utils import _rebuild_tensor_v2

Known = Mapping[tuple[str, str], Any]
_NUMBERS = re.compile(r"[<>|=]?([biuf][1248])")


def _check(fits: object, what: str) -> None:
    if not fits:
        raise pickle.UnpicklingError(f"{what}, which no file of this kind has")


def _sizes(value: Any, what: str) -> tuple[int, ...]:
    """A tuple of counts."""
    counts = type(value) in (tuple, torch.Size) and all(type(n) is int and n >= 0 for n in value)
    _check(counts, f"{what} {value!r}")
    return tuple(value)


class _Made:
    """What a file made, of which it can change nothing."""

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __setstate__(self, state: Any) -> None:
        _check(False, f"a state of a {type(self).__name__.strip('_')}")


class _Maker(_Made):
    """A function that a file may call."""

    __slots__ = ()

    def __call__(self, *args: Any) -> Any:
        return self.value(*args)


class _Dtype(_Made):
    """A type of numbers; its state says the order of bytes, and no more."""

    __slots__ = ()

    def __init__(self, name: Any, align: Any = 0, copy: Any = 0) -> None:
        found = _NUMBERS.fullmatch(name) if type(name) is str else None
        _check(found is not None, f"a type {name!r}")
        assert found is not None
        self.value = np.dtype(found[1])

    def __setstate__(self, state: Any) -> None:
        plain = type(state) is tuple and len(state) == 8 and state[2:] == (None,) * 3 + (-1, -1, 0)
        _check(plain and state[1] in ("<", ">", "|", "="), f"a type with the state {state!r}")
        self.value = self.value.newbyteorder(state[1])


class _Array(_Made):
    """An array of numbers; its state is shape, type, order of memory and bytes."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        _check(type(state) is tuple and len(state) == 5, "an array of another state")
        shape = _sizes(state[1], "a shape")
        dtype, by_column, content = state[2:]
        _check(type(dtype) is _Dtype and type(by_column) in (bool, int), "an array of another type")
        content = content.encode("latin1") if type(content) is str else content
        size = math.prod(shape) * dtype.value.itemsize
        _check(type(content) is bytes and len(content) == size, "an array of another length")
        flat = np.frombuffer(content, dtype.value).astype(dtype.value.newbyteorder("="))
        self.value = flat.reshape(shape, order="F" if by_column else "C")


class _Csr(_Made):
    """A sparse matrix; its state are its arrays and its shape."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        _check(type(state) is dict, "a matrix of another state")
        parts = [state.get(name) for name in ("data", "indices", "indptr")]
        _check(all(type(part) is _Array and part.value is not None for part in parts), "no matrix")
        shape = _sizes(state.get("_shape"), "a shape")
        data, indices, indptr = (part.value for part in parts)
        _check(len(shape) == 2 and len(indptr) == shape[0] + 1, "a matrix of another shape")
        matrix = scipy.sparse.csr_matrix((data, indices, indptr), shape)
        matrix.check_format(full_check=True)
        self.value = matrix


def _array(of: Any, shape: Any, code: Any) -> _Array:
    return _Array()


def _storage(content: Any) -> _Made:
    _check(type(content) is bytes, "a storage of other than bytes")
    found = torch.load(io.BytesIO(content), weights_only=True)
    _check(isinstance(found, torch.storage.TypedStorage), f"a {type(found).__name__} as storage")
    return _Made(found)


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any) -> _Made:
    """A tensor that lies within its storage."""
    _check(type(storage) is _Made, "a tensor without storage")
    size, stride = _sizes(size, "a size"), _sizes(stride, "a stride")
    _check(type(offset) is int and offset >= 0 and len(size) == len(stride), "a tensor elsewhere")
    _check(grad is False and not hooks, "a tensor with a gradient or hooks")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    within = isinstance(storage.value, torch.storage.TypedStorage) and last < storage.value._size()
    _check(within or 0 in size, "a tensor beyond its storage")
    return _Made(_rebuild_tensor_v2(storage.value, offset, size, stride, False, OrderedDict()))


def _dict(*_: Any) -> dict[Any, Any]:
    return {}


ARRAYS: Known = {
    ("numpy.core.multiarray", "_reconstruct"): _Maker(_array),
    ("numpy._core.multiarray", "_reconstruct"): _Maker(_array),
    ("numpy", "ndarray"): _Made(),
    ("numpy", "dtype"): _Maker(_Dtype),
}
"""What arrays of numbers are made of."""
MATRICES: Known = {
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): _Maker(_dict),
    ("__builtin__", "list"): _Made(),
}
"""What sparse matrices are made of, and lists by key."""
TENSORS: Known = {
    ("torch._utils", "_rebuild_tensor_v2"): _Maker(_tensor),
    ("torch.storage", "_load_from_bytes"): _Maker(_storage),
    ("collections", "OrderedDict"): _Maker(_dict),
}
"""What tensors are made of, with the bytes inside them read by torch's safe loader."""

_AS_THEY_ARE = (int, float, str, bytes, bool, type(None))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BufferedReader, known: Known) -> None:
        super().__init__(file, encoding="latin1")
        self._known = known

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._known:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of such a file")
        return self._known[module, name]


def read(path: Path, known: Known) -> Any:
    """What a pickled file holds: numbers, text, arrays, matrices, tensors, and lists of these.

    Args:
        path: The file.
        known: The classes and functions that it may name.

    Raises:
        pickle.UnpicklingError: The file names anything else, holds parts that do not fit together,
            or is none.
    """
    with path.open("rb") as file:
        try:
            return _plain(_Unpickler(file, known).load())
        except pickle.UnpicklingError:
            raise
        except Exception as error:  # whatever a stream of other codes makes of the reader
            raise pickle.UnpicklingError(
                f"{path.name}: {type(error).__name__}, {error}; expected a whole file of this kind"
            ) from error


def _plain(given: Any) -> Any:
    """With arrays, matrices and tensors in the place of stand-ins."""
    kind = type(given)
    if kind in _AS_THEY_ARE:
        return given
    if kind is dict:
        return {_plain(key): _plain(value) for key, value in given.items()}
    if kind in (list, tuple):
        return kind(map(_plain, given))
    value = given.value if isinstance(given, _Made) else None
    _check(isinstance(value, (np.ndarray, scipy.sparse.csr_matrix, Tensor)), f"a {kind.__name__}")
    return value
