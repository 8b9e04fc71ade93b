"""Features read by their non-zeros beside the dense tensor."""

import copy
import pickle

import pytest
import torch
from torch.nn import functional

from graphtheory.nn import GATConv, GCNConv, SparseFeatures
from graphtheory.nn.conv import sparse_features


@pytest.fixture
def x():
    """40 nodes, 30 features, a row and a column of zeros."""
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(40, 30, generator=generator, dtype=torch.float64)
    dense = dense * (torch.rand(40, 30, generator=generator) < 0.1)
    dense[3], dense[:, 5] = 0, 0
    return dense


def product(function, x, *parameters):
    parameters = [p.clone().requires_grad_() for p in parameters]
    out = function(x, *parameters)
    out.backward(torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out))
    return [out, *(p.grad for p in parameters)]


@pytest.mark.parametrize(("function", "shapes"), [
    (functional.linear, [(4, 30), (4,)]),
    (functional.linear, [(4, 30)]),
    (torch.matmul, [(30, 4)]),
    (lambda x, w: x @ w, [(30, 4)]),
    (torch.mm, [(30, 4)]),
])  # fmt: skip
def test_products_are_those_of_the_dense_tensor(function, shapes, x, monkeypatch) -> None:
    parameters = [torch.randn(*shape, dtype=torch.float64) for shape in shapes]
    wanted = product(function, x, *parameters)
    sparse = SparseFeatures(x)
    monkeypatch.setattr(SparseFeatures, "dense", None)  # not asked for
    found = product(function, sparse, *parameters)
    assert all(type(t) is torch.Tensor for t in found)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_dropout_keeps_the_probability_and_the_scale(x) -> None:
    sparse = SparseFeatures(x)
    dropped = functional.dropout(sparse, 0.4)
    assert dropped._dense is None and dropped.shape == x.shape and dropped.dtype == x.dtype
    scale = dropped.dense[x != 0] / x[x != 0]
    assert ((scale == 0) | torch.isclose(scale, torch.ones_like(scale) / 0.6)).all()
    kept = [(functional.dropout(sparse, 0.4).dense != 0).sum() for _ in range(200)]
    share = torch.stack(kept).double().mean() / x.count_nonzero()
    torch.testing.assert_close(float(share), 0.6, rtol=0, atol=0.02)
    assert functional.dropout(sparse, 0.4, training=False) is sparse
    weight = torch.randn(4, 30, dtype=torch.float64)
    found = product(functional.linear, dropped, weight)
    torch.testing.assert_close(found, product(functional.linear, dropped.dense, weight))


def test_other_functions_get_the_dense_tensor(x) -> None:
    sparse = SparseFeatures(x)
    for function in (torch.relu, lambda t: t + 1, lambda t: t[2:5], lambda t: 2 * t, torch.clone):
        out = function(sparse)
        assert type(out) is torch.Tensor
        torch.testing.assert_close(out, function(x))
    assert sparse.numpy().shape == (40, 30) and repr(sparse) == repr(x)
    assert torch.cat([sparse, sparse]).shape == (80, 30)
    for twin in (copy.deepcopy(sparse), pickle.loads(pickle.dumps(sparse))):
        assert type(twin) is torch.Tensor and torch.equal(twin, x)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        functional.linear(sparse, torch.randn(4, 29, dtype=torch.float64))
    with torch.autocast("cpu", torch.bfloat16):
        out = functional.linear(sparse.float(), torch.randn(4, 30))
        assert out.dtype == torch.bfloat16


def test_what_is_written_counts(x) -> None:
    sparse, weight = SparseFeatures(x), torch.randn(4, 30, dtype=torch.float64)
    sparse[3] = 1
    assert float(x[3, 0]) == 1
    torch.testing.assert_close(functional.linear(sparse, weight), functional.linear(x, weight))
    again = SparseFeatures(x)
    again.requires_grad_()
    functional.linear(again, weight).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand(40, 30))


@pytest.mark.parametrize("layer", [GCNConv(30, 4), GATConv(30, 4, heads=2)])
def test_layers_take_them(layer, x) -> None:
    layer = layer.double()
    edges = torch.randint(40, (2, 90))
    wanted = layer(x, edges)
    wanted.sum().backward()
    gradients = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    out = layer(SparseFeatures(x), edges)
    out.sum().backward()
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close([p.grad for p in layer.parameters()], gradients)


@pytest.mark.parametrize(("given", "error", "message"), [
    (torch.zeros(3, 4, dtype=torch.long), TypeError, "x: got torch.int64, expected a floating"),
    (None, TypeError, "x: got <class 'NoneType'>, expected a floating tensor"),
    (torch.zeros(3), ValueError, r"x: shape \(3,\), torch.strided, requires_grad=False, exp"),
    (torch.zeros(3, 4, requires_grad=True), ValueError, "requires_grad=True, expected dense"),
])  # fmt: skip
def test_what_cannot_be_read_is_named(given, error, message) -> None:
    with pytest.raises(error, match=message):
        SparseFeatures(given)


def test_few_non_zeros_are_found_at_the_second_sight(monkeypatch) -> None:
    monkeypatch.setattr(sparse_features, "MIN_ENTRIES", 100)
    few, many = torch.zeros(20, 20), torch.ones(20, 20)
    few[0, 0] = 1
    assert sparse_features.maybe_sparse(few) is few
    found = sparse_features.maybe_sparse(few)
    assert type(found) is SparseFeatures and found.dense is few
    assert sparse_features.maybe_sparse(few)._read is found._read
    few[1, 1] = 2  # another content: it is new again
    assert sparse_features.maybe_sparse(few) is few
    assert float(sparse_features.maybe_sparse(few).dense[1, 1]) == 2
    for other in (many, few.long(), few[0], few[:2, :2], few.clone().requires_grad_(), None, "x"):
        for _ in range(3):
            assert sparse_features.maybe_sparse(other) is other
