"""The CPU backend: compiled loops over rows, in the folder `cpu`."""

from __future__ import annotations

import torch

from graphtheory.graph.content import innermost_transform
from graphtheory.ops.backends.cpu.memory import keeps_weights
from graphtheory.ops.backends.csr import CSRBackend
from graphtheory.ops.call import AttentionCall, Call, sum_type


class NumbaCSR(CSRBackend):
    """Every operation on a CPU; no whole tensor has both an edge and a feature axis."""

    name = "numba_csr"
    module = "graphtheory.ops.backends.cpu.kernels"
    backward_needs = ("bias", "table")

    def unsupported(self, call: Call | AttentionCall) -> list[str]:
        """Tensors that are not on the CPU."""
        tensors = (*call.tensors, call.neighborhood.indptr)
        for t in tensors:
            if t is not None and not t.is_cpu:
                devices = sorted({t.device.type for t in tensors if t is not None})
                return [f"tensors lie on {', '.join(devices)}, expected cpu"]
        return []

    def needs_transpose(self, call: Call | AttentionCall) -> bool:
        """Not where attention has only gradients of the query and of a bias with kept weights."""
        if not isinstance(call, AttentionCall) or call.key.requires_grad:
            return True
        if innermost_transform() is not None:  # an outer call may ask for what this one does not
            return True
        if call.value.requires_grad:
            return True
        _, _, _, bias, *_ = call.tensors
        if call.edges or bias is None or not bias.requires_grad:
            return False
        edges, heads = call.neighborhood.num_edges, call.query.size(1)
        return not _keeps(edges, heads, sum_type(call.query).itemsize)

    def saved_shape(
        self, operation: str, num_dst: int, num_edges: int, num_heads: int, dtype: torch.dtype,
        narrow: int,
    ) -> tuple[int, ...]:  # fmt: skip
        """The weights, or of many weights two statistics of each row; on blocks four."""
        if operation == "topk_attention":
            return num_dst, num_heads, 4
        kept = operation != "attention" or _keeps(num_edges, num_heads, dtype.itemsize)
        return (num_edges, num_heads) if kept else (num_dst, 2, num_heads)


def _keeps(edges: int, heads: int, itemsize: int) -> bool:
    """`keeps_weights`; False of an open number of edges, which a comparison would bound."""
    left_open = isinstance(edges, torch.SymInt) and torch.compiler.is_exporting()
    return not left_open and keeps_weights(edges, heads, itemsize)
