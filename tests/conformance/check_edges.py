"""What every way to run attention with features of edges fulfils; see `check`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from graphtheory import Neighborhood, ops
from graphtheory.ops import EdgeFeatures
from tests.conformance.check import (
    Inputs,
    Wanted,
    allowed_error,
    draw_inputs,
    largest_error,
    rounding,
    same_precision,
)

FORMS = ("by edge", "sums alone", "table", "table by head", "both", "both, one query")
DIM, TABLE_DIM, ROWS = 3, 4, 6
Attention = Callable[..., tuple[Tensor, tuple[Tensor, ...]]]


@dataclass(frozen=True)
class EdgeInputs:
    """Tensors of a call, features of edges and gradients of their sums."""

    inputs: Inputs
    edges: tuple[EdgeFeatures, ...]
    grads: tuple[Tensor, ...]

    def to(self, dtype: torch.dtype) -> EdgeInputs:
        def cast(t: Tensor | None) -> Tensor | None:
            return None if t is None else t.detach().to(dtype).requires_grad_()

        edges = (EdgeFeatures(cast(e.features), cast(e.query), e.row) for e in self.edges)
        grads = (g.to(dtype) for g in self.grads)
        return replace(self, inputs=self.inputs.to(dtype), edges=tuple(edges), grads=tuple(grads))

    def leaves(self) -> dict[str, Tensor]:
        out = self.inputs.leaves()
        for place, e in enumerate(self.edges):
            out[f"features {place}"] = e.features
            if e.query is not None:
                out[f"edge query {place}"] = e.query
        return out


def draw_edges(
    nb: Neighborhood, heads: int, dim: int, form: str, bias: str, dtype: torch.dtype
) -> EdgeInputs:
    generator = torch.Generator().manual_seed(nb.num_edges + len(form))

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    row = torch.randint(ROWS, (nb.num_edges,), generator=generator)
    by_edge = EdgeFeatures(normal(nb.num_edges, DIM), normal(nb.num_dst, heads, DIM))
    table = EdgeFeatures(normal(ROWS, TABLE_DIM), normal(nb.num_dst, heads, TABLE_DIM), row)
    by_head = replace(table, features=normal(ROWS, heads, TABLE_DIM), row=row.to(torch.uint8))
    edges = {
        "by edge": (by_edge,),
        "sums alone": (replace(by_edge, query=None),),
        "table": (table,),
        "table by head": (by_head,),
        "both": (by_edge, by_head),
        "both, one query": (replace(table, query=None), by_edge),
    }[form]
    grads = tuple(normal(nb.num_dst, heads, e.dim) for e in edges)
    return EdgeInputs(draw_inputs(nb, heads, dim, bias), edges, grads).to(dtype)


def results(
    attention: Attention, nb: Neighborhood, given: EdgeInputs, dropout: float = 0.0
) -> dict[str, Tensor]:
    """Output, sums and the gradient of every leaf, by name."""
    x = given.inputs
    out, sums = attention(
        x.query, x.key, x.value, nb, bias=x.bias, dropout=dropout, edges=given.edges,
        generator=torch.Generator().manual_seed(3),
    )  # fmt: skip
    leaves = given.leaves()
    ups = (x.grad, *given.grads)
    grads = torch.autograd.grad((out, *sums), [*leaves.values()], ups, materialize_grads=True)
    found = {"output": out, **{f"sums {i}": s for i, s in enumerate(sums)}}
    return found | dict(zip(leaves, grads, strict=True))


def wanted(nb: Neighborhood, given: EdgeInputs, dropout: float = 0.0) -> Wanted:
    """The definition in float64, and plain torch in the type of the inputs."""
    by_definition = partial(ops.attention, backend="reference")
    true = results(by_definition, nb, given.to(torch.float64), dropout)
    return true, results(same_precision, nb, given, dropout)


def assert_edges_conform(
    attention: Attention, nb: Neighborhood, given: EdgeInputs,
    tolerance: dict[torch.dtype, float], dropout: float = 0.0, known: Wanted | None = None,
) -> None:  # fmt: skip
    """Raise AssertionError unless outputs, sums and gradients are the definition's."""
    true, plain = wanted(nb, given, dropout) if known is None else known
    left = rounding(true.values(), given.inputs.query.dtype)
    for name, tensor in results(attention, nb, given, dropout).items():
        assert tensor.dtype == plain[name].dtype, name
        error = largest_error(tensor, true[name])
        allowed = allowed_error(true[name], plain[name], tolerance) + left
        assert error <= allowed, f"{name}: error {error:.2e}, allowed {allowed:.2e}"
