"""Put kernels on the device: a launch for each bin of rows, then chunks of long rows merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphtheory.ops.backends.triton import attention, primitives, replay
from graphtheory.ops.backends.triton.bins import Bin, Plan, plan, power, tile
from graphtheory.ops.backends.triton.replay import Launcher, recorder
from graphtheory.ops.call import sum_type
from graphtheory.ops.recorded import made

# Multiply and add in one instruction: twice the speed and less rounding. Triton's default changes
# from one version to the next.
OPTIONS = {"enable_fp_fusion": True}
# Shares of the edges whose bucket sums are kept apart: enough for every multiprocessor, and a
# number of its own so that the order of the sum is the same on every device.
_SHARES, _ONE_SHARE = 2048, 512  # and edges up to which one share costs less than another launch
_MERGING = 8  # warps for the chunks of a row, of which there may be thousands
_LOGITS = 256  # of a program of rows, 8 for each thread
_TYPES = {torch.float32: tl.float32, torch.float64: tl.float64}
Outs = Sequence[Tensor | None]
Merge = Callable[[Outs, Outs, Tensor, Tensor], None]


def ceiling(count: int, size: int) -> int:
    """Groups of `size` that hold `count`."""
    return -(-count // size)


def plain(*tensors: Tensor | None) -> list[Tensor | None]:
    """Without gaps, as the kernels read them."""
    return [t if t is None or t.is_contiguous() else made(Tensor.contiguous, t) for t in tensors]


def options(
    query: Tensor, table: Tensor | None, scale: float, dropout: float, seed: Tensor | None
) -> tuple[list[Any], dict[str, Any]]:
    """The last arguments of the attention kernels, and constants of theirs."""
    drawn, device = seed, query.device
    if seed is not None and seed.device != device:
        drawn = made(lambda seed: seed.to(device), seed)
    numbers = [drawn, scale, int(dropout * 2**32), 1 / (1 - dropout)]
    return numbers, {"ACC": sum_type(query), "BUCKETS": 0 if table is None else table.size(0)}


def room(like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """An uninitialized tensor without gaps, on the device and, unless given, of the type of one."""
    if recorder() is None:
        return like.new_empty(shape, dtype=dtype)
    one = torch.empty(1, dtype=dtype or like.dtype, device=like.device)
    return made(partial(torch.empty_like, one.expand(shape)))  # in half the time of torch.empty


def room_like(*tensors: Tensor) -> list[Tensor]:
    """Uninitialized tensors of these shapes and types, without gaps."""
    return [room(t, *t.shape) for t in tensors]


_known: dict[tuple[Any, ...], Launcher] = {}
_DIRECT = "3.9."  # a Triton that is known to look for memory alone before it calls the driver
_SCRATCH = "global_scratch_size", "profile_scratch_size", "gsan_enabled"


def _launcher(
    kernel: Any, compiled: Any, args: Sequence[Any], constants: dict[str, Any]
) -> Launcher | None:
    """What runs the kernel again; the interpreter compiles nothing, AMD's asks for sizes too."""
    has = all(hasattr(compiled, name) for name in ("run", "function", "packed_metadata"))
    if not has or torch.version.hip is not None:
        return None
    stream = triton.runtime.driver.active.get_current_stream
    tail = tuple(constants[name] for name in kernel.arg_names[len(args) :])
    run, code = _given_to_the_driver(compiled)
    return Launcher(kernel, compiled, run, stream, code, tail)


def _given_to_the_driver(compiled: Any) -> tuple[Callable[..., None], tuple[Any, ...]]:
    """A function of grid, stream, some constants and the arguments, and these constants."""
    run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata
    sizes = [getattr(run, name, 1) for name in _SCRATCH]
    if not triton.__version__.startswith(_DIRECT) or any(sizes):
        return lambda *given: run(*given[:-1], *given[-1]), (function, metadata, None, None, None)
    flags = run.launch_cooperative_grid, run.launch_pdl
    about = run.arg_annotations, run.kernel_signature
    nothing = None, None, None, None, None  # metadata of the launch, hooks, memory
    return run.launch, (function, *flags, metadata, *nothing, *about)


def launch(
    kernel: Any, grid: tuple[int, ...], like: Tensor, *args: Any, warps: int = 4, **constants: Any
) -> None:
    """Run `kernel` on the device of `like` and torch's current stream there.

    Triton spends most of a launch on finding the machine code, which depends on the kernel, types
    of arguments, constants, device, and on whether pointers are multiples of 16 bytes. A kind of
    launch of such pointers is remembered, and later ones are handed to Triton's launcher at once.
    """
    if 0 in grid:
        return
    device, odd = like.get_device(), 0
    if device >= 0 and torch.cuda.current_device() != device:
        with torch.cuda.device_of(like):
            return launch(kernel, grid, like, *args, warps=warps, **constants)
    kind: list[Any] = [kernel.fn, device, warps, *constants, *constants.values()]
    given: list[Any] = []
    for a in args:
        if isinstance(a, Tensor):
            kind.append(a.dtype)
            given.append(at := a.data_ptr())
            odd |= at | (a.get_device() != device)  # which Triton refuses
        else:  # a fraction, or a size of 32 bits or 64
            kind.append(a if a is None else a < 2**31)
            given.append(a)
    key, odd = tuple(kind), odd & 15
    known = None if odd else _known.get(key)
    sizes = (*grid, 1, 1)[:3]
    if known is None or replay.watched(kernel):
        if isinstance(constants.get("ACC"), torch.dtype):
            constants["ACC"] = _TYPES[constants["ACC"]]
        compiled, known = kernel[grid](*args, num_warps=warps, **OPTIONS, **constants), None
        one = None if odd else _launcher(kernel, compiled, args, constants)
        if one is not None and not replay.watched(kernel):
            known = _known[key] = one
    else:
        known.run(*sizes, known.stream(device), *known.code, (*given, *known.constants))
    if (note := recorder()) is not None:
        note.launched(known, sizes, args)


def _rows_of(indptr: Tensor) -> tuple[Plan, Tensor]:
    """Bins of rows, and row pointers without gaps; which are the same in every call."""
    rows, pointers = plan(indptr), indptr.contiguous()
    if (note := recorder()) is not None and id(indptr) in note.fixed:
        note.keep(pointers, rows.long, rows.bounds)
        for part in rows.bins:
            note.keep(part.rows, part.starts, part.order)
    return rows, pointers


def over_rows(
    kernel: Any, indptr: Tensor, shape: Sequence[int], outs: Outs, args: Sequence[Any],
    merge: Merge | None = None, **constants: Any,
) -> None:  # fmt: skip
    """Run a kernel (rows, starts, indptr, count, *outs, *args) on rows; `merge` joins chunks."""
    heads, dim = shape
    acc = constants["ACC"]
    rows, indptr = _rows_of(indptr)
    for part in rows.bins:
        t = tile(heads, dim, acc, part.edges)
        places, order = outs, part.rows
        if part.order is not None and t.rows == 1:  # rows of one program share its steps
            order = part.order
        if part.chunk:
            places = [
                None if o is None else room(o, part.count, *o.shape[1:], dtype=acc) for o in outs
            ]
        launch(
            kernel, (ceiling(part.count, t.rows), ceiling(heads, t.heads)), indptr,
            order, part.starts, indptr, part.count, *places, *args,
            HEADS=heads, DIM=dim, CHUNK=part.chunk, R=t.rows, B=t.edges, G=t.heads, C=t.dim,
            warps=t.warps, **constants,
        )  # fmt: skip
        if part.chunk:
            (merge or _add)(places, outs, rows.long, rows.bounds)


def weighted_sums(
    indptr: Tensor, indices: Tensor, perm: Tensor | None, weights: Tensor | None, value: Tensor,
    out: Tensor, acc: torch.dtype, scale: float = 1.0, *, lengths: Tensor | None = None,
    by_node: bool = False, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Write scale * sum over the row of weights[e, h] * value[j, h] to `out`, see the kernel."""
    args = [*plain(indices, perm, weights, value), None, None, *plain(lengths, bias), scale]
    over_rows(
        primitives.weighted, indptr, value.shape[1:], [out, None], args, partial(_add, bias=bias),
        ACC=acc, BY_NODE=by_node,
    )  # fmt: skip
    return out


def over_long(
    kernel: Any, long: Tensor, bounds: Tensor, part: Tensor, args: Sequence[Any], **constants: Any
) -> None:
    """Run a kernel that merges chunks `part` [chunks, H, D] on every long row."""
    heads, dim = part.shape[1:]
    t = tile(heads, dim, part.dtype)
    step, warps = _MERGING * t.edges, max(_MERGING, t.warps)
    launch(
        kernel, (len(long), ceiling(heads, t.heads)), part, long, bounds, part, *args,
        HEADS=heads, DIM=dim, ACC=part.dtype, B=step, G=t.heads, C=t.dim, warps=warps,
        **constants,
    )  # fmt: skip


def _add(parts: Outs, outs: Outs, long: Tensor, bounds: Tensor, bias: Tensor | None = None) -> None:
    for part, out in zip(parts, outs, strict=True):
        if part is not None:
            over_long(primitives.add_chunks, long, bounds, part, [out, bias])


def merge_softmax(
    parts: Outs, outs: Outs, long: Tensor, bounds: Tensor, added: Tensor | None
) -> None:
    """Make [out, softmax statistics] of attention of long rows from those of their chunks."""
    part, stats = parts
    assert part is not None and stats is not None
    given = [stats, *outs, added]
    over_long(attention.merge, long, bounds, part, given, STATS=stats.size(1))


def over_logits(kernel: Any, indptr: Tensor, *inputs: Tensor) -> Tensor:
    """What a kernel makes of numbers [E, H] of rows, long ones in wide steps instead of chunks."""
    (out,), acc = room_like(inputs[0]), sum_type(*inputs)
    args = plain(*inputs)
    rows, indptr = _rows_of(indptr)
    heads = out.size(1)
    group = min(power(heads), 64)
    for part in rows.bins:
        edges, count, warps = part.edges, 1, 1
        if part.chunk:
            part, edges, warps = Bin(len(rows.long), 0, rows.long), max(64, 8192 // group), 16
        else:
            edges = min(edges, max(1, _LOGITS // group))
            count = max(1, _LOGITS // (edges * group))
        launch(
            kernel, (ceiling(part.count, count), ceiling(heads, group)), indptr,
            part.rows, None, indptr, part.count, *args, out,
            HEADS=heads, ACC=acc, CHUNK=0, R=count, B=edges, G=group, warps=warps,
        )  # fmt: skip
    return out


def by_bucket(bucket: Tensor | None, values: Tensor, num_buckets: int) -> Tensor:
    """Sums [num_buckets, H] of values [E, H]."""
    edges, heads = values.shape
    if bucket is None or edges == 0:
        return made(
            partial(torch.zeros, (num_buckets, heads), dtype=values.dtype, device=values.device)
        )
    rows, group = min(power(num_buckets), 32), min(power(heads), 8)
    step = 4096 // (rows * group)
    shares = min(_SHARES, ceiling(edges, step), max(1, edges // num_buckets))
    shares = 1 if edges <= _ONE_SHARE else shares
    out = room(values, *(() if shares == 1 else (shares,)), num_buckets, heads)
    launch(
        primitives.by_bucket, (shares, ceiling(num_buckets, rows), ceiling(heads, group)), values,
        bucket.contiguous(), values, out, edges,
        HEADS=heads, BUCKETS=num_buckets, ACC=values.dtype, B=step, Z=rows, G=group,
    )  # fmt: skip
    return out if shares == 1 else made(lambda parts: parts.sum(0), out)
