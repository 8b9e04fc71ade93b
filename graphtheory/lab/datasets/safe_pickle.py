"""Pickled raw files, read without giving them the power to run anything or to forge memory.

What a file makes are stand-ins of our own, which hold checked parts. The codes of the stream are a
short list, read in Python: the reader in C hashes keys of any depth until its stack is full, and
takes as much memory as a number in the file asks for.
"""

import io
import math
import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

Known = Mapping[tuple[str, str], Any]
_NUMBERS = re.compile(r"[<>|=]?([biuf][1248])")


def _check(fits: object, what: str) -> None:
    if not fits:
        raise pickle.UnpicklingError(f"{what}, which no file of this kind has")


def _said(value: Any) -> str:
    """In a message: lists may hold one another so often that their text fills the memory."""
    return repr(value)[:80] if type(value) in (str, int) else f"of class {type(value).__name__}"


def _sizes(value: Any, what: str) -> tuple[int, ...]:
    """A tuple of counts, each checked."""
    _check(type(value) is tuple, f"{what} {_said(value)}")
    for n in value:
        _check(type(n) is int and n >= 0, f"{what} with the entry {_said(n)}")
    return tuple(value)


class _Made:
    """What a file made, of which it can change nothing."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __setstate__(self, state: Any) -> None:
        _check(False, f"a state of a {type(self).__name__.strip('_')}")


class _Maker(_Made):
    """A function that a file may call."""

    def __call__(self, *args: Any) -> Any:
        return self.value(*args)


class _Dtype(_Made):
    """A type of numbers; its state says the order of bytes, and no more."""

    def __init__(self, name: Any, align: Any = 0, copy: Any = 0) -> None:
        found = _NUMBERS.fullmatch(name) if type(name) is str else None
        _check(found is not None, f"a type {_said(name)}")
        assert found is not None
        self.value = np.dtype(found[1])

    def __setstate__(self, state: Any) -> None:
        plain = type(state) is tuple and len(state) == 8 and state[2:] == (None,) * 3 + (-1, -1, 0)
        _check(plain and state[1] in ("<", ">", "|", "="), "a type with another state")
        self.value = self.value.newbyteorder(state[1])


class _Array(_Made):
    """An array of numbers; its state is shape, type, order of memory and bytes."""

    def __setstate__(self, state: Any) -> None:
        _check(type(state) is tuple and len(state) == 5, "an array of another state")
        shape = _sizes(state[1], "a shape")
        dtype, by_column, content = state[2:]
        _check(type(dtype) is _Dtype and type(by_column) in (bool, int), "an array of another type")
        content = content.encode("latin1") if type(content) is str else content
        size = math.prod(shape) * dtype.value.itemsize
        _check(type(content) is bytes and len(content) == size, "an array of another length")
        flat = np.frombuffer(content, dtype.value).astype(dtype.value.newbyteorder("="))
        _check(flat.dtype != bool or not content.strip(b"\0\1"), "a truth value but 0 and 1")
        self.value = flat.reshape(shape, order="F" if by_column else "C")


class _Csr(_Made):
    """A sparse matrix; its state are its arrays and its shape."""

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


def _storage(content: Any) -> _Made:
    """The numbers that `torch.save` wrote in its format before archives, one after the other."""
    _check(type(content) is bytes, "a storage of other than bytes")
    _check(not content.startswith(b"PK"), "a storage in an archive")
    file = io.BytesIO(content)
    magic, version, system, found, _ = (_StorageUnpickler(file, _TYPES).load() for _ in range(5))
    known = magic == _MAGIC and version == 1001 and type(system) is dict and type(found) is _Made
    _check(known and system.get("little_endian") is True, "a storage of another format")
    dtype, count = found.value
    numbers = file.read()[8:]  # behind their count
    _check(count * dtype.itemsize == len(numbers), "a storage of another length")
    flat = torch.frombuffer(bytearray(numbers), dtype=dtype) if count else torch.empty(0).to(dtype)
    return _Made(flat)


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any) -> _Made:
    """A tensor that lies within its storage, and is no larger."""
    flat: Any = storage.value if type(storage) is _Made else None
    _check(isinstance(flat, Tensor) and flat.dim() == 1, "a tensor without storage")
    size, stride = _sizes(size, "a size"), _sizes(stride, "a stride")
    _check(type(offset) is int and offset >= 0 and len(size) == len(stride), "a tensor elsewhere")
    _check(grad is False and type(hooks) is dict and not hooks, "a tensor with gradient or hooks")
    reach = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    end = offset + (0 if 0 in size else reach)
    assert flat is not None
    _check(max(end, math.prod(size)) <= len(flat), "a tensor beyond its storage")
    return _Made(flat.as_strided(size, stride, offset))


# What files of arrays, of sparse matrices and lists by key, and of tensors may name.
ARRAYS: Known = {
    ("numpy.core.multiarray", "_reconstruct"): _Maker(lambda *_: _Array()),
    ("numpy._core.multiarray", "_reconstruct"): _Maker(lambda *_: _Array()),
    ("numpy", "ndarray"): _Made(),
    ("numpy", "dtype"): _Maker(_Dtype),
}
MATRICES: Known = {
    **ARRAYS,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): _Maker(lambda *_: {}),
    ("__builtin__", "list"): _Made(),
}
TENSORS: Known = {
    **ARRAYS,
    ("torch._utils", "_rebuild_tensor_v2"): _Maker(_tensor),
    ("torch.storage", "_load_from_bytes"): _Maker(_storage),
    ("collections", "OrderedDict"): _Maker(lambda *_: {}),
}

_MAGIC = 0x1950A86A20F9469CFC6C  # of torch's format
_DTYPES = {
    "Double": torch.float64, "Float": torch.float32, "Long": torch.int64, "Int": torch.int32,
    "Short": torch.int16, "Byte": torch.uint8,
}  # fmt: skip
_TYPES: Known = {("torch", f"{name}Storage"): _Made(dtype) for name, dtype in _DTYPES.items()}
_AS_THEY_ARE = (int, float, str, bytes, bool, type(None))
_CODES = (
    pickle.PROTO, pickle.FRAME, pickle.MARK, pickle.STOP, pickle.GLOBAL, pickle.STACK_GLOBAL,
    pickle.MEMOIZE, pickle.BINPUT, pickle.LONG_BINPUT, pickle.BINGET, pickle.LONG_BINGET,
    pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.BININT, pickle.BININT1, pickle.BININT2,
    pickle.LONG1, pickle.BINFLOAT, pickle.BINBYTES, pickle.SHORT_BINBYTES, pickle.BINSTRING,
    pickle.SHORT_BINSTRING, pickle.BINUNICODE, pickle.SHORT_BINUNICODE, pickle.EMPTY_LIST,
    pickle.APPEND, pickle.APPENDS, pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2,
    pickle.TUPLE3, pickle.EMPTY_DICT, pickle.BINPERSID,
)  # fmt: skip
"""What pickle's protocols 2 to 4 write of lists, numbers and text, and read without a call."""
_READ: dict[int, Any] = {code[0]: pickle._Unpickler.dispatch[code[0]] for code in _CODES}


class _Dispatch(dict[int, Any]):
    def __missing__(self, code: int) -> None:
        _check(False, f"the code {bytes([code])!r}")


class _Unpickler(pickle._Unpickler):
    """Reads the codes above, and five that are checked here."""

    stack: list[Any]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, file: io.BytesIO, known: Known) -> None:
        super().__init__(file, encoding="latin1")
        self._known = known

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._known:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of such a file")
        return self._known[module, name]

    def call(self) -> None:  # REDUCE: of a known function
        args = self.stack.pop()
        _check(type(self.stack[-1]) is _Maker and type(args) is tuple, "a call of no function")
        self.stack[-1] = self.stack[-1](*args)

    def make(self) -> None:  # NEWOBJ: a sparse matrix
        args, kind = self.stack.pop(), self.stack.pop()
        _check(kind is _Csr and args == (), "an object that is no matrix")
        self.append(_Csr())

    def give_state(self) -> None:  # BUILD: to a stand-in
        state = self.stack.pop()
        _check(isinstance(self.stack[-1], _Made), "a state of what has none")
        self.stack[-1].__setstate__(state)

    def put(self, items: list[Any]) -> None:
        """Keys and values in turn; a key is a number or a text, whose hash needs no stack."""
        made, keys = self.stack[-1], items[::2]
        _check(type(made) is dict and len(items) % 2 == 0, "an entry of no dictionary")
        _check(all(type(key) in _AS_THEY_ARE for key in keys), "a key that is no number or text")
        made.update(zip(keys, items[1::2], strict=True))

    dispatch = _Dispatch(
        _READ
        | {pickle.REDUCE[0]: call, pickle.NEWOBJ[0]: make, pickle.BUILD[0]: give_state}
        | {pickle.SETITEM[0]: lambda self: self.put([self.stack.pop(-2), self.stack.pop()])}
        | {pickle.SETITEMS[0]: lambda self: self.put(self.pop_mark())}
    )


class _StorageUnpickler(_Unpickler):
    def persistent_load(self, told: Any) -> _Made:
        """The type of numbers and their count."""
        _check(type(told) is tuple and len(told) == 6 and told[0] == "storage", "another reference")
        kind, count = told[1], told[4]
        _check(type(kind) is _Made and isinstance(kind.value, torch.dtype), "another storage")
        _check(type(count) is int and count >= 0 and told[5] is None, "another part of a storage")
        return _Made((kind.value, count))


def read(path: Path, known: Known) -> Any:
    """Numbers, text, arrays, matrices, tensors, and lists of these, of the `known` names alone."""
    content = path.read_bytes()
    try:
        return _plain(_Unpickler(io.BytesIO(content), known).load(), {})
    except Exception as error:  # whatever a stream of other codes makes of the reader
        what = f"{path.name}: {type(error).__name__}, {error}; expected a whole file of this kind"
        raise pickle.UnpicklingError(what) from error


def _plain(given: Any, made: dict[int, Any]) -> Any:
    """With arrays, matrices and tensors in the place of stand-ins, each made once."""
    kind = type(given)
    if kind in _AS_THEY_ARE:
        return given
    if id(given) not in made:
        made[id(given)] = value = given.value if isinstance(given, _Made) else None
        if kind is dict:
            value = {key: _plain(one, made) for key, one in given.items()}
        elif kind in (list, tuple):
            value = kind(_plain(one, made) for one in given)
        else:
            known = (np.ndarray, scipy.sparse.csr_matrix, Tensor)
            _check(isinstance(value, known), f"a {kind.__name__}")
        made[id(given)] = value
    _check(made[id(given)] is not None, "a list within itself")
    return made[id(given)]
