"""What every way to run attention fulfils: the definition's outputs and gradients on any graph.

`assert_conforms` compares with the plain-torch definition in float64. An error may be twice the one
that plain torch makes in the same precision, and beyond that a backend's tolerance relative to the
largest true entry (in half precision: one rounding).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphtheory import Neighborhood, bipartite, causal, cliques, ops, star
from graphtheory.ops import reference
from graphtheory.ops.dropout import draw_seed, dropout_factor
from graphtheory.patterns import AddSelf, Compose, KHop, Sample

SIZES = {1: (1, 1), 7: (3, 5), 63: (4, 32), 257: (2, 7)}  # nodes -> heads, head_dim
TYPED_SIZES = [  # each half precision at two of the sizes, which tell as much as all
    (nodes, dtype) for nodes in SIZES
    for dtype in (torch.float64, torch.float32, (torch.bfloat16, torch.float16)[nodes in (7, 257)])
]  # fmt: skip
NARROW = "ids of 32 bits"  # the name of a graph
BIASES = ("none", "edges", "masked", "large", "buckets")
BUCKETS = 5
HALF = (torch.float16, torch.bfloat16)
# Where the true value vanishes, an error is measured against this instead.
SMALL = 0.02

Attention = Callable[..., Tensor]
Wanted = tuple[dict[str, Tensor], dict[str, Tensor]]


def runs_here(operation: Callable[..., Tensor], *inputs: object, **options: object) -> list[str]:
    """Names of the registered backends that can run a call, in the order of choice."""
    reasons = ops.explain(operation, *inputs, **options).reasons
    names = ops.backend_names(operation)
    return [name for name in names if not reasons.get(name, "").startswith("cannot run it")]


def _random(num_src: int, num_dst: int, edges: int) -> Neighborhood:
    generator = torch.Generator().manual_seed(num_src + 1000 * num_dst)
    src = torch.randint(num_src, (edges,), generator=generator)
    dst = torch.randint(num_dst, (edges,), generator=generator)
    return Neighborhood.from_edge_index(torch.stack([src, dst]), num_src=num_src, num_dst=num_dst)


def _hub(n: int) -> Neighborhood:
    everyone = torch.arange(n)
    return Neighborhood.from_edge_index(torch.stack([everyone, torch.zeros_like(everyone)]), n)


# Nodes -> a neighborhood. Duplicates, loops, isolated nodes and empty rows come with "random".
GRAPHS: dict[str, Callable[[int], Neighborhood]] = {
    "random": lambda n: _random(n, n, 3 * n),
    NARROW: lambda n: _random(n, n, 3 * n).to_int32(),
    "no edges": lambda n: _random(n, n, 0),
    "more sources": lambda n: _random(2 * n + 1, n, 3 * n),
    "more targets": lambda n: _random(n, 2 * n + 1, 3 * n),
    "hub": _hub,
    "clique": lambda n: cliques([n]),
    "blocks": lambda n: bipartite([3] * n, [2] * n),
    "unequal cliques": lambda n: cliques([n // 2, 0, n - n // 2, 1]),
    "star": lambda n: star([n, 0, 2]),
    "ragged": lambda n: bipartite([3, 0, n, 17, 2], [n, 4, 5, 2, 0]),
    "ragged star": lambda n: star([n, 2, n + 17, 3]),
    "causal": lambda n: causal([(n + 1) // 2] * 2),
    "ragged causal": lambda n: causal([n // 2 + 1, 0, n, 1]),
    "transposed": lambda n: _random(n, n, 3 * n).transpose(),
    "2 hops and self": lambda n: Compose(KHop(2), AddSelf())(_random(n, n, 2 * n)),
    "3 of 2 hops": lambda n: Compose(KHop(2), Sample(3))(
        _random(n, n, 2 * n), generator=torch.Generator().manual_seed(0)
    ),
}


OF_SETS = (  # those that the backend `blocks` takes
    "clique", "blocks", "unequal cliques", "star", "ragged", "ragged star", "causal",
    "ragged causal",
)  # fmt: skip
FEW = Neighborhood(torch.tensor([0, 1, 3, 3]), torch.tensor([1, 0, 2]))


def is_slow(graph: str, dtype: torch.dtype, backend: str) -> bool:
    """Whether all loops are compiled once more for it: narrow ids with sums in float64.

    A loop finds rows by ids, in the same lines whatever type the sums have. Each type of ids is
    tried with sums in float32, each type of sums with ids of 64 bits; this by `make test-slow`.
    """
    return (graph, dtype, backend) == (NARROW, torch.float64, "numba_csr")


def has_sets(nb: Neighborhood) -> bool:
    """Whether the backend `blocks` takes it."""
    return nb.num_edges > 0 and nb.sets is not None


@dataclass(frozen=True)
class Inputs:
    """Tensors of one attention call, and the gradient that comes from above."""

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | ops.BucketedBias | None
    grad: Tensor

    def to(self, dtype: torch.dtype) -> Inputs:
        """Leaves of another type with the same values."""

        def cast(t: Tensor) -> Tensor:
            return t.detach().to(dtype).requires_grad_()

        bias = self.bias
        if isinstance(bias, ops.BucketedBias):
            bias = ops.BucketedBias(bias.bucket, cast(bias.table))
        elif bias is not None:
            bias = cast(bias)
        nodes = [cast(t) for t in (self.query, self.key, self.value)]
        return Inputs(*nodes, bias, self.grad.detach().to(dtype))

    def leaves(self) -> dict[str, Tensor]:
        out = {"query": self.query, "key": self.key, "value": self.value}
        if isinstance(self.bias, ops.BucketedBias):
            return out | {"bias.table": self.bias.table}
        return out if self.bias is None else out | {"bias": self.bias}


def draw_inputs(
    nb: Neighborhood, heads: int, dim: int, bias: str = "none", dtype: torch.dtype = torch.float32
) -> Inputs:
    """Normal numbers in `dtype`.

    Of the biases "masked" has -inf on a third of the edges and on one whole row, "large" would
    overflow an exponential that nothing is subtracted from.
    """
    generator = torch.Generator().manual_seed(nb.num_edges + 7 * heads)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    query, grad = (normal(nb.num_dst, heads, dim) for _ in range(2))
    key, value = (normal(nb.num_src, heads, dim) for _ in range(2))
    given: Tensor | ops.BucketedBias | None = None
    if bias == "buckets":
        bucket = torch.randint(BUCKETS, (nb.num_edges,), generator=generator).to(torch.uint8)
        given = ops.BucketedBias(bucket, normal(BUCKETS, heads))
    elif bias != "none":
        given = normal(nb.num_edges, heads)
    if bias == "masked":
        out = torch.rand(nb.num_edges, heads, generator=generator) < 1 / 3
        out |= (nb.targets() == nb.num_dst // 2)[:, None]  # one row loses everyone
        given = given.masked_fill(out, -torch.inf)
    if bias == "large":
        given += 300
    return Inputs(query, key, value, given, grad).to(dtype)


def outputs_and_gradients(
    attention: Attention, nb: Neighborhood, inputs: Inputs, dropout: float = 0.0
) -> dict[str, Tensor]:
    """The result and the gradient of every leaf, by name."""
    generator = torch.Generator().manual_seed(3)
    out = attention(
        inputs.query, inputs.key, inputs.value, nb,
        bias=inputs.bias, dropout=dropout, generator=generator,
    )  # fmt: skip
    leaves = inputs.leaves()
    grads = torch.autograd.grad(out, list(leaves.values()), inputs.grad, materialize_grads=True)
    return {"output": out.detach()} | dict(zip(leaves, grads, strict=True))


def definition(
    query: Tensor, key: Tensor, value: Tensor, nb: Neighborhood, **options: object
) -> Tensor:
    """The definition; in float64 it is what is true."""
    return ops.attention(query, key, value, nb, backend="reference", **options)  # type: ignore[arg-type]


def same_precision(
    query: Tensor, key: Tensor, value: Tensor, nb: Neighborhood, *,
    bias: Tensor | ops.BucketedBias | None, dropout: float, generator: torch.Generator,
    edges: tuple[ops.EdgeFeatures, ...] = (),
) -> Any:  # fmt: skip
    """Plain torch with no wider type anywhere: the error that one makes without the library."""
    logits = reference.edge_dot(query, key, nb)
    for e in edges:
        if e.query is not None:
            logits = logits + (e.query[nb.targets()] * e.per_edge()).sum(-1)
    logits = query.size(2) ** -0.5 * logits
    if bias is not None:
        logits = logits + reference.edge_bias(bias)
    weights = reference.edge_softmax(logits, nb)
    if dropout > 0:
        weights = weights * dropout_factor(dropout, draw_seed(generator), weights)
    out = reference.aggregate(weights, value, nb)
    if not edges:
        return out
    return out, tuple(reference.edge_sums(weights, e.per_edge(), nb) for e in edges)


def largest_error(found: Tensor, true: Tensor) -> float:
    """Largest entry of the difference; infinite where one side is not a number."""
    if found.shape != true.shape:
        return torch.inf
    if found.numel() == 0:
        return 0.0
    return (found.double() - true.double()).abs().nan_to_num(torch.inf, torch.inf).max().item()


def allowed_error(true: Tensor, plain: Tensor, tolerance: dict[torch.dtype, float]) -> float:
    """How far a result of the type of `plain`, plain torch's result, may be from the truth."""
    size = max(true.abs().max().item(), SMALL) if true.numel() else SMALL
    relative = torch.finfo(plain.dtype).eps if plain.dtype in HALF else tolerance[plain.dtype]
    return relative * size + 2 * largest_error(plain, true)


def rounding(true: Iterable[Tensor], dtype: torch.dtype) -> float:
    """What may be left of a gradient that vanishes: a difference of terms, rounded."""
    largest = max(float(t.detach().abs().max()) for t in true if t.numel())
    return 2 * torch.finfo(torch.promote_types(dtype, torch.float32)).eps * largest


def assert_within(
    found: Iterable[Tensor], plain: Iterable[Tensor], true: Iterable[Tensor],
    tolerance: dict[torch.dtype, float], more: float = 0.0,
) -> None:  # fmt: skip
    """Each has the type of plain torch's result, and no larger error than may be; see above."""
    for ours, torchs, exact in zip(found, plain, true, strict=True):
        assert ours.dtype == torchs.dtype
        error = largest_error(ours.to(exact.device), exact)
        assert error <= allowed_error(exact, torchs, tolerance) + more


def wanted(nb: Neighborhood, inputs: Inputs, dropout: float = 0.0) -> Wanted:
    """What the definition gives in float64, and what plain torch gives in the type of the inputs.

    The dropout mask is the one of the library's counter.
    """
    true = outputs_and_gradients(definition, nb, inputs.to(torch.float64), dropout)
    return true, outputs_and_gradients(same_precision, nb, inputs, dropout)


def assert_conforms(
    attention: Attention,
    nb: Neighborhood,
    inputs: Inputs,
    *,
    dropout: float = 0.0,
    tolerance: dict[torch.dtype, float],
    known: Wanted | None = None,
) -> None:
    """Raise AssertionError unless `attention` gives the definition's outputs and gradients.

    `tolerance` is the largest error relative to the largest true entry, for float32 and float64;
    `known` is what `wanted` gives, which is computed where it is None.
    """
    true, plain = wanted(nb, inputs, dropout) if known is None else known
    found = outputs_and_gradients(attention, nb, inputs, dropout)
    for name, tensor in found.items():
        dtype = plain[name].dtype
        assert tensor.dtype == dtype, f"{name}: {tensor.dtype}, expected {dtype}"
        error = largest_error(tensor, true[name])
        allowed = allowed_error(true[name], plain[name], tolerance)
        assert error <= allowed, f"{name}: error {error:.2e}, allowed {allowed:.2e}"


def expanded(inputs: Inputs) -> Inputs:
    """The same shapes as views whose strides are anything but contiguous."""

    def view(t: Tensor) -> Tensor:
        """Every second entry of a larger tensor, axes stored in reverse order."""
        wide = torch.stack([t.detach(), torch.full_like(t, torch.nan)], -1)
        order = tuple(reversed(range(wide.dim())))
        return wide.permute(order).contiguous().permute(order)[..., 0].requires_grad_()

    bias = inputs.bias
    if isinstance(bias, ops.BucketedBias):
        twice = bias.bucket.repeat_interleave(2)[::2]
        bias = ops.BucketedBias(twice, view(bias.table))
    elif bias is not None:
        bias = view(bias)
    grad = inputs.grad[:, :1, :1].expand_as(inputs.grad)  # stride 0, as the gradient of a sum
    return replace(
        inputs,
        query=view(inputs.query), key=view(inputs.key), value=view(inputs.value),
        bias=bias, grad=grad,
    )  # fmt: skip
