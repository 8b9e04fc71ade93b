"""Pickled raw files, read without giving them the power to run anything."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._utils import _rebuild_tensor_v2

Known = Mapping[tuple[str, str], Any]


def _dtype(name: str, align: int = 0, copy: int = 0) -> np.dtype:
    return np.dtype(name, bool(align), bool(copy))  # numpy warns about the 0 and 1 of old pickles


def _storage(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=True)


# The module that holds it has moved between releases of numpy; the function can be asked for.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
ARRAYS: Known = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
}
"""What arrays of numbers are made of."""
TENSORS: Known = {
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor_v2,
    ("torch.storage", "_load_from_bytes"): _storage,
    ("collections", "OrderedDict"): OrderedDict,
}
"""What tensors are made of, with the bytes inside them read by torch's safe loader."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BufferedReader, known: Known) -> None:
        super().__init__(file, encoding="latin1")
        self._known = known

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._known:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of such a file")
        return self._known[module, name]


def read(path: Path, known: Known) -> Any:
    """What a pickled file holds.

    Args:
        path: The file.
        known: The classes and functions that it may name.

    Raises:
        pickle.UnpicklingError: The file names anything else.
    """
    with path.open("rb") as file:
        return _Unpickler(file, known).load()
