"""Whole layers of a GPU as work: linear maps, sums over rows, and what is added to them.

Each has one node of autograd and few launches. The gradient of a gradient follows its definition.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from graphtheory.graph import Neighborhood
from graphtheory.ops import fused, kernels
from graphtheory.ops.arguments import BucketedBias
from graphtheory.ops.backend import BACKENDS, Backend
from graphtheory.ops.backends.triton_csr import triton_objections
from graphtheory.ops.bounds import Own
from graphtheory.ops.call import AttentionCall, Call, Plan, known, remember
from graphtheory.ops.derivatives import first_gradients, needs_grad
from graphtheory.ops.dropout import draw_seed
from graphtheory.ops.edge import relu_sums
from graphtheory.ops.kernels import neighborhood_of
from graphtheory.ops.recorded import Needs, Recorded, Tensors, Work, made

_NAME = "triton_csr"


class Layer(Work):
    """A layer with rows of nodes; a subclass has `forward`, `backward` and `definition`."""

    name, outputs = "graphtheory::layer", 1

    def __init__(self, parts: Sequence[Tensor], *options: Any) -> None:
        self.parts, self.options = parts, options
        self.backend: Backend = BACKENDS[_NAME]
        self.kernels = self.backend.kernels

    @abstractmethod
    def definition(self, *tensors: Any) -> Tensor:
        """The output by operations that autograd differentiates."""

    def differentiable(self, grads: Any, kept: Tensors, read: Tensors, needs: Needs) -> Any:
        with torch.autocast(grads[0].device.type, enabled=False):
            return first_gradients(self.definition, read, grads)


class Prepared(NamedTuple):
    """A layer as one function of tensors, on rows of nodes.

    Attributes:
        one: What computes it.
        neighborhood: The rows.
        grad: Whether a backward pass may follow.
        dropout: For which torch's global generator of the device draws.
        again: Whether later calls of its kind do the same.
    """

    one: Recorded
    neighborhood: Neighborhood
    grad: bool
    dropout: float
    again: bool

    def __call__(self, tensors: Tensors) -> Tensor | None:
        """The output; None of tensors of other kinds than in the first call."""
        seed = draw_seed(None, self.neighborhood.device) if self.dropout > 0 else None
        found = self.one((*tensors, seed), self.grad)
        return None if found is None else found[0]


def prepare(
    kind: type[Layer], nb: Neighborhood, tensors: Tensors, *options: Any, dropout: float = 0.0
) -> Prepared | None:
    """A layer on rows of nodes, for tensors like these; None where something has to see its parts.

    The tensors are checked by the caller, and are as many as the layer names but for the seed.
    """
    if nb.sets is not None or triton_objections(nb.device):
        return None
    key, plan = known("attention", nb, kind.__name__, *tensors, *options, dropout)
    if key is None:
        return None
    if plan is None:
        if nb.check_unchanged() is None:
            return None
        grad = needs_grad(tensors)
        plan = Plan(lambda call: None, grad, grad, {})
        remember(nb, key, plan)
    t = nb._turned() if plan.grad else None  # whose ids are as they were

    def make() -> Layer:
        by_source = [] if t is None else [t.indptr, t.indices, t.perm]
        parts: Any = [nb.indptr, nb.indices, *by_source]
        if nb._sealed:
            parts = Own(parts)
            parts.num_src = nb.num_src
        return kind(parts, *options, dropout)

    one = plan.work(kind, make, BACKENDS[_NAME].kernels)
    return Prepared(one, nb, plan.grad, dropout, plan.again)


def _of_matrix(grad: Tensor, x: Tensor) -> Tensor:
    return torch.mm(grad.t(), x)


def _over_nodes(grad: Tensor) -> Tensor:
    return grad.sum(-2)


def _one_head(nodes: Tensor) -> Tensor:
    return nodes.unsqueeze(1)


def _by_head(heads: int, nodes: Tensor) -> Tensor:
    return nodes.reshape(nodes.size(0), heads, -1)  # `len` of a tensor is Python


def _flat(nodes: Tensor) -> Tensor:
    return nodes.flatten(1)


class MappedSums(Layer):
    """Sums or means of weighted W x, and a bias; of x, W, bias and weights [E], or None but x.

    Without W nothing of x is kept, which may change in place afterwards.
    """

    def _more(self, **more: Any) -> dict[str, Any]:
        return {"lengths": self.parts[0], **more} if self.options[0] else {}

    def forward(self, tensors: Tensors) -> Tensors:
        x, weight, bias, per_edge, _ = tensors
        y = made(_one_head, x if weight is None else made(linear, x, weight))
        more = self._more()
        return [made(_flat, self.kernels.sums(*self.parts[:2], per_edge, y, bias=bias, **more))]

    def reads(self, tensors: Tensors, needs: Needs) -> Tensors:
        return tensors if tensors[1] is not None else (None, *tensors[1:])

    def backward(self, grads: Sequence[Tensor], kept: Tensors, read: Tensors, needs: Needs) -> Any:
        (grad,), (x, weight, _, per_edge, _) = grads, read
        up, (_, _, t_indptr, targets, perm), of_y = made(_one_head, grad), self.parts, None
        if needs[0] or needs[1]:
            more = self._more(by_node=True)
            of_y = made(_flat, self.kernels.sums(t_indptr, targets, per_edge, up, perm, **more))
        of_x = made(torch.mm, of_y, weight) if needs[0] and weight is not None else of_y
        of_weight = made(_of_matrix, of_y, x) if needs[1] else None
        of_bias = made(_over_nodes, grad) if needs[2] else None
        return of_x if needs[0] else None, of_weight, of_bias, None, None

    def differentiable(self, grads: Any, kept: Tensors, read: Tensors, needs: Needs) -> Any:
        if read[1] is None:  # the gradient is that of any x
            shape = len(self.parts[2]) - 1, grads[0].size(1)
            read = [grads[0].new_zeros(shape, requires_grad=True), *read[1:]]
        return super().differentiable(grads, kept, read, needs)

    def definition(self, x: Any, weight: Any, bias: Any, per_edge: Any, seed: None) -> Tensor:
        nb, value = neighborhood_of(self.parts, x.size(0)), x
        if weight is not None:
            value = linear(x, weight)
        per_edge = value.new_ones(nb.num_edges) if per_edge is None else per_edge
        reduce = "mean" if self.options[0] else "sum"
        call = Call("aggregate", nb, (per_edge[:, None], value[:, None]), (reduce,))
        out = kernels.aggregate(call, self.backend).squeeze(1)
        return out if bias is None else out + bias


class MappedReLU(Layer):
    """GINE: sums of ReLU(x + W e + b); of x, e, W, b and the order of the features e."""

    def forward(self, tensors: Tensors) -> Tensors:
        x, edge, weight, bias, order, _ = tensors
        of_edge = made(linear, edge, weight, *(() if bias is None else (bias,)))
        given = order, made(_one_head, x), made(_one_head, of_edge)
        return made(_flat, self.kernels.relu_sum(*self.parts[:2], *given)), of_edge

    def backward(self, grads: Sequence[Tensor], kept: Tensors, read: Tensors, needs: Needs) -> Any:
        (x, edge, weight, _, order, _), (indptr, indices, t_indptr, _, perm) = read, self.parts
        up, *values = (made(_one_head, t) for t in (grads[0], x, kept[0]))
        rows = None
        if needs[0]:  # of the features, by source
            rows = made(lambda order: order.index_select(0, perm), order)
        found = self.kernels.relu_sum_backward(
            indptr, indices, order, t_indptr, rows, up, *values
        )  # fmt: skip
        of_x, of_edge = (t if t is None else made(_flat, t) for t in found)
        return (
            of_x,
            made(torch.mm, of_edge, weight) if needs[1] else None,
            made(_of_matrix, of_edge, edge) if needs[2] else None,
            made(_over_nodes, of_edge) if needs[3] else None,
            None, None,
        )  # fmt: skip

    def definition(self, x: Any, edge: Any, weight: Any, bias: Any, order: Any, _: None) -> Tensor:
        values = x[:, None], linear(edge, weight, bias)[:, None]
        return relu_sums(*values, order, list(self.parts), _NAME).squeeze(1)


class MappedAttention(Layer):
    """Attention, heads side by side; of x, table and buckets of a bias, matrices, their biases.

    The matrices are of queries, keys and values, and maybe a fourth, W x of which is added.
    """

    first = 3  #: Place of the first matrix.

    def _maps(self, tensors: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        middle = (self.first + len(tensors) - 1) // 2
        return tensors[self.first : middle], tensors[middle:-1]

    def forward(self, tensors: Tensors) -> Tensors:
        heads = self.options[0]
        matrices, biases = self._maps(tensors)
        maps = [t for t in (*matrices, *biases) if t is not None]
        y = made(partial(_mapped, len(matrices)), tensors[0], *maps)
        parts = made(partial(_parts, heads), y)
        out, *kept = self._attended(parts[:3], tensors)
        flat = made(_flat, out)
        kept = [flat if t is out else t for t in kept]
        return flat if len(parts) < 4 else made(_with_root, flat, y), y, *kept

    def _attended(self, parts: Sequence[Tensor], tensors: Sequence[Any]) -> tuple[Tensor, ...]:
        """The output [N, H, D] without the fourth map, and what else the gradient reads."""
        (_, table, bucket, *_, seed), (_, scale, dropout) = tensors, self.options
        out, stats = self.kernels.attention(
            *self.parts[:2], *parts, None, bucket, table, scale, dropout, seed
        )
        return out, stats, out

    def backward(self, grads: Sequence[Tensor], kept: Tensors, read: Tensors, needs: Needs) -> Any:
        y, heads, (matrices, biases) = kept[0], self.options[0], self._maps(read)
        of_y, count = made(torch.empty_like, y), len(matrices)
        parts, into = (made(partial(_parts, heads), maps) for maps in (y, of_y))
        up = made(partial(_by_head, heads), grads[0])
        before = self._gradients(up, parts[:3], into[:3], kept[1:], read, needs)
        if count > 3:
            made(_copy_root, of_y, grads[0])
        found: list[Any] = [made(_of_inputs, of_y, *matrices) if needs[0] else None, *before]
        for some, of, args in (
            (matrices, _of_matrices, (of_y, read[0])), (biases, _over_nodes, (of_y,)),
        ):  # fmt: skip
            wanted = some[0] is not None and any(needs[len(found) : len(found) + count])
            found += made(torch.unbind, made(of, *args)) if wanted else [None] * count
        return *found, None

    def _gradients(
        self, up: Tensor, parts: Sequence[Tensor], into: Sequence[Tensor], kept: Sequence[Any],
        read: Sequence[Any], needs: Needs,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Write those of queries, keys and values; those of what stands before the matrices."""
        (stats, out), (_, table, bucket, *_, seed), (heads, *options) = kept, read, self.options
        out = made(partial(_by_head, heads), out)
        *_, of_table = self.kernels.attention_backward(
            *self.parts, up, *parts, stats, bucket, 0 if table is None else table.size(0), *options,
            seed, out=out, bias=None, table=table, into=into,
        )  # fmt: skip
        return of_table if needs[1] else None, None

    def definition(self, *tensors: Any) -> Tensor:
        (x, table, bucket, *_, seed), (heads, scale, dropout) = tensors, self.options
        maps = zip(*self._maps(tensors), strict=True)
        query, key, value, *added = (_by_head(heads, linear(x, *one)) for one in maps)
        bias = None if table is None else BucketedBias(bucket, table)
        nb = neighborhood_of(self.parts, len(x))
        call = AttentionCall(query, key, value, nb, bias, scale, dropout, seed)
        return sum(added, fused.attention(call, self.backend)).flatten(1)


def _mapped(count: int, x: Tensor, *maps: Tensor) -> Tensor:
    """W x + b of some maps [count, N, features], given the matrices and then the biases, if any."""
    matrices = torch.cat(maps[:count]).view(count, -1, x.size(1)).transpose(1, 2)
    every = x.expand(count, *x.shape)
    if len(maps) == count:
        return torch.bmm(every, matrices)
    return torch.baddbmm(torch.cat(maps[count:]).view(count, 1, -1), every, matrices)


def _parts(heads: int, maps: Tensor) -> tuple[Tensor, ...]:
    return maps.view(*maps.shape[:2], heads, -1).unbind()


def _with_root(out: Tensor, maps: Tensor) -> Tensor:
    return out + maps[3]


def _copy_root(maps: Tensor, grad: Tensor) -> Tensor:
    return maps[3].copy_(grad)


def _of_matrices(grad: Tensor, x: Tensor) -> Tensor:
    return torch.bmm(grad.transpose(1, 2), x.expand(grad.size(0), *x.shape))


def _of_inputs(grad: Tensor, *matrices: Tensor) -> Tensor:
    return grad.transpose(0, 1).flatten(1) @ torch.cat(matrices)
