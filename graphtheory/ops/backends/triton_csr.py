"""The GPU backend: Triton kernels over rows, in the folder `triton`."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch

from graphtheory.ops.arguments import BucketedBias
from graphtheory.ops.backends.csr import CSRBackend
from graphtheory.ops.call import AttentionCall, Call

# What a program of k-nearest attention on blocks holds: features of a head, and sources of a row.
# Shared memory for 1024 sources: 64 KiB in 16 bits, 192 in float32, and half for 512.
_TOPK_DIM, _TOPK_SOURCES, _SHARED = 128, 1024, 192 * 1024


def triton_objections(device: torch.device) -> list[str]:
    """Why Triton's kernels cannot run on a device; empty when they can."""
    if device.type != "cuda":
        return [f"tensors lie on {device.type}, expected cuda"]
    return _lacking(device)


@cache
def _lacking(device: torch.device) -> list[str]:
    """What a GPU or its software lacks; asked once, for each call of an operation would ask."""
    if find_spec("triton") is None:
        return ["triton is not installed"]
    if not torch.cuda.is_available():
        return ["torch sees no GPU"]
    found = torch.cuda.get_device_capability(device)
    if torch.version.hip is None and found < (8, 0):
        return [f"compute capability {found[0]}.{found[1]}, expected 8.0 or later"]
    return []


torch.compiler.assume_constant_result(triton_objections)  # marks it


class TritonCSR(CSRBackend):
    """Every operation on a GPU but k-nearest attention, which it runs on blocks alone."""

    name = "triton_csr"
    operations = CSRBackend.operations - {"topk_attention"}
    module = "graphtheory.ops.backends.triton.kernels"
    backward_needs = ("out", "bias", "table")
    records = True

    def objections(self, device: torch.device) -> list[str]:
        """See `triton_objections`; `look_up` asks, which imports no backend."""
        return triton_objections(device)

    def unsupported(self, call: Call | AttentionCall) -> list[str]:
        """Tensors on several devices, on no GPU, or on one that Triton does not know."""
        tensors = [t for t in (*call.tensors, call.neighborhood.indptr) if t is not None]
        if isinstance(call, AttentionCall) and isinstance(call.bias, BucketedBias):
            tensors.append(call.bias.bucket)
        if isinstance(call, AttentionCall):
            tensors += [e.row for e in call.edges if e.row is not None]
        device = tensors[0].device
        apart = [t.device for t in tensors if t.device != device]
        if apart:
            return [f"tensors lie on {device} and {apart[0]}, expected one device"]
        reasons = list(triton_objections(device))
        if isinstance(call, Call) and call.options in (("max",), ("min",)):
            reasons.append(f"it has no kernel for reduce={call.options[0]!r}")
        return reasons

    def saved_shape(
        self, operation: str, num_dst: int, num_edges: int, num_heads: int, dtype: torch.dtype,
        narrow: int,
    ) -> tuple[int, ...]:  # fmt: skip
        """Of rows two statistics, on blocks five, and unrounded outputs."""
        facts = (num_heads, 5) if operation == "topk_attention" else (2 + narrow, num_heads)
        return num_dst, *facts


def topk_limits(call: AttentionCall) -> list[str]:
    """What k-nearest attention on blocks cannot do on a GPU."""
    reasons, blocks, dim = [], call.neighborhood.blocks, call.query.size(2)
    if call.query.dtype == torch.float64:
        reasons.append("its sums on a GPU are in float32, which is too little for float64")
    if dim > _TOPK_DIM:
        reasons.append(f"head_dim is {dim}, on a GPU at most {_TOPK_DIM}")
    most, device = _TOPK_SOURCES, call.query.device
    if call.query.dtype == torch.float32 and not triton_objections(device):
        found = torch.cuda.get_device_properties(device)  # which AMD's say nothing of
        shared = getattr(found, "shared_memory_per_block_optin", 0)
        most = most if shared >= _SHARED else 512
    if blocks is not None and blocks[2] > most:
        kind = str(call.query.dtype).removeprefix("torch.")
        reasons.append(f"rows have {blocks[2]} sources, in {kind} on this GPU at most {most}")
    return reasons
