import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheory import Neighborhood
from graphtheory.ops.additive import additive_score
from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.backends import torch_csr
from tests.conformance.check import FEW, runs_here

EVERY = runs_here(additive_score, *[torch.zeros(3, 1, 4)] * 2, torch.zeros(1, 4), FEW)


def case(seed, num_src, num_dst, num_edges, heads, dim, edge_dim, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(max(n, 1), (num_edges,), generator=generator) for n in (num_src, num_dst)]
    nb = Neighborhood.from_edge_index(torch.stack(ends), num_src=num_src, num_dst=num_dst)
    shapes = [(num_src, heads, dim), (num_dst, heads, dim), (heads, dim)]
    shapes += [(num_edges, edge_dim), (heads, edge_dim, dim)]
    tensors = [torch.randn(s, generator=generator, dtype=dtype) for s in shapes]
    return nb, [t.requires_grad_() for t in tensors]


def definition(nb, source, target, att, features, matrix, slope):
    """The formula as it stands, with every edge's features spelled out."""
    z = source[nb.indices] + target[nb.targets()] + torch.einsum("ef,hfc->ehc", features, matrix)
    return (torch.nn.functional.leaky_relu(z, slope) * att).sum(-1)


def call(nb, tensors, slope=0.2, backend=None):
    source, target, att, features, matrix = tensors
    edges = {"edge_features": features, "edge_matrix": matrix} if features.size(1) else {}
    return additive_score(source, target, att, nb, negative_slope=slope, backend=backend, **edges)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 40)),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(0, 4)),
    slope=st.sampled_from([0.2, 0.0, 1.0]),
)
def test_equals_the_definition(seed, sizes, shape, slope) -> None:
    nb, tensors = case(seed, *sizes, *shape)
    used = tensors if shape[2] else tensors[:3]
    results = []
    for score in (call(nb, tensors, slope), definition(nb, *tensors, slope)):
        up = torch.arange(score.numel(), dtype=score.dtype).view_as(score).cos()
        results.append((score, *torch.autograd.grad((score * up).sum(), used)))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("edge_dim", [0, 3])
@pytest.mark.parametrize("backend", EVERY)
def test_every_backend_equals_the_definition(backend, edge_dim, poisoned_memory, monkeypatch):
    monkeypatch.setattr(torch_csr, "_BUFFER", 50)  # several parts, the last one short
    nb, tensors = case(1, 8, 9, 133, 2, 5, edge_dim)  # more edges than a tile has, which cut rows
    wanted = definition(nb, *tensors, 0.3)
    score = call(nb, tensors, 0.3, backend)
    torch.testing.assert_close(score, wanted)
    up, used = torch.randn_like(wanted), tensors if edge_dim else tensors[:3]
    grads = torch.autograd.grad(score, used, up)
    torch.testing.assert_close(grads, torch.autograd.grad(wanted, used, up))


@pytest.mark.parametrize("backend", ["numba_csr", "torch_csr"])
def test_features_that_need_no_gradient_cost_none(backend, monkeypatch) -> None:
    nb, tensors = case(1, 8, 9, 33, 2, 5, 3)
    wanted = torch.autograd.grad(call(nb, tensors, 0.3, backend).sum(), tensors)
    tensors[3].requires_grad_(False)
    used, made, kernels = [*tensors[:3], tensors[4]], [], BACKENDS[backend].kernels
    compute = kernels.additive_score_backward
    monkeypatch.setattr(
        kernels, "additive_score_backward", lambda *args: made.append(compute(*args)) or made[-1]
    )
    found = torch.autograd.grad(call(nb, tensors, 0.3, backend).sum(), used)
    torch.testing.assert_close(found, (*wanted[:3], wanted[4]), rtol=0, atol=0)
    assert made[0][3].shape == (0,)


def test_torch_needs_no_transposed_structure() -> None:
    nb, tensors = case(1, 8, 9, 33, 2, 5, 0)
    call(nb, tensors, backend="torch_csr").sum().backward()
    assert nb._transpose is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision_is_summed_in_single(dtype) -> None:
    nb, tensors = case(4, 6, 6, 30, 2, 64, 3)
    low = [t.detach().to(dtype).requires_grad_() for t in tensors]
    exact = [t.detach().double().requires_grad_() for t in low]
    score, wanted = call(nb, low), definition(nb, *exact, 0.2)
    score.float().sum().backward()
    wanted.sum().backward()
    results = [score, *(t.grad for t in low)]
    for mine, other in zip(results, [wanted, *(t.grad for t in exact)], strict=True):
        assert mine.dtype is dtype
        error = (mine.double() - other).abs().max() / other.abs().max()
        assert error < max(torch.finfo(dtype).eps, 1e-5)


def test_at_zero_the_slope_is_the_negative_one_and_nan_stays_on_its_edges() -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0], [0]]), num_nodes=1)
    x = torch.zeros(1, 1, 1, requires_grad=True)
    additive_score(x, torch.zeros(1, 1, 1), torch.ones(1, 1), nb, negative_slope=0.3).backward()
    assert x.grad.item() == pytest.approx(0.3)
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    x = torch.ones(3, 1, 4)
    x[0, 0, 1] = torch.nan
    score = additive_score(x, torch.ones(3, 1, 4), torch.ones(1, 4), nb)
    assert score.isnan().flatten().tolist() == [True, False]


@pytest.mark.parametrize("backend", ["numba_csr", "torch_csr", "reference"])
def test_what_is_not_finite_stays_where_it_belongs(backend) -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0], [0]]), num_nodes=2)
    source = torch.tensor([[[1.0, -1.0]], [[1.0, 1.0]]], requires_grad=True)
    att = torch.tensor([[1.0, 1.0]])
    score = additive_score(source, torch.zeros_like(source), att, nb, backend=backend)
    (grad,) = torch.autograd.grad(score, source, torch.tensor([[torch.inf]]))
    assert grad.flatten().tolist() == [torch.inf, torch.inf, 0, 0]
    score = additive_score(source, torch.zeros_like(source), torch.inf * att, nb, backend=backend)
    (grad,) = torch.autograd.grad(score, source, torch.ones(1, 1))
    assert grad[1].flatten().tolist() == [0, 0]


GOOD = {
    "source": torch.randn(3, 2, 4),
    "target": torch.randn(3, 2, 4),
    "att": torch.randn(2, 4),
    "edge_features": torch.randn(2, 5),
    "edge_matrix": torch.randn(2, 5, 4),
}


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"source": torch.randn(4, 2, 4)}, ValueError, "source: shape .4, 2, 4., expected .3, heads"),
    ({"target": torch.randn(3, 1, 4)}, ValueError, "target: shape .3, 1, 4., expected .3, 2, 4."),
    ({"target": torch.randn(3, 3, 4)}, ValueError, "target: shape .3, 3, 4., expected .3, 2, 4."),
    ({"target": torch.ones(3, 2, 4).int()}, TypeError, "target: dtype torch.int32"),
    ({"att": torch.randn(2, 3)}, ValueError, "att: shape .2, 3., expected .2, 4."),
    ({"att": torch.ones(2, 4).long()}, TypeError, "att: dtype torch.int64, expected a floating"),
    ({"edge_matrix": None}, ValueError, "edge_features: expected together with edge_matrix"),
    ({"edge_features": torch.randn(3, 5)}, ValueError, "edge_features: shape .3, 5., exp"),
    ({"edge_matrix": 3}, TypeError, "edge_matrix: got int, expected a tensor"),
    ({"att": None}, TypeError, "att: got NoneType, expected a tensor"),
    ({"edge_matrix": torch.ones(5, 4)}, ValueError, "edge_matrix: shape .5, 4., expected .2, edge"),
    ({"edge_matrix": torch.ones(4)}, ValueError, "edge_matrix: shape .4,., expected .2, edge_dim"),
    ({"edge_matrix": torch.ones(2, 5, 4).to("meta")}, ValueError, "edge_matrix: on meta, exp"),
    ({"edge_features": torch.ones(2, 5).to("meta")}, ValueError, "edge_features: on meta, exp"),
    ({"edge_matrix": torch.randn(2, 5, 3)}, ValueError, "edge_matrix: shape .2, 5, 3., exp"),
])  # fmt: skip
def test_errors_name_the_argument(change, error, message) -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    arguments = {**GOOD, **change}
    nodes = [arguments.pop(name) for name in ("source", "target", "att")]
    with pytest.raises(error, match=message):
        additive_score(*nodes, nb, **arguments)
