"""What a backend declares about itself, the registry of backends, and which one runs a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from graphtheory.ops.call import AttentionCall, Call

OPERATIONS = (
    "edge_dot", "edge_softmax", "aggregate", "relu_sum", "gated_sum", "additive_score",
    "additive_attention", "attention", "topk_attention",
)  # fmt: skip


class Backend:
    """One way to run operations, and all that the dispatcher and the torch ops know about it.

    A new backend is a subclass in one file of `ops/backends/` and one line in
    `ops/backends/__init__.py`, whose place is its place in the order of choice.

    Attributes:
        name: What `backend=` takes.
        operations: Names of the operations that it runs.
        tolerance: Largest error relative to the largest entry of a float64 result, for each dtype.
        backward_needs: What its backward pass of attention needs besides query, key and value
            where it computes the weights again: some of "out", "bias" and "table".
        reads_ids: Whether loops of its own read ids, which then have to be given for every gradient
            by source; torch's operators check what they are given.
        records: Whether its kernels off a CPU have `record` and `sums`; small calls wait for them.
        kernels: A module with the functions that the torch ops call, see `backends.csr`. Without
            `additive_attention` that takes `edge_softmax` and `aggregate`, and without
            `mapped_relu_sum` the product with a matrix is built by edge.
    """

    name: str
    operations: frozenset[str] = frozenset(OPERATIONS)
    tolerance: dict[torch.dtype, float] = {  # noqa: RUF012  (replaced by subclasses, never changed)
        torch.float64: 1e-12,
        torch.float32: 5e-6,
        torch.bfloat16: 2e-2,
        torch.float16: 3e-3,
    }
    backward_needs: tuple[str, ...] = ()
    reads_ids = True
    records = False
    kernels: Any = None

    def run(self, call: Call | AttentionCall) -> Any:
        """The result of a call, differentiable; with features of edges a pair, see `attention`."""
        raise NotImplementedError

    def runner(self, operation: str) -> Callable[[Any], Any]:
        """What `run` does for calls of one operation."""
        return self.run

    def unsupported(self, call: Call | AttentionCall) -> list[str]:
        """Reasons why a call cannot run here; empty when it can."""
        return []

    def is_slower(self, call: Call | AttentionCall) -> bool:
        """Whether a later backend was measured to be faster; then only the name asks for this."""
        return False

    def needs_transpose(self, call: Call | AttentionCall) -> bool:
        """Whether the backward pass of a call reads the transposed neighborhood."""
        return True

    def saved_shape(
        self, operation: str, num_dst: int, num_edges: int, num_heads: int, dtype: torch.dtype,
        narrow: int,
    ) -> tuple[int, ...]:  # fmt: skip
        """Shape of what the forward pass of attention saves besides its inputs and its output.

        [num_edges, H] are the weights. Three dimensions are facts of each row, from which the
        backward pass computes the weights again.

        Args:
            operation: "attention", "additive_attention" or "topk_attention", the last on equal
                complete blocks; with features of edges the weights are saved.
            num_dst: Rows of the neighborhood.
            num_edges: Its edges.
            num_heads: Heads of the call.
            dtype: Type in which sums are taken.
            narrow: Features of a head if they are of a narrower type than the sums, otherwise 0.
        """
        return num_edges, num_heads


BACKENDS: dict[str, Backend] = {}
"""Backends by name, in the order of choice."""

BY_OPERATION: dict[str, tuple[Backend, ...]] = dict.fromkeys(OPERATIONS, ())
"""Backends of each operation, in the order of choice."""


def register(backend: Backend) -> None:
    """Add a backend after those that are registered.

    Raises:
        TypeError: If it is no instance of `Backend` with a name.
        ValueError: If the name is taken or it declares an operation that `ops` does not have.
    """
    if not isinstance(backend, Backend) or not isinstance(getattr(backend, "name", None), str):
        raise TypeError(f"backend: got {backend!r}, expected an instance of Backend with a name")
    if backend.name in BACKENDS:
        raise ValueError(f"backend: the name {backend.name!r} is taken")
    if unknown := sorted(backend.operations - set(OPERATIONS)):
        raise ValueError(
            f"operations: {backend.name} declares {', '.join(unknown)}, expected some of "
            f"{', '.join(OPERATIONS)}"
        )
    BACKENDS[backend.name] = backend
    for operation in backend.operations:
        BY_OPERATION[operation] += (backend,)


def choose(call: Call | AttentionCall, backend: str | Backend | None = None) -> Backend:
    """The named backend, or the first that can run the call and is not measured to be slower.

    Raises:
        ValueError: If the name is unknown.
        NotImplementedError: If the named backend cannot run the call; the message says why.
    """
    known = BY_OPERATION[call.operation]
    if backend is None:
        for chosen in known:
            if not chosen.unsupported(call) and not chosen.is_slower(call):
                return chosen
    if isinstance(backend, Backend):
        return backend
    for chosen in known:
        if chosen.name == backend:
            reasons = chosen.unsupported(call)
            if reasons:
                raise NotImplementedError(
                    f"backend {backend!r} cannot run this call: {'; '.join(reasons)}"
                )
            return chosen
    names = ", ".join(b.name for b in known)
    raise ValueError(f"backend: got {backend!r}, expected one of {names}")


def operation_name(operation: str | Callable[..., Any]) -> str:
    """The name of an operation, given by name or as a function of `ops`."""
    name = operation if isinstance(operation, str) else getattr(operation, "__name__", "")
    if name not in BY_OPERATION:
        known = ", ".join(BY_OPERATION)
        raise ValueError(f"operation: got {operation!r}, expected a function of ops: {known}")
    return name


def backend_names(operation: str | Callable[..., Any] = "attention") -> list[str]:
    """Names of the backends of an operation, in the order of choice.

    Args:
        operation: A function of `ops`, or its name.

    Raises:
        ValueError: If there is no such operation.

    Example:
        >>> backend_names("edge_dot")
        ['numba_csr', 'triton_csr', 'torch_csr', 'reference']
    """
    return [b.name for b in BY_OPERATION[operation_name(operation)]]
