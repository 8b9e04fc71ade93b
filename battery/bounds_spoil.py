"""Spoils one thing: an id, a row pointer, a shape, or an entry of a list of tensors."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import torch
from torch import Tensor

from battery.bounds_builds import placed
from graphtheory import Neighborhood
from graphtheory.ops.bounds import Layout


def spoil_id(ids: Tensor, limit: int, rng: np.random.Generator) -> bool:
    """Put an id out of 0..limit-1 somewhere, unseen by torch; False if there is no place."""
    if ids.numel() == 0:
        return False
    info = torch.iinfo(ids.dtype)
    wrong = [limit, limit + 1 + int(rng.integers(40)), -1, -int(rng.integers(2, 90)), 10**9, 2**62]
    wrong = [w for w in (*wrong, info.max, info.min) if info.min <= w <= info.max]
    wrong = [w for w in wrong if not 0 <= w < limit]
    if not wrong:
        return False
    ids.numpy().reshape(-1)[rng.integers(ids.numel())] = wrong[rng.integers(len(wrong))]
    return True


def spoil_pointers(pointers: Tensor, rng: np.random.Generator) -> bool:
    """Make row pointers fall, or leave 0..E, unseen by torch; False if there are none."""
    if pointers.numel() == 0:
        return False
    array, kind = pointers.numpy(), int(rng.integers(4))
    last, place = int(array[-1]), int(rng.integers(len(array)))
    if kind == 0 and 0 < place < len(array) - 1:
        array[place] = array[place - 1] - 1 if array[place - 1] else array[place + 1] + 1
    elif kind == 1:
        array[place] = -1 - int(rng.integers(50))
    elif kind == 2:
        array[place] = (10**9, 2**62)[int(rng.integers(2))]
    else:
        array[place] = last + 1 + int(rng.integers(60))
    return True


def spoil_shape(tensor: Tensor, way: str) -> Tensor | None:
    """A tensor of another shape or type in its place; None if it would be the same."""
    axis = {"rows": 0, "heads": 1, "dim": 2}.get(way)
    if way == "type":
        return tensor.double() if tensor.dtype == torch.float32 else tensor.float()
    if way == "axes":
        return tensor.unsqueeze(0)
    if way == "nothing":
        return tensor[:0] if tensor.dim() and tensor.numel() else None
    if axis is None or tensor.dim() <= axis or tensor.size(axis) == 0:
        return None
    return tensor.narrow(axis, 0, tensor.size(axis) - 1).contiguous()


WAYS = ("rows", "heads", "dim", "type", "axes", "nothing")


_layouts: dict[str, Layout] = {}


def words_of(name: str) -> tuple[str, ...]:
    """The declaration of an operator."""
    if name not in _layouts:
        gc.unfreeze()  # where tests hide objects from the collector
        _layouts.update({one.name: one for one in gc.get_objects() if type(one) is Layout})
    return _layouts[name].words


def spoil_argument(
    op: Any, args: list[Any], words: tuple[str, ...], nb: Neighborhood, rng: Any, build: str
) -> tuple[bool | None, str | None]:
    """Spoil one of the arguments in its list: (whether that must be refused, what it was)."""
    at = int(rng.integers(len(args)))
    given, word, name = args[at], words[at], op._schema.arguments[at].name
    if word == "parts":
        before = "backward" in op.name() or "by_source" in op.name()
        return _spoil_parts(args, at, words, nb, rng, build, before)
    if word == "blocks":
        ways = [[-n for n in given], given[:2], [given[0] + 1, *given[1:]], [10**6] * 3, [0, 0, 0]]
        args[at] = ways[int(rng.integers(len(ways)))]
        return True, f"blocks {args[at]} for {given}"
    if isinstance(given, (bool, str)) or given is None:
        return None, None
    if not isinstance(given, Tensor):
        args[at] = type(given)([-1, 0, 10**6][int(rng.integers(3))])
        return None, f"{name} {args[at]} for {given}"
    limits = {"order": nb.num_edges}
    limits |= {"bucket": _rows_of("table", op, args), "row": _rows_of("num_rows", op, args)}
    is_id = name in limits and name in words
    if is_id and not given.is_floating_point() and rng.random() < 0.7:
        return True, name if spoil_id(given, limits[name], rng) else None
    way = WAYS[int(rng.integers(len(WAYS)))]
    other = spoil_shape(given, way)
    if other is None or (other.shape == given.shape and way != "type"):
        return None, None
    args[at] = placed(other, build, rng)
    return _must_fit(word, way, words, args, given), f"{way} of {name} {list(given.shape)}"


def _rows_of(name: str, op: Any, args: list[Any]) -> int:
    """How many rows buckets or row numbers may name."""
    given = dict(zip((a.name for a in op._schema.arguments), args, strict=True))
    if name == "table" and "num_buckets" in given:
        return int(given["num_buckets"])
    found = given.get(name, 0)
    return found.size(0) if isinstance(found, Tensor) else int(found or 0)


def _must_fit(
    word: str, way: str, words: tuple[str, ...], args: list[Any], given: Tensor
) -> bool | None:
    """Whether a shape must be refused: its letters stand elsewhere, too, or a list decides them."""
    if way == "axes":
        return True if word.isupper() or word in ("order", "bucket", "row", "saved") else None
    axis = {"rows": 0, "heads": 1, "dim": 2, "nothing": 0}.get(way)
    if axis is None or not word.isupper() or len(word) <= axis:
        return None
    letter, others = word[axis], 0
    for other, arg in zip(words, args, strict=True):
        others += other.isupper() and letter in other and isinstance(arg, Tensor)
    decided = letter in "N" and any(w in words for w in ("parts", "blocks"))
    empty = all(not a.numel() for w, a in zip(words, args, strict=True) if w == "order")
    decided |= letter == "E" or (letter == "F" and empty)
    return True if decided or others > 1 else None


def _spoil_parts(
    args: list[Any],
    at: int,
    words: tuple[str, ...],
    nb: Neighborhood,
    rng: Any,
    build: str,
    before: bool,
) -> tuple[bool | None, str | None]:
    """One entry of the list of a neighborhood."""
    args[at] = parts = list(args[at])
    names = ("indptr", "indices", "t_indptr", "targets", "perm")
    limits = {"indices": nb.num_src, "targets": nb.num_dst}
    entry, way = int(rng.integers(len(parts))), int(rng.integers(7))
    name, part = names[entry], parts[entry]
    if part.numel() == 0 or nb.num_edges == 0:
        return None, None
    read = True if before or entry < 2 else None  # forward passes hand the rest on
    if way == 0:
        del parts[entry:]
        return read, f"without {name}"
    if way == 1:
        parts[entry] = part[:0]
        return read, f"{name} of size 0"
    if way == 2:  # pointers may have become those of fewer rows
        parts[entry] = placed(part[:-1], build, rng)
        return (None if "indptr" in name else read), f"{name} one shorter"
    if way == 3:
        parts[entry] = placed(torch.cat([part, part[-1:].expand(5)]), build, rng)
        return (None if "indptr" in name else read), f"{name} five longer"
    if way == 4:
        shuffled = torch.from_numpy(rng.permutation(part.numpy()))
        parts[entry] = placed(shuffled.sort().values if "indptr" in name else shuffled, build, rng)
        return None, f"{name} in another order"
    if "indptr" in name:
        return read, name if spoil_pointers(part, rng) else None
    if name == "indices" and not any("M" in word for word in words if word.isupper()):
        read = None if len(parts) == 2 else read  # a softmax looks nothing up by it
    return read, name if spoil_id(part, limits.get(name, nb.num_edges), rng) else None
