"""Which backend runs a call, and why the others do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphtheory.ops.backend import BY_OPERATION, Backend
from graphtheory.ops.call import AttentionCall, Call


def choose(call: Call | AttentionCall, backend: str | Backend | None = None) -> Backend:
    """The named backend, or the first that can run the call and is not measured to be slower.

    Raises:
        ValueError: If the name is unknown, or the neighborhood was changed in place.
        NotImplementedError: If the named backend cannot run the call; the message says why.
    """
    if call.neighborhood.sets is not None:  # of which some backends read no ids
        call.neighborhood.check_unchanged()
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
