"""What was found out about a call, kept on its neighborhood: the next call of its kind runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from graphtheory.graph import Neighborhood
from graphtheory.graph.cache import is_tracing
from graphtheory.graph.content import PLAIN
from graphtheory.ops.backend import BY_OPERATION, Backend, choose
from graphtheory.ops.call import AttentionCall, BucketedBias, Call, needs_grad

_MOST = 64  # kinds of calls that a neighborhood remembers
_OPTIONS = (str, float, int, bool, type(None))


class Plan(NamedTuple):
    """What calls of a kind have in common.

    Attributes:
        run: What runs them, from the call to its result.
        grad: Whether a backward pass may follow.
        by_source: Whether that reads the edges by source.
    """

    run: Callable[[Any], Any]
    grad: bool
    by_source: bool


def kind_of(operation: str, neighborhood: object, *args: Any) -> tuple[Any, ...] | None:
    """All that checks and the choice of a backend depend on: shapes, types, devices and options.

    None where something traces or transforms the call, and for tensors and options of other types,
    so that the general path decides.
    """
    if type(neighborhood) is not Neighborhood or is_tracing():
        return None
    found: list[Any] = [BY_OPERATION[operation], torch.is_grad_enabled(), torch.get_num_threads()]
    rest = list(args)
    for a in rest:  # which grows
        if type(a) in PLAIN:
            found += (a.shape, a.dtype, a.device, a.requires_grad, a.is_inference())
        elif type(a) is BucketedBias:
            rest += a
            found.append(BucketedBias)
        elif type(a) in _OPTIONS:
            found.append(a)
        else:
            return None
    return tuple(found)


def known(neighborhood: Neighborhood, kind: tuple[Any, ...] | None) -> Plan | None:
    """What is known of calls of this kind, on the ids that were checked in the first of them."""
    plan: Plan | None = None if kind is None else neighborhood.plans.get(kind)
    if plan is None or neighborhood.check_unchanged() is None:  # ids of which nothing is known
        return None
    return plan


def run(
    call: Call | AttentionCall, backend: str | Backend | None, kind: tuple[Any, ...] | None = None
) -> Any:
    """The result of a checked call on the named backend or the first that can; kept as a plan."""
    if call.plan is not None:
        return call.plan.run(call)
    chosen, nb = choose(call, backend), call.neighborhood
    result = chosen.run(call)
    if kind is not None and nb.check_unchanged() is not None:
        if len(nb.plans) >= _MOST:
            nb.plans.clear()
        grad = needs_grad(call.tensors)
        by_source = grad and chosen.needs_transpose(call)
        nb.plans[kind] = Plan(chosen.runner(call.operation), grad, by_source)
    return result
