"""Which backend would run a call, and why the others would not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from graphtheory.ops.additive import additive_attention, additive_score
from graphtheory.ops.attention import attention, topk_attention
from graphtheory.ops.backend import BY_OPERATION, Backend, backend_names, choose, operation_name
from graphtheory.ops.call import AttentionCall, Call
from graphtheory.ops.edge import aggregate, edge_dot, edge_softmax, gated_sum, relu_sum

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        additive_attention, additive_score, aggregate, attention, edge_dot, edge_softmax, gated_sum,
        relu_sum, topk_attention,
    )
}  # fmt: skip


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
            elif backend.is_slower(call):
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
    name = operation_name(operation)
    function = _FUNCTIONS[name]
    if operation not in (function, name):
        raise ValueError(f"operation: got {operation!r}, expected ops.{name}")
    if "backend" in options:
        raise TypeError("backend: explain speaks of every backend, expected none of them")
    if options.get("dropout"):
        options["generator"] = torch.Generator()  # the caller's draws stay as they are
    return function(*args, backend=_Explain(), **options)
