"""Two ways to see a read outside an array: pages that end the process, loops that look it up."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import graphtheory

_PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)


def guarded(tensor: Tensor, rng: np.random.Generator) -> Tensor:
    """A copy whose last byte is followed, or whose first is preceded, by an inaccessible page."""
    size = tensor.numel() * tensor.element_size()
    if size == 0:
        return tensor.detach().clone()
    room = -(-size // _PAGE) * _PAGE
    pages = mmap.mmap(-1, room + _PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    behind = rng.random() < 0.7
    closed, offset = (start + room, room - size) if behind else (start, _PAGE)
    copy = torch.frombuffer(pages, dtype=tensor.dtype, count=tensor.numel(), offset=offset)
    copy.copy_(tensor.detach().reshape(-1))
    if _LIBC.mprotect(ctypes.c_void_p(closed), ctypes.c_size_t(_PAGE), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    return copy.view(tensor.shape)


def placed(given: Any, build: str, rng: np.random.Generator) -> Any:
    """Copies of tensors, and of those in lists, beside closed pages where the build has them."""
    if isinstance(given, (list, tuple)):
        return [placed(one, build, rng) for one in given]
    if not isinstance(given, Tensor):
        return given
    return guarded(given, rng) if build == "pages" else given.detach().clone()


def check_every_place() -> None:
    """Have vector code stop the process at a place outside its array, as numba does not."""
    from graphtheory.ops.backends.cpu.topk import buckets
    from graphtheory.ops.backends.cpu.vector import lanes, llvm, products, relus

    plain = llvm.pointer
    for module in (llvm, lanes, products, relus, buckets):
        masked = module is relus  # its vectors reach beyond the end, where a mask is
        module.pointer = partial(_checked_pointer, plain, masked)  # type: ignore[attr-defined]


def _checked_pointer(
    plain: Callable[..., Any],
    masked: bool,
    context: Any,
    builder: Any,
    kind: Any,
    array: Any,
    at: Any,
    to: Any,
) -> Any:
    from llvmlite import ir

    if not (isinstance(to, ir.IntType) and to.width == 8):  # a byte to fetch ahead, of any array
        number = context.get_value_type(kind.dtype)
        count = max(1, context.get_abi_sizeof(to) // context.get_abi_sizeof(number))
        items = context.make_array(kind)(context, builder, array).nitems
        last = builder.add(at, ir.Constant(at.type, 1 if masked else count))
        low = builder.icmp_signed("<", at, ir.Constant(at.type, 0))
        outside = builder.or_(low, builder.icmp_signed(">", last, items))
        with builder.if_then(outside, likely=False):
            stop = ir.FunctionType(ir.VoidType(), [])
            name = "llvm.trap"
            found = builder.module.globals.get(name) or ir.Function(builder.module, stop, name)
            builder.call(found, [])
    return plain(context, builder, kind, array, at, to)


def source_of_loops() -> str:
    """Changes with all that the checked machine code is made of: parts are compiled into loops."""
    folder = Path(graphtheory.__file__).parent / "ops/backends/cpu"
    files = [Path(__file__), *sorted(folder.rglob("*.py"))]
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
