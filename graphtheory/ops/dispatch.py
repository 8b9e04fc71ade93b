"""Which backend runs a call, and why the others do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

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
            if not chosen.unsupported(call) and not chosen.slower(call):
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


def _name(operation: str | Callable[..., Any]) -> str:
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
    return [b.name for b in BY_OPERATION[_name(operation)]]


@dataclass(frozen=True)
class Explanation:
    """Why a call runs where it runs; `str` has one line per backend.

    Attributes:
        operation: Name of the operation.
        chosen: Name of the backend that runs the call.
        reasons: For each other backend, in the order of choice, why it does not run the call.
    """

    operation: str
    chosen: str
    reasons: dict[str, str]

    def __str__(self) -> str:
        names = backend_names(self.operation)
        width = max(map(len, names))
        lines = (f"  {n:{width}}  {self.reasons.get(n, 'runs this call')}" for n in names)
        return "\n".join([f"{self.operation} runs on {self.chosen}", *lines])


class _Explain(Backend):
    """Answers a call with an explanation."""

    name = "explain"

    def run(self, call: Call | AttentionCall) -> Any:
        chosen, reasons = choose(call), {}
        for backend in BY_OPERATION[call.operation]:
            objections = backend.unsupported(call)
            if objections:
                reasons[backend.name] = f"cannot run it: {'; '.join(objections)}"
            elif backend.slower(call):
                reasons[backend.name] = "slower here, by measurement"
            elif backend is not chosen:
                reasons[backend.name] = f"could run it, but comes after {chosen.name}"
        return Explanation(call.operation, chosen.name, reasons)


def explain(operation: str | Callable[..., Any], *args: Any, **options: Any) -> Explanation:
    """Which backend would run a call, and why each other would not; nothing is computed.

    The arguments are checked as the operation checks them. No random number is drawn.

    Args:
        operation: A function of `ops`, or its name.
        *args: Its arguments.
        **options: Its options without `backend`.

    Raises:
        ValueError: If `operation` is no such function.
        TypeError: If `backend` is among the options. Also what the operation raises.

    Example:
        >>> from graphtheory import causal, ops
        >>> x = torch.zeros(6, 1, 4)
        >>> print(ops.explain(ops.attention, x, x, x, causal([3, 3])))
        attention runs on numba_csr
          blocks      slower here, by measurement
          numba_csr   runs this call
          triton_csr  cannot run it: tensors lie on cpu, expected cuda
          torch_csr   could run it, but comes after numba_csr
          reference   could run it, but comes after numba_csr
    """
    from graphtheory import ops

    function = getattr(ops, _name(operation))
    if operation is not function and operation != function.__name__:
        raise ValueError(f"operation: got {operation!r}, expected ops.{function.__name__}")
    if "backend" in options:
        raise TypeError("backend: explain speaks of every backend, expected none of them")
    if options.get("dropout"):
        options["generator"] = torch.Generator()  # the caller's draws stay as they are
    return function(*args, backend=_Explain(), **options)
