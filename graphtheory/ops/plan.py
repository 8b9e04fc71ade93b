"""What was found out about a call, kept on its neighborhood: the next call of its kind runs."""

from __future__ import annotations

from typing import Any

import torch

from graphtheory.graph import Neighborhood
from graphtheory.graph.content import PLAIN
from graphtheory.ops.backend import BY_OPERATION, Backend
from graphtheory.ops.call import BucketedBias
from graphtheory.ops.once import is_tracing

_MOST = 64  # kinds of calls that a neighborhood remembers
_OPTIONS = (str, float, int, bool, type(None))


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


def known(neighborhood: Neighborhood, kind: tuple[Any, ...] | None) -> Backend | None:
    """The backend that ran a call of this kind, whose arguments were checked then."""
    backend: Backend | None = None if kind is None else neighborhood.plans.get(kind)
    if backend is not None and neighborhood.sets is not None:  # of which some read no ids
        neighborhood.check_unchanged()
    return backend


def remember(neighborhood: Neighborhood, kind: tuple[Any, ...] | None, backend: Backend) -> None:
    """Keep what ran a call whose arguments were found to fit."""
    if kind is not None:
        if len(neighborhood.plans) >= _MOST:
            neighborhood.plans.clear()
        neighborhood.plans[kind] = backend
