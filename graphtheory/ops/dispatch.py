"""Which backend runs a call, and why not another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor

from graphtheory.ops import fused, fused_topk, reference
from graphtheory.ops.call import AttentionCall, BucketedBias
from graphtheory.ops.crossover import dense_is_faster
from graphtheory.ops.kernels import triton_objections


@dataclass(frozen=True)
class Backend:
    """A way to run attention.

    Attributes:
        name: What `backend=` takes.
        run: The computation, differentiable.
        unsupported: Reasons why a call cannot run here; empty when it can.
        tolerance: Largest error relative to the largest entry of a float64 result, for each dtype.
        slower: Whether a backend further down is known to run a call faster; then only the name
            asks for this one.
    """

    name: str
    run: Callable[[AttentionCall], Tensor]
    unsupported: Callable[[AttentionCall], list[str]]
    tolerance: dict[torch.dtype, float]
    slower: Callable[[AttentionCall], bool] = lambda call: False


_TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 5e-6,
    torch.bfloat16: 2e-2,
    torch.float16: 3e-3,
}


# What a program of `_triton_topk` holds: features of a head, and senders of a row, of which more
# than 512 need 80 KiB of shared memory where AMD's GPUs have 64.
_TOPK_DIM, _TOPK_SENDERS = 128, 512 if torch.version.hip else 1024


def _devices(call: AttentionCall) -> set[str]:
    return {t.device.type for t in (*call.tensors, call.neighborhood.indptr)}


def _blocks_unsupported(call: AttentionCall) -> list[str]:
    reasons = []
    if call.neighborhood.sets is None:
        reasons.append("the neighborhood is not made of complete or causal sets")
    if call.dropout > 0 and (call.neighborhood.blocks is None or _numba_unsupported(call)):
        reasons.append("dropout is drawn by edge and head, which the dense kernel cannot do")
    if call.neighborhood.num_edges == 0:
        reasons.append("there are no edges")
    return reasons


def _blocks_slower(call: AttentionCall) -> bool:
    on_cpu = call.query.device.type == "cpu"
    return on_cpu and not dense_is_faster(call) and not _numba_unsupported(call)


def _numba_unsupported(call: AttentionCall) -> list[str]:
    reasons = []
    if _devices(call) != {"cpu"}:
        reasons.append(f"tensors lie on {', '.join(sorted(_devices(call)))}, expected cpu")
    if find_spec("numba") is None:
        reasons.append("numba is not installed")
    return reasons


def _triton_unsupported(call: AttentionCall) -> list[str]:
    tensors = [*call.tensors, call.neighborhood.indptr]
    if isinstance(call.bias, BucketedBias):
        tensors.append(call.bias.bucket)
    apart = [t.device for t in tensors if t.device != call.query.device]
    if apart:
        return [f"tensors lie on {call.query.device} and {apart[0]}, expected one device"]
    return triton_objections(call.query.device)


def _topk_triton_limits(call: AttentionCall) -> list[str]:
    reasons, blocks, dim = [], call.neighborhood.blocks, call.query.size(2)
    if call.query.dtype == torch.float64:
        reasons.append("its sums on a GPU are in float32, which is too little for float64")
    if dim > _TOPK_DIM:
        reasons.append(f"head_dim is {dim}, on a GPU at most {_TOPK_DIM}")
    if blocks is not None and blocks[2] > _TOPK_SENDERS:
        reasons.append(f"rows have {blocks[2]} senders, on a GPU at most {_TOPK_SENDERS}")
    return reasons


def _topk_blocks_unsupported(call: AttentionCall) -> list[str]:
    if call.query.device.type == "cpu":
        reasons = _numba_unsupported(call)
    else:
        reasons = _triton_unsupported(call) + _topk_triton_limits(call)
    if call.neighborhood.blocks is None:
        reasons.append("the neighborhood is not made of equal complete blocks")
    if call.neighborhood.num_edges == 0:
        reasons.append("there are no edges")
    return reasons


def _run_blocks(call: AttentionCall) -> Tensor:
    from graphtheory.ops.backends import blocks

    return blocks.attention(call)


def _anything(call: AttentionCall) -> list[str]:
    return []


BACKENDS = (
    Backend("blocks", _run_blocks, _blocks_unsupported, _TOLERANCE, _blocks_slower),
    Backend(
        "numba_csr", partial(fused.attention, backend="numba_csr"), _numba_unsupported, _TOLERANCE
    ),
    Backend(
        "triton_csr",
        partial(fused.attention, backend="triton_csr"),
        _triton_unsupported,
        _TOLERANCE,
    ),
    Backend("torch_csr", partial(fused.attention, backend="torch_csr"), _anything, _TOLERANCE),
    Backend("reference", reference.attention, _anything, _TOLERANCE),
)

# The same names where only the k largest logits of a row count.
TOPK_BACKENDS = (
    Backend("blocks", fused_topk.on_blocks, _topk_blocks_unsupported, _TOLERANCE),
    Backend(
        "numba_csr", partial(fused_topk.on_edges, backend="numba_csr"), _numba_unsupported,
        _TOLERANCE,
    ),
    Backend(
        "torch_csr", partial(fused_topk.on_edges, backend="torch_csr"), _anything, _TOLERANCE
    ),
    Backend("reference", reference.attention, _anything, _TOLERANCE),
)  # fmt: skip


def backend_names() -> list[str]:
    """Names of the backends of attention, in the order of choice."""
    return [b.name for b in BACKENDS]


def choose(call: AttentionCall, name: str | None = None) -> Backend:
    """The backend of that name, or the first that can run the call and is not known to be slower.

    Raises:
        ValueError: An unknown name.
        NotImplementedError: The named backend cannot run the call; the message lists its reasons.
    """
    backends = BACKENDS if call.k is None else TOPK_BACKENDS
    if name is None:
        return next(b for b in backends if not b.unsupported(call) and not b.slower(call))
    chosen = next((b for b in backends if b.name == name), None)
    if chosen is None:
        names = ", ".join(b.name for b in backends)
        raise ValueError(f"backend: got {name!r}, expected one of {names}")
    reasons = chosen.unsupported(call)
    if reasons:
        raise NotImplementedError(f"backend {name!r} cannot run this call: {'; '.join(reasons)}")
    return chosen
