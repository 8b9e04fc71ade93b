"""A checked call of an operation, and the plan by which further calls of its kind run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphtheory.graph import Neighborhood
from graphtheory.graph.content import PLAIN, innermost_transform, is_tracing
from graphtheory.ops.arguments import BucketedBias, EdgeFeatures
from graphtheory.ops.backend import BY_OPERATION, Backend, choose
from graphtheory.ops.bounds import Own, check_rows_of
from graphtheory.ops.derivatives import needs_grad
from graphtheory.ops.dropout import draw_seed
from graphtheory.ops.recorded import Recorded, Work

MOST = 64  # kinds of calls that a neighborhood remembers
_OPTIONS = (str, float, int, bool, type(None))


class Plan(NamedTuple):
    """What calls of a kind have in common, kept on their neighborhood.

    Attributes:
        run: What runs them, from the call to its result.
        grad: Whether a backward pass may follow.
        by_source: Whether that reads the edges by source.
        recorded: The `Recorded` work of each op; None of a backend that records none.
        again: Whether it is for later calls, which alone are recorded.
    """

    run: Callable[[Any], Any]
    grad: bool
    by_source: bool
    recorded: dict[Any, Any] | None = None
    again: bool = False

    def work(self, key: Any, make: Callable[[], Work], kernels: Any) -> Recorded:
        """The recorded work with this key, made when it is done first."""
        assert self.recorded is not None
        found: Recorded | None = self.recorded.get(key)
        if found is None:
            found = self.recorded[key] = Recorded(make(), kernels.record if self.again else None)
        return found


class Call(NamedTuple):
    """A checked call of an operation other than attention.

    Attributes:
        operation: Its name.
        neighborhood: Who aggregates from whom.
        tensors: Its tensors, in the order of the operation's arguments; absent ones are None.
        options: What else its kernels take.
        plan: What is known of calls of its kind.
    """

    operation: str
    neighborhood: Neighborhood
    tensors: tuple[Tensor | None, ...]
    options: tuple[Any, ...] = ()
    plan: Plan | None = None


class AttentionCall(NamedTuple):
    """Checked arguments of attention; query [N, H, D], key and value [M, H, D].

    `k` is how many neighbors of a row and head the softmax sees at most; None is all of them.
    `edges` are features of edges, none, one or two.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    neighborhood: Neighborhood
    bias: Tensor | BucketedBias | None
    scale: float
    dropout: float
    seed: Tensor | None
    k: int | None = None
    edges: tuple[EdgeFeatures, ...] = ()
    plan: Plan | None = None

    @classmethod
    def of(
        cls, query: Tensor, key: Tensor, value: Tensor, neighborhood: Neighborhood,
        bias: Tensor | BucketedBias | None, scale: float | None, dropout: float,
        generator: torch.Generator | None, **more: Any,
    ) -> AttentionCall:  # fmt: skip
        """A call of arguments that are known to fit, with its scale and its drawn seed."""
        scale = max(query.size(2), 1) ** -0.5 if scale is None else float(scale)
        seed = draw_seed(generator, query.device) if dropout > 0 else None
        return cls(query, key, value, neighborhood, bias, scale, float(dropout), seed, **more)

    @property
    def operation(self) -> str:
        """The name of the operation that is called."""
        return "attention" if self.k is None else "topk_attention"

    @property
    def tensors(self) -> list[Tensor | None]:
        """Every tensor that may need a gradient; absent ones are None."""
        bias = self.bias.table if isinstance(self.bias, BucketedBias) else self.bias
        found = [self.query, self.key, self.value, bias]
        for edges in self.edges:
            found += edges.features, edges.query
        return found


def bias_parts(
    bias: Tensor | BucketedBias | None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The bias by edge, the table of one by buckets, and the buckets; absent ones are None."""
    if isinstance(bias, BucketedBias):
        return None, bias.table, bias.bucket
    return bias, None, None


def known(
    operation: str, neighborhood: object, *args: Any
) -> tuple[tuple[Any, ...] | None, Plan | None]:
    """The kind of a call, and the plan of earlier ones if their ids were checked and stay so.

    The kind is all that checks and the choice of a backend depend on: shapes, types, devices and
    options. It is None where something traces or transforms the call, and for tensors and options
    of other types, so that the general path decides.
    """
    if type(neighborhood) is not Neighborhood or is_tracing():
        return None, None
    kind: list[Any] = [BY_OPERATION[operation], torch.is_grad_enabled(), torch.get_num_threads()]
    rest = list(args)
    for a in rest:  # which grows
        if type(a) in PLAIN:
            kind += (a.shape, a.dtype, a.device, a.requires_grad, a.is_inference())
        elif type(a) in (BucketedBias, tuple):
            rest += a
            kind.append((type(a), len(a)))
        elif type(a) is EdgeFeatures:
            rest += a.features, a.query, a.row
            kind.append(EdgeFeatures)
        elif type(a) in _OPTIONS:
            kind.append(a)
        else:
            return None, None
    found = tuple(kind)
    plan: Plan | None = neighborhood.plans.get(found)
    if plan is None or not (neighborhood._sealed or neighborhood.check_unchanged() is not None):
        return found, None  # ids of which nothing is known
    return found, plan


def run(
    call: Call | AttentionCall, backend: str | Backend | None, kind: tuple[Any, ...] | None = None
) -> Any:
    """The result of a checked call on the named backend or the first that can.

    A call of a kind makes a plan, if its ids can be compared with those of later calls.
    """
    if call.plan is not None:
        return call.plan.run(call)
    nb, state = call.neighborhood, None
    if kind is not None or nb.sets is not None:  # of which some backends read no ids
        state = nb.check_unchanged()
    chosen = choose(call, backend)
    if kind is None or state is None:
        return chosen.run(call)
    operation, grad = call.operation, needs_grad(call.tensors)
    recorded: dict[Any, Any] | None = None
    if chosen.records and not nb.indptr.is_cpu:
        recorded = {}
    by_source = grad and chosen.needs_transpose(call)
    if by_source and nb._transpose is None:
        nb._turned()  # which checks the ids
    else:
        check_rows_of(nb, operation)
    plan = Plan(chosen.runner(operation), grad, by_source, recorded)
    result = plan.run(call._replace(plan=plan))
    remember(nb, kind, plan)
    return result


def remember(nb: Neighborhood, kind: tuple[Any, ...], plan: Plan) -> None:
    """Keep the plan of the first call of a kind for later ones, which may be recorded."""
    if len(nb.plans) >= MOST:
        nb.plans.clear()
    nb.plans[kind] = plan if plan.recorded is None else plan._replace(recorded={}, again=True)


def structure(call: Call | AttentionCall, backend: Backend) -> list[Tensor]:
    """The neighborhood of a call as tensors, the transposed ones if a backward pass may follow.

    They are empty if `backend` does not need them.
    """
    nb, plan = call.neighborhood, call.plan
    if plan is not None:
        grad, by_source = plan.grad, plan.by_source
    else:  # a tensor of an outer call of torch.func does not say that it needs a gradient
        grad = innermost_transform() is not None or needs_grad(call.tensors)
        by_source = grad and backend.needs_transpose(call)
        if by_source:
            nb.check_unchanged()
    parts = [nb.indptr, nb.indices]
    if grad and by_source:
        t = nb._turned()
        assert t.perm is not None
        parts += t.indptr, t.indices, t.perm
    elif grad:
        parts += [nb.indptr.new_empty(0)] * 3
    if not nb._sealed or (plan is None and is_tracing()):
        return parts
    own = Own(parts)
    own.num_src = nb.num_src
    return own


def sum_type(*tensors: Tensor) -> torch.dtype:
    """The type in which sums of the tensors are taken, float32 or wider."""
    dtype = torch.float32
    for t in tensors:
        if t.dtype != dtype:
            dtype = torch.promote_types(dtype, t.dtype)
    return dtype


def widened(*tensors: Tensor) -> list[Tensor]:
    """Detached and contiguous, in the type of their sums."""
    dtype, found = sum_type(*tensors), list(tensors)
    for k, t in enumerate(found):
        if t.dtype != dtype or t.requires_grad or not t.is_contiguous():
            found[k] = t.detach().to(dtype).contiguous()
    return found
