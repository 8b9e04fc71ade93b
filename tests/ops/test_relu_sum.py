"""Sums of ReLU(source + edge) beside their formula; `tests/conformance` has every backend."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheory import Neighborhood, cliques, ops

BACKENDS = ["numba_csr", "torch_csr", "reference"]


def case(seed, num_src, num_dst, num_edges, heads, dim, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(n, (num_edges,), generator=generator) for n in (num_src, num_dst)]
    nb = Neighborhood.from_edge_index(torch.stack(ends), num_src=num_src, num_dst=num_dst)
    tensors = [
        torch.randn(n, heads, dim, generator=generator, dtype=dtype) for n in (num_src, num_edges)
    ]
    return torch.stack(ends), nb, [t.requires_grad_() for t in tensors]


def mapped_case(seed, num_src, num_dst, num_edges, heads, edge_dim, dim, dtype=torch.float64):
    """Features of edges by the dozen, and the matrix that maps them."""
    edges, nb, (value, _) = case(seed, num_src, num_dst, num_edges, heads, dim, dtype)
    generator = torch.Generator().manual_seed(seed + 1)
    shapes = (num_edges, edge_dim), (heads, edge_dim, dim)
    more = [torch.randn(s, generator=generator, dtype=dtype).requires_grad_() for s in shapes]
    return edges, nb, [value, *more]


def mapped(nb, tensors, given_order=False, backend=None):
    value, features, matrix = tensors
    options = {"given_order": given_order, "backend": backend}
    return ops.relu_sum(value, features, nb, edge_matrix=matrix, **options)


def definition(edge_index, num_dst, value, features):
    """The formula as it stands, on the given edges."""
    messages = (value[edge_index[0]] + features).relu()
    return messages.new_zeros(num_dst, *messages.shape[1:]).index_add(0, edge_index[1], messages)


@pytest.mark.parametrize("given_order", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 140)),
    shape=st.tuples(st.integers(1, 3), st.integers(0, 20), st.integers(1, 37)),
    asked=st.sampled_from([(0, 1, 2), (0, 2), (2,), (1,), None]),  # None: no matrix
)
def test_equals_the_definition(backend, given_order, seed, sizes, shape, asked) -> None:
    edge_index, nb, tensors = mapped_case(seed, *sizes, *shape)
    if asked is None:
        *_, tensors = case(seed, *sizes, *shape[::2])
    leaves = [t.requires_grad_(k in (asked or (0, 1))) for k, t in enumerate(tensors)]
    value, features, *matrix = leaves
    product = torch.einsum("ef,hfd->ehd", features, *matrix) if matrix else features
    wanted = definition(edge_index, nb.num_dst, value, product)
    ours = features if given_order else features[nb.perm]
    more = {"edge_matrix": matrix[0]} if matrix else {}
    out = ops.relu_sum(value, ours, nb, given_order=given_order, backend=backend, **more)
    up = torch.arange(out.numel(), dtype=out.dtype).view_as(out).cos()
    leaves = [t for t in leaves if t.requires_grad]
    results = [(sums, *torch.autograd.grad((sums * up).sum(), leaves)) for sums in (out, wanted)]
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_products_and_sums_of_low_precision_are_in_single(dtype) -> None:
    edge_index, nb, tensors = mapped_case(4, 6, 6, 130, 1, 33, 64)
    low = [t.detach().to(dtype).requires_grad_() for t in tensors]
    exact = [t.detach().double().requires_grad_() for t in low]
    product = torch.einsum("ef,hfd->ehd", *exact[1:])
    wanted, found = definition(edge_index, 6, exact[0], product), mapped(nb, low, True)
    wanted.sum().backward()
    found.sum().backward()
    results = [(found, wanted), *((a.grad, b.grad) for a, b in zip(low, exact, strict=True))]
    for mine, other in results:
        assert mine.dtype is dtype
        error = (mine.double() - other).abs().max() / other.abs().max()
        assert error < max(torch.finfo(dtype).eps, 1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_zero_passes_nothing_and_nan_stays_in_its_row(backend) -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    value = torch.tensor([[[0.0]], [[torch.nan]]], requires_grad=True)
    out = ops.relu_sum(value, torch.zeros(2, 1, 1), nb, backend=backend)
    assert out.flatten().isnan().tolist() == [True, False]
    (grad,) = torch.autograd.grad(out[1].sum(), value)
    assert grad[0].item() == 0


def test_under_compile_and_vmap() -> None:
    _, nb, (value, features) = case(5, 5, 4, 12, 2, 3)
    wanted = ops.relu_sum(value, features, nb, given_order=True)
    compiled = torch.compile(
        lambda v, f: ops.relu_sum(v, f, nb, given_order=True), fullgraph=True, backend="eager"
    )
    assert torch.equal(compiled(value, features), wanted)
    many = torch.stack([value, 2 * value]).detach()
    mapped = torch.func.vmap(lambda v: ops.relu_sum(v, features.detach(), nb))(many)
    assert torch.equal(mapped[1], ops.relu_sum(many[1], features.detach(), nb))


def test_wrong_input_is_named() -> None:
    nb, value = cliques([2, 2]), torch.zeros(4, 2, 3)
    features = torch.zeros(nb.num_edges, 2, 3)
    for tensors, error, message in (
        ((value.long(), features), TypeError, "value: dtype torch.int64, expected a floating"),
        ((value[:3], features), ValueError, r"value: shape \(3, 2, 3\), expected \[4, heads"),
        ((value, features.double()), TypeError, "edge_features: dtype torch.float64, expected"),
        ((value, None), TypeError, "edge_features: got NoneType, expected a tensor"),
        ((value, features[:5]), ValueError, r"edge_features: shape \(5, 2, 3\), expected \[8, 2"),
        ((value, features[:, :, :1]), ValueError, r"edge_features: shape \(8, 2, 1\), expected"),
        ((value, features.to("meta")), ValueError, "edge_features: on meta, expected cpu"),
    ):
        with pytest.raises(error, match=message):
            ops.relu_sum(*tensors, nb)
    edges, matrix = torch.zeros(nb.num_edges, 5), torch.zeros(2, 5, 3)
    for tensors, error, message in (
        ((value, edges, matrix.double()), TypeError, "edge_matrix: dtype torch.float64, expected"),
        ((value, edges, 3), TypeError, "edge_matrix: got int, expected a tensor"),
        (
            (value, edges, matrix[0]),
            ValueError,
            r"edge_matrix: shape \(5, 3\), expected \[2, edge_",
        ),
        (
            (value, edges, matrix[:1]),
            ValueError,
            r"edge_matrix: shape \(1, 5, 3\), expected \[2, edge_dim",
        ),
        (
            (value, edges, matrix[:, :4]),
            ValueError,
            r"edge_features: shape \(8, 5\), expected \[8, 4",
        ),
        (
            (value, features, matrix),
            ValueError,
            r"edge_features: shape \(8, 2, 3\), expected \[8, 5",
        ),
        (
            (value, edges[:5], matrix),
            ValueError,
            r"edge_features: shape \(5, 5\), expected \[8, 5\]",
        ),
        ((value, edges.to("meta"), matrix), ValueError, "edge_features: on meta, expected cpu"),
    ):
        with pytest.raises(error, match=message):
            mapped(nb, tensors)
    with pytest.raises(ValueError, match="given_order: got True, but the neighborhood has no perm"):
        ops.relu_sum(value, features, nb, given_order=True)
