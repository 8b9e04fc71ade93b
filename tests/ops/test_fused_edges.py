"""Attention with features of edges as one op: parts that are given for one kind of them alone."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from graphtheory import ops
from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.backends.cpu import memory
from tests.conformance.check import GRAPHS
from tests.conformance.check_edges import (
    FORMS,
    EdgeInputs,
    assert_edges_conform,
    draw_edges,
    results,
)

CSR = ["numba_csr", "torch_csr"]


def run_by(backend: str) -> Callable[..., tuple[Tensor, tuple[Tensor, ...]]]:
    return lambda *args, **options: ops.attention(*args, backend=backend, **options)


def without_queries(given: EdgeInputs, *places: int) -> EdgeInputs:
    edges = [replace(e, query=None) if k in places else e for k, e in enumerate(given.edges)]
    return replace(given, edges=tuple(edges))


@pytest.mark.parametrize("places", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("backend", CSR)
def test_a_query_of_one_kind_alone(backend, dtype, places) -> None:
    """By edge without, the table with a query; the other way round; neither."""
    nb = GRAPHS["more targets"](7)
    for bias in ("edges", "buckets"):
        given = without_queries(draw_edges(nb, 3, 5, "both", bias, dtype), *places)
        assert_edges_conform(run_by(backend), nb, given, BACKENDS[backend].tolerance)


def second(backend: str, graph: str, form: str, bias: str) -> list[Tensor]:
    """Every gradient of the square of all first gradients."""
    nb = GRAPHS[graph](4)
    given = draw_edges(nb, 2, 3, form, bias, torch.float64)
    x, leaves = given.inputs, list(given.leaves().values())
    out, sums = ops.attention(
        x.query, x.key, x.value, nb, bias=x.bias, edges=given.edges, backend=backend,
        dropout=0.3, generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    ups = [x.grad, *given.grads]
    first = torch.autograd.grad((out, *sums), leaves, ups, create_graph=True)
    loss = sum(g.square().sum() for g in first if g.requires_grad)
    return list(torch.autograd.grad(loss, leaves, materialize_grads=True))


@pytest.mark.parametrize("graph", ["random", "more sources", "more targets"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backend", CSR)
def test_second_derivatives(backend: str, form: str, graph: str) -> None:
    for bias in ("edges", "buckets"):
        found = second(backend, graph, form, bias)
        torch.testing.assert_close(found, second("reference", graph, form, bias))


def test_weights_that_are_not_kept_change_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    nb = GRAPHS["more sources"](7)
    for form in FORMS:
        for bias in ("none", "edges", "buckets"):
            given = draw_edges(nb, 2, 3, form, bias, torch.float64)
            kept = results(run_by("numba_csr"), nb, given, 0.3)
            monkeypatch.setattr(memory, "KEPT_WEIGHTS_BELOW", 0)
            again = results(run_by("numba_csr"), nb, given, 0.3)
            monkeypatch.undo()
            torch.testing.assert_close(again, kept)
