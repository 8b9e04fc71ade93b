"""The primitives and sums of messages: formulas, derivatives, what they say at the edge.

`tests/conformance` has every backend.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphtheory import Neighborhood, cliques, ops
from tests.conformance.check import GRAPHS


def double(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def test_they_compose_to_attention() -> None:
    nb = GRAPHS["random"](63)
    query, key, value = (double(63, 2, 5) for _ in range(3))
    logits = 5**-0.5 * ops.edge_dot(query, key, nb)
    composed = ops.aggregate(ops.edge_softmax(logits, nb), value, nb)
    fused = ops.attention(query, key, value, nb, backend="numba_csr")
    torch.testing.assert_close(composed, fused, rtol=1e-12, atol=1e-13)
    upstream = double(63, 2, 5).detach()
    grads = [torch.autograd.grad(o, (query, key, value), upstream) for o in (composed, fused)]
    torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-13)


def test_aggregate_counts_edges_without_weights_and_takes_those_of_another_type() -> None:
    nb = GRAPHS["random"](7)
    out = ops.aggregate(None, torch.ones(7, 2, 3), nb)
    assert torch.equal(out[:, 1, 2], nb.degree().float())
    nb = GRAPHS["random"](7)
    weights = double(nb.num_edges, 2)
    value = double(7, 2, 3).detach().float().requires_grad_()
    out = ops.aggregate(weights, value, nb)
    assert out.dtype == torch.float32
    grads = torch.autograd.grad(out.sum(), (weights, value))
    assert [g.dtype for g in grads] == [torch.float64, torch.float32]


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("graph", ["random", "more sources", "no edges", "hub"])
@pytest.mark.parametrize("reduce", ["mean", "max", "min"])
@pytest.mark.parametrize("backend", ["numba_csr", "torch_csr"])
def test_reductions_of_equal_numbers_by_every_backend(backend, reduce, graph, weighted) -> None:
    """Few different numbers: several edges of a row are the largest, and share its gradient."""
    nb, generator = GRAPHS[graph](9), torch.Generator().manual_seed(2)

    def few(*shape: int) -> Tensor:
        return torch.randint(-2, 3, shape, generator=generator).double().requires_grad_()

    weights, value = few(nb.num_edges, 2) if weighted else None, few(nb.num_src, 2, 3)
    leaves = [value] if weights is None else [weights, value]
    up = torch.randn(nb.num_dst, 2, 3, generator=generator).double()

    def run(backend: str) -> list[Tensor]:
        out = ops.aggregate(weights, value, nb, reduce, backend=backend)
        return [out, *torch.autograd.grad(out, leaves, up)]

    torch.testing.assert_close(run(backend), run("reference"))


def test_a_reduction_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="reduce: got 'median', expected one of"):
        ops.aggregate(None, torch.ones(4, 1, 1), GRAPHS["random"](4), "median")


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_the_largest_under_inference_and_compiled_is_the_same(reduce: str) -> None:
    nb, value = GRAPHS["random"](7), double(7, 2, 3)
    wanted = ops.aggregate(None, value, nb, reduce)
    with torch.inference_mode():
        assert torch.equal(ops.aggregate(None, value, nb, reduce), wanted.detach())
    compiled = torch.compile(lambda v: ops.aggregate(None, v, nb, reduce), backend="aot_eager")
    grads = [torch.autograd.grad(o.sin().sum(), value)[0] for o in (compiled(value), wanted)]
    assert torch.equal(*grads)


BY_RELU, BY_GATES = ["numba_csr", "torch_csr", "reference"], ["numba_csr", "reference"]
TERMS = ["source", "target", "edge"]


def case(seed, num_src, num_dst, num_edges, dtype=torch.float64):
    """Edges, their rows, and a function that draws leaves."""
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(n, (num_edges,), generator=generator) for n in (num_src, num_dst)]
    nb = Neighborhood.from_edge_index(torch.stack(ends), num_src=num_src, num_dst=num_dst)

    def drawn(*shape):
        return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()

    return torch.stack(ends), nb, drawn


def relu_formula(edge_index, num_dst, value, features):
    """On the given edges."""
    messages = (value[edge_index[0]] + features).relu()
    return messages.new_zeros(num_dst, *messages.shape[1:]).index_add(0, edge_index[1], messages)


@pytest.mark.parametrize("given_order", [False, True])
@pytest.mark.parametrize("backend", BY_RELU)
@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 140)),
    shape=st.tuples(st.integers(1, 3), st.integers(0, 20), st.integers(1, 37)),
    asked=st.sampled_from([(0, 1, 2), (0, 2), (2,), (1,), None]),  # None: no matrix
)
def test_sums_of_relu_are_their_formula(backend, given_order, seed, sizes, shape, asked) -> None:
    edge_index, nb, drawn = case(seed, *sizes)
    heads, edge_dim, dim = shape
    shapes = [(sizes[0], heads, dim), (sizes[2], edge_dim), (heads, edge_dim, dim)]
    shapes = shapes if asked else [shapes[0], (sizes[2], heads, dim)]
    leaves = [drawn(*s).requires_grad_(k in (asked or (0, 1))) for k, s in enumerate(shapes)]
    value, features, *matrix = leaves
    product = torch.einsum("ef,hfd->ehd", features, *matrix) if matrix else features
    wanted = relu_formula(edge_index, nb.num_dst, value, product)
    ours = features if given_order else features[nb.perm]
    more = {"edge_matrix": matrix[0]} if matrix else {}
    out = ops.relu_sum(value, ours, nb, given_order=given_order, backend=backend, **more)
    up = torch.arange(out.numel(), dtype=out.dtype).view_as(out).cos()
    leaves = [t for t in leaves if t.requires_grad]
    results = [(sums, *torch.autograd.grad((sums * up).sum(), leaves)) for sums in (out, wanted)]
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_products_and_sums_of_low_precision_are_in_single(dtype) -> None:
    edge_index, nb, drawn = case(4, 6, 6, 130)
    low = [drawn(*shape).detach().to(dtype) for shape in ((6, 1, 64), (130, 33), (1, 33, 64))]
    low = [t.requires_grad_() for t in low]
    exact = [t.detach().double().requires_grad_() for t in low]
    wanted = relu_formula(edge_index, 6, exact[0], torch.einsum("ef,hfd->ehd", *exact[1:]))
    found = ops.relu_sum(*low[:2], nb, edge_matrix=low[2], given_order=True)
    wanted.sum().backward()
    found.sum().backward()
    results = [(found, wanted), *((a.grad, b.grad) for a, b in zip(low, exact, strict=True))]
    for mine, other in results:
        assert mine.dtype is dtype
        error = (mine.double() - other).abs().max() / other.abs().max()
        assert error < max(torch.finfo(dtype).eps, 1e-5)


@pytest.mark.parametrize("backend", BY_RELU)
def test_zero_passes_nothing_and_nan_stays_in_its_row(backend) -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    value = torch.tensor([[[0.0]], [[torch.nan]]], requires_grad=True)
    out = ops.relu_sum(value, torch.zeros(2, 1, 1), nb, backend=backend)
    assert out.flatten().isnan().tolist() == [True, False]
    (grad,) = torch.autograd.grad(out[1].sum(), value)
    assert grad[0].item() == 0


@pytest.mark.parametrize("gated", [False, True])
def test_sums_under_compile_and_vmap(gated) -> None:
    _, nb, drawn = case(5, 5, 4, 12)
    terms = {"source": drawn(5, 3), "target": drawn(4, 3), "edge": drawn(12, 3)}

    def run(value, features):
        if gated:
            return ops.gated_sum(value, nb, **terms)
        return ops.relu_sum(value, features, nb, given_order=True)

    value, features = drawn(5, 2, 3), drawn(12, 2, 3)
    compiled = torch.compile(run, fullgraph=True, backend="eager")
    assert torch.equal(compiled(value, features), run(value, features))
    many, features = torch.stack([value, 2 * value]).detach(), features.detach()
    mapped = torch.func.vmap(lambda value: run(value, features))(many)
    assert torch.equal(mapped[1], run(many[1], features))


def gated_loop(nb, value, source=None, target=None, edge=None):
    """The formula as it stands, one edge after the other."""
    out = [value.new_zeros(value.shape[1:]) for _ in range(nb.num_dst)]
    for e, (j, i) in enumerate(zip(nb.indices.tolist(), nb.targets().tolist(), strict=True)):
        logit = value.new_zeros(value.size(2))
        for term, row in ((source, j), (target, i), (edge, e)):
            logit = logit if term is None else logit + term[row]
        out[i] = out[i] + value[j] / (1 + torch.exp(-logit))
    return torch.stack(out)


@pytest.mark.parametrize("backend", BY_GATES)
@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 60)),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 37)),
    terms=st.sets(st.sampled_from(TERMS), min_size=1),
    asked=st.sets(st.sampled_from(["value", *TERMS]), min_size=1),
)
def test_gated_sums_are_a_loop(backend, seed, sizes, shape, terms, asked) -> None:
    _, nb, drawn = case(seed, *sizes)
    value, rows = drawn(sizes[0], *shape), dict(zip(TERMS, sizes, strict=True))
    given = {name: drawn(rows[name], shape[1]) for name in TERMS if name in terms}
    every = {"value": value, **given}
    leaves = [t.requires_grad_(name in asked) for name, t in every.items()]
    leaves = [t for t in leaves if t.requires_grad]
    found = [ops.gated_sum(value, nb, **given, backend=backend)]
    wanted = [gated_loop(nb, value, **given)]
    up = torch.arange(found[0].numel(), dtype=torch.float64).view_as(found[0]).cos()
    if leaves and nb.num_edges:
        for results in (found, wanted):
            results += torch.autograd.grad(results[0], leaves, up)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("backend", BY_GATES)
def test_gates_of_any_logit(backend, dtype) -> None:
    """Also of logits that no exponential of this type holds; NaN stays in its rows."""
    logits = torch.tensor([-torch.inf, -1e4, -90.0, -30.0, 0.0, 30.0, 90.0, 1e4, torch.inf])
    nb = cliques([1] * len(logits))
    value = torch.ones(len(logits), 1, 20, dtype=dtype, requires_grad=True)
    term = logits.to(dtype)[:, None].repeat(1, 20).requires_grad_()
    out = ops.gated_sum(value, nb, source=term, backend=backend)
    gates = torch.tensor([1 / (1 + math.exp(min(-x, 700))) for x in logits.tolist()])
    assert (out[:, 0] - gates[:, None]).abs().max() < 1e-7
    out.sum().backward()
    torch.testing.assert_close(value.grad, out.detach())
    assert (term.grad - (gates * (1 - gates))[:, None]).abs().max() < 1e-7
    bad = torch.zeros(len(logits), 20, dtype=dtype)
    bad[3, 2] = torch.nan
    out = ops.gated_sum(value, nb, target=bad, backend=backend)
    assert out.isnan().nonzero().tolist() == [[3, 0, 2]]


CLIQUES, VALUE = cliques([2, 2]), torch.zeros(4, 2, 3)
FEATURES, FEW, MATRIX = torch.zeros(8, 2, 3), torch.zeros(8, 5), torch.zeros(2, 5, 3)


@pytest.mark.parametrize(("tensors", "error", "message"), [
    ((VALUE.long(), FEATURES), TypeError, "value: dtype torch.int64, expected a floating"),
    ((VALUE[:3], FEATURES), ValueError, r"value: shape \(3, 2, 3\), expected \[4, heads"),
    ((VALUE, FEATURES.double()), TypeError, "edge_features: dtype torch.float64, expected"),
    ((VALUE, None), TypeError, "edge_features: got NoneType, expected a tensor"),
    ((VALUE, FEATURES[:5]), ValueError, r"edge_features: shape \(5, 2, 3\), expected \[8, 2"),
    ((VALUE, FEATURES[:, :, :1]), ValueError, r"edge_features: shape \(8, 2, 1\), expected"),
    ((VALUE, FEATURES.to("meta")), ValueError, "edge_features: on meta, expected cpu"),
    ((VALUE, FEW, MATRIX.double()), TypeError, "edge_matrix: dtype torch.float64, expected"),
    ((VALUE, FEW, 3), TypeError, "edge_matrix: got int, expected a tensor"),
    ((VALUE, FEW, MATRIX[0]), ValueError, r"edge_matrix: shape \(5, 3\), expected \[2, edge_"),
    ((VALUE, FEW, MATRIX[:1]), ValueError, r"edge_matrix: shape \(1, 5, 3\), expected \[2, edge_"),
    ((VALUE, FEW, MATRIX[:, :4]), ValueError, r"edge_features: shape \(8, 5\), expected \[8, 4"),
    ((VALUE, FEATURES, MATRIX), ValueError, r"edge_features: shape \(8, 2, 3\), expected \[8, 5"),
    ((VALUE, FEW[:5], MATRIX), ValueError, r"edge_features: shape \(5, 5\), expected \[8, 5\]"),
    ((VALUE, FEW.to("meta"), MATRIX), ValueError, "edge_features: on meta, expected cpu"),
])  # fmt: skip
def test_wrong_input_of_sums_of_relu_is_named(tensors, error, message) -> None:
    value, features, matrix = (*tensors, None)[:3]
    with pytest.raises(error, match=message):
        ops.relu_sum(value, features, CLIQUES, edge_matrix=matrix)
    with pytest.raises(ValueError, match="given_order: got True, but the neighborhood has no perm"):
        ops.relu_sum(VALUE, FEATURES, CLIQUES, given_order=True)


@pytest.mark.parametrize(("options", "error", "message"), [
    ({}, ValueError, "source: got None beside no target and no edge, expected one of them"),
    ({"source": 3}, TypeError, "source: got int, expected a tensor"),
    ({"source": VALUE}, ValueError, r"source: shape \(4, 2, 3\), expected \[4, 3\]"),
    ({"target": VALUE[:3, 0]}, ValueError, r"target: shape \(3, 3\), expected \[4, 3\]"),
    ({"edge": VALUE[:, 0]}, ValueError, r"edge: shape \(4, 3\), expected \[8, 3\]"),
    ({"target": VALUE[:, 0].double()}, TypeError, "target: dtype torch.float64, expected"),
    ({"target": VALUE[:, 0].to("meta")}, ValueError, "target: on meta, expected cpu"),
])  # fmt: skip
def test_wrong_input_of_gated_sums_is_named(options, error, message) -> None:
    with pytest.raises(error, match=message):
        ops.gated_sum(VALUE, CLIQUES, **options)
