"""Attention with features of edges on every backend, against the definition."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheory import Neighborhood, ops
from graphtheory.ops import EdgeFeatures
from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.backends.cpu import launch, memory
from tests.conformance.check import BIASES, GRAPHS, SIZES
from tests.conformance.check_edges import (
    FORMS,
    EdgeInputs,
    assert_edges_conform,
    draw_edges,
    results,
    wanted,
)
from tests.conftest import case

TOLERANCE = {b.name: b.tolerance for b in BACKENDS.values()}
CSR = ["numba_csr", "torch_csr"]


def run_by(backend: str) -> partial:
    return partial(ops.attention, backend=backend)


def conform(nb: Neighborhood, given: EdgeInputs, p: float = 0.0) -> None:
    """Every backend, beside the same definition."""
    known = wanted(nb, given, p)
    for backend in CSR:
        with case(backend):
            assert_edges_conform(run_by(backend), nb, given, TOLERANCE[backend], p, known)


CASES = [("random", 1), ("random", 63), ("random", 257), ("hub", 63), ("more targets", 7)]
CASES += [("no edges", 7), ("clique", 7)]


@pytest.mark.parametrize(("graph", "nodes"), CASES)
def test_outputs_and_gradients(graph: str, nodes: int) -> None:
    nb = GRAPHS[graph](nodes)
    for form in FORMS:
        for bias in ("masked", "buckets"):
            conform(nb, draw_edges(nb, *SIZES[nodes], form, bias, torch.float32))


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", FORMS)
def test_every_type(form: str, dtype: torch.dtype) -> None:
    nb = GRAPHS["random"](7)
    for bias in BIASES:
        conform(nb, draw_edges(nb, 3, 5, form, bias, dtype))


@pytest.mark.parametrize("form", FORMS)
def test_dropout_drops_the_same_everywhere(form: str) -> None:
    nb = GRAPHS["random"](63)
    for p in (1e-12, 0.4):
        conform(nb, draw_edges(nb, 3, 5, form, "none", torch.float32), p)


@settings(max_examples=10)
@given(data=st.data())
def test_any_graph(data: st.DataObject) -> None:
    num_src, num_dst = (data.draw(st.integers(1, 9)) for _ in range(2))
    ends = st.tuples(st.integers(0, num_src - 1), st.integers(0, num_dst - 1))
    edges = torch.tensor(data.draw(st.lists(ends, max_size=40)), dtype=torch.int64).view(-1, 2)
    nb = Neighborhood.from_edge_index(edges.t(), num_src=num_src, num_dst=num_dst)
    shape = data.draw(st.sampled_from([(1, 1), (3, 5), (2, 17)]))
    form, bias = data.draw(st.sampled_from(FORMS)), data.draw(st.sampled_from(BIASES))
    dropout = data.draw(st.sampled_from([0.0, 0.5]))
    conform(nb, draw_edges(nb, *shape, form, bias, torch.float64), dropout)


@pytest.mark.parametrize("form", FORMS)
def test_threads_do_not_change_a_bit(form, two_threads, monkeypatch) -> None:
    monkeypatch.setattr(memory, "WHOLE_ROWS_BELOW", 0)  # the hub is shared out
    monkeypatch.setattr(launch, "_CHUNK", 64)
    monkeypatch.setattr(launch, "WORTH_A_THREAD", 1)
    for graph in ("random", "hub"):
        nb = GRAPHS[graph](257)
        inputs = draw_edges(nb, 3, 16, form, "buckets", torch.float32)
        torch.set_num_threads(2)
        two, again = (results(run_by("numba_csr"), nb, inputs, 0.3) for _ in range(2))
        torch.set_num_threads(1)
        one = results(run_by("numba_csr"), nb, inputs, 0.3)
        for name, tensor in one.items():
            assert torch.equal(tensor, two[name]), name
            assert torch.equal(tensor, again[name]), name


def test_a_hub_in_many_chunks_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_CHUNK", 64)
    nb = GRAPHS["hub"](1000)
    for form in FORMS:
        inputs = draw_edges(nb, 2, 3, form, "edges", torch.float64)
        assert_edges_conform(run_by("numba_csr"), nb, inputs, TOLERANCE["numba_csr"], 0.3)


@pytest.mark.parametrize("backend", CSR)
def test_keys_and_values_that_have_the_features_in_them_give_the_same(backend: str) -> None:
    """What the form with few tensors is for: q . (k + W e) and sum a (v + W e)."""
    nb, generator = GRAPHS["random"](7), torch.Generator().manual_seed(0)
    edges, (heads, dim, width) = nb.num_edges, (2, 5, 3)
    query, key, value = (torch.randn(7, heads, dim, generator=generator).double() for _ in range(3))
    features = torch.randn(edges, width, generator=generator).double()
    matrix = torch.randn(heads, width, dim, generator=generator).double()
    asked = torch.einsum("nhc,hdc->nhd", query, matrix)
    out, sums = ops.attention(
        query, key, value, nb, edges=EdgeFeatures(features, asked), backend=backend
    )
    out = out + torch.einsum("nhd,hdc->nhc", sums, matrix)
    added = torch.einsum("ed,hdc->ehc", features, matrix)
    by_edge = Neighborhood(nb.indptr, torch.arange(edges), edges)
    keys, values = (t[nb.indices] + added for t in (key, value))
    torch.testing.assert_close(out, ops.attention(query, keys, values, by_edge))


def test_gradients_that_nobody_asks_for() -> None:
    nb = GRAPHS["random"](7)
    inputs = draw_edges(nb, 2, 3, "by edge", "none", torch.float32)
    x, (e,) = inputs.inputs, inputs.edges
    for backend in CSR:
        fixed = EdgeFeatures(e.features.detach(), e.query)
        out, sums = ops.attention(x.query, x.key, x.value, nb, edges=fixed, backend=backend)
        (grad,) = torch.autograd.grad(sums.sum(), e.query, retain_graph=True)
        assert grad.abs().max() > 0 and torch.autograd.grad(out.sum(), x.value)[0].abs().max() > 0
        alone = ops.attention(
            x.query, x.key.detach(), x.value.detach(), nb, edges=e, backend=backend
        )
        given = (e.features, e.query)
        assert all(g.abs().max() > 0 for g in torch.autograd.grad(alone[1].sum(), given))


def test_why_dense_sets_do_not_take_them() -> None:
    nb = GRAPHS["clique"](7)
    x, f = torch.zeros(7, 1, 4), torch.zeros(49, 2)
    told = ops.explain(ops.attention, x, x, x, nb, edges=EdgeFeatures(f))
    assert told.chosen == "numba_csr" and "features of edges" in told.reasons["blocks"]
    with pytest.raises(NotImplementedError, match="features of edges"):
        ops.attention(x, x, x, nb, edges=EdgeFeatures(f), backend="blocks")


_ROW = torch.zeros(21, dtype=torch.uint8)


@pytest.mark.parametrize(("edges", "error", "message"), [
    (torch.zeros(21, 2), TypeError, "edges: got Tensor, expected EdgeFeatures"),
    ((1,), TypeError, "edges: got int, expected EdgeFeatures"),
    ((), ValueError, "edges: got 0,"),
    ((EdgeFeatures(torch.zeros(21, 2)),) * 2, ValueError, "edges: got 2, of which 0"),
    (EdgeFeatures(torch.zeros(20, 2)), ValueError, r"features: shape \(20, 2\), .* \[21,"),
    (EdgeFeatures(torch.zeros(21)), ValueError, r"edges.features: shape \(21,\)"),
    (EdgeFeatures(torch.zeros(21, 2).long()), TypeError, "features: dtype torch.int64"),
    (EdgeFeatures(torch.zeros(21, 2), torch.zeros(7, 1, 3)), ValueError,
     r"edges.query: shape \(7, 1, 3\), expected \[7, 1, 2\]"),
    (EdgeFeatures(torch.zeros(21, 2), torch.zeros(7, 1, 2).double()), TypeError,
     "edges.query: dtype torch.float64, expected torch.float32"),
    (EdgeFeatures(torch.zeros(257, 2), row=_ROW), ValueError, "257 rows, expected 1 to 256"),
    (EdgeFeatures(torch.zeros(3, 2, 2), row=_ROW), ValueError, r"expected \[3, 1, edge_dim\]"),
    (EdgeFeatures(torch.zeros(3, 2), row=_ROW[1:]), ValueError, r"edges.row: .* \[21\]"),
    (EdgeFeatures(torch.zeros(3, 2), row=_ROW.int()), ValueError, "uint8 or int64"),
    (EdgeFeatures(torch.zeros(3, 2), row=_ROW + 3), IndexError, "edges.row: entries 3 to 3"),
    (EdgeFeatures(torch.zeros(3, 2), row=_ROW.long() - 1), IndexError, "entries -1 to -1"),
])  # fmt: skip
def test_errors_name_the_argument(edges: object, error: type, message: str) -> None:
    nb, x = GRAPHS["random"](7), torch.zeros(7, 1, 4)
    for backend in ("numba_csr", "reference"):
        with pytest.raises(error, match=message):
            ops.attention(x, x, x, nb, edges=edges, backend=backend)
