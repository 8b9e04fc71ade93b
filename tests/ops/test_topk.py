"""k-nearest attention against a choice made row by row in plain Python."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, bipartite, cliques, ops
from graphtheory.ops import reference
from graphtheory.ops.backends.cpu.topk import blocks as kernels
from tests.conformance.check import BIASES, GRAPHS, NARROW, Inputs, draw_inputs, rounding

BACKENDS = ops.backend_names(ops.topk_attention)
CSR = BACKENDS[1:]


def chosen(logits: Tensor, nb: Neighborhood, k: int) -> Tensor:
    """Sort every row and head, larger first, then earlier first, and take k; none at -inf."""
    out = torch.zeros_like(logits, dtype=torch.bool)
    for low, high in zip(nb.indptr[:-1].tolist(), nb.indptr[1:].tolist(), strict=True):
        for h in range(logits.size(1)):
            order = sorted(range(low, high), key=lambda e: (-float(logits[e, h]), e))
            out[[e for e in order[:k] if logits[e, h] > -torch.inf], h] = True
    return out


def by_hand(inputs: Inputs, nb: Neighborhood, k: int) -> Tensor:
    """Attention with everything barred that a sort does not choose."""
    logits = inputs.query.size(2) ** -0.5 * reference.edge_dot(inputs.query, inputs.key, nb)
    bias = 0.0 if inputs.bias is None else reference.edge_bias(inputs.bias)
    logits = logits + bias
    barred = torch.where(chosen(logits.detach(), nb, k), logits, -torch.inf)
    return reference.aggregate(reference.edge_softmax(barred, nb), inputs.value, nb)


def run(inputs: Inputs, nb: Neighborhood, k: int, backend: str | None = None, **options) -> Tensor:
    nodes = (inputs.query, inputs.key, inputs.value)
    return ops.topk_attention(*nodes, nb, k, bias=inputs.bias, backend=backend, **options)


def halves(inputs: Inputs) -> Inputs:
    """Few different numbers, whose products are exact in any order: many logits are equal."""

    def few(t: Tensor) -> Tensor:
        return (t.detach() * 2).round().div(2).requires_grad_()

    query, key, bias = few(inputs.query), few(inputs.key), inputs.bias
    if isinstance(bias, ops.BucketedBias):
        bias = ops.BucketedBias(bias.bucket, few(bias.table))
    elif bias is not None:
        bias = few(bias)
    return replace(inputs, query=query, key=key, bias=bias)


def with_gradients(out: Tensor, inputs: Inputs) -> list[Tensor]:
    leaves = list(inputs.leaves().values())
    grads = torch.autograd.grad(out, leaves, inputs.grad, materialize_grads=True)
    return [out.detach(), *grads]


def assert_same(found: list[Tensor], true: list[Tensor], tolerance: float) -> None:
    for a, b in zip(found, true, strict=True):
        size = max(float(b.abs().max()), 1e-2) if b.numel() else 1.0
        allowed = tolerance * size + rounding(true, a.dtype)
        torch.testing.assert_close(a.double(), b.double(), rtol=0, atol=allowed)


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_outputs_and_gradients(graph: str, bias: str) -> None:
    dtype, tolerance = torch.float64, 1e-12
    if graph == NARROW:  # in float32, as everywhere: see `is_slow`
        dtype, tolerance = torch.float32, 1e-4 if bias == "large" else 1e-5
    for n in (1, 7, 20):
        nb = GRAPHS[graph](n)
        inputs = draw_inputs(nb, 2, 5, bias, dtype)
        wide = inputs.to(torch.float64)
        for k in (1, 3, 1000):
            true = with_gradients(by_hand(wide, nb, k), wide)
            for backend in CSR if nb.blocks is None or not nb.num_edges else BACKENDS:
                found = with_gradients(run(inputs, nb, k, backend), inputs)
                assert_same(found, true, tolerance)


@pytest.mark.parametrize("backend", BACKENDS[:-1])  # the definition sums in the type it is given
@pytest.mark.parametrize(  # each size with two types, each type with two sizes
    ("n", "dtype", "tolerance"),
    [
        (63, torch.float32, 1e-5), (257, torch.float32, 1e-5), (63, torch.bfloat16, 2e-2),
        (197, torch.bfloat16, 2e-2), (197, torch.float16, 2e-3), (257, torch.float16, 2e-3),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("poisoned_memory")
def test_narrower_numbers(n: int, dtype: torch.dtype, tolerance: float, backend: str) -> None:
    nb = cliques([n, n])
    inputs = draw_inputs(nb, 2, 16, "buckets", dtype)
    wide = inputs.to(torch.float64)
    true = with_gradients(run(wide, nb, n // 2, "reference"), wide)
    assert_same(with_gradients(run(inputs, nb, n // 2, backend), inputs), true, tolerance)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_equal_logits_the_earlier_edges_stay(backend: str, dtype: torch.dtype) -> None:
    nb = cliques([9, 9])
    value = torch.eye(9, dtype=dtype).repeat(2, 1)[:, None]
    for k in (1, 4, 9):
        flat = torch.zeros(18, 1, 9, dtype=dtype)
        out = ops.topk_attention(flat, flat, value, nb, k, backend=backend)
        torch.testing.assert_close(out[:, 0, :k], torch.full((18, k), 1 / k, dtype=dtype))
        assert out[:, 0, k:].abs().max() == 0 if k < 9 else True
    key = torch.tensor([1.0, 3, 2, 3, 2, 3, 2, 0, 0], dtype=dtype).repeat(2)[:, None, None]
    key = key.expand(18, 1, 9) / 9
    query = torch.ones(18, 1, 9, dtype=dtype)
    out = ops.topk_attention(query, key, value, nb, 5, backend=backend)
    assert (out[0, 0] > 0).tolist() == [False, True, True, True, True, True, False, False, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_row_of_few_numbers(backend: str, n: int, dtype: torch.dtype) -> None:
    """Rows of all orders of three logits, -2, 0 and 0.3, with ties at the top and below."""
    logits = torch.cartesian_prod(*n * [torch.tensor([-2.0, 0, 0.3], dtype=dtype)])
    rows, sets = len(logits), cliques(len(logits) * [n])
    key = logits.view(-1, 1, 1)
    value = torch.eye(n, dtype=dtype).repeat(rows, 1)[:, None]
    query = torch.ones(rows * n, 1, n, dtype=dtype)
    for k in range(1, n):
        out = ops.topk_attention(
            query, key.expand(-1, 1, n), value, sets, k, scale=1 / n, backend=backend
        )
        order = logits.sort(descending=True, stable=True).indices[:, :k]
        true = torch.zeros(rows, n, dtype=torch.bool).scatter(1, order, value=True)
        assert torch.equal(out[::n, 0] > 0, true)


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_is_the_papers_slow_form(backend: str) -> None:
    """For each query its own k keys and values are gathered, and softmax is over k of them."""
    query, key, value = torch.randn(3, 2 * 9, 3, 4, generator=torch.Generator().manual_seed(0))
    found = ops.topk_attention(query, key, value, cliques([9, 9]), 4, backend=backend)
    q, k, v = (t.view(2, 9, 3, 4).transpose(1, 2) for t in (query, key, value))  # [2, H, 9, D]
    own = (q @ k.mT).topk(4).indices[..., None].expand(-1, -1, -1, -1, 4)  # [2, H, 9, 4, D]
    keys, values = (t[:, :, None].expand(-1, -1, 9, -1, -1).gather(3, own) for t in (k, v))
    weights = (0.5 * (keys @ q[..., None])).softmax(3)
    slow = (weights * values).sum(3).transpose(1, 2).flatten(0, 1)
    torch.testing.assert_close(found, slow)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_large_k_is_attention(backend: str) -> None:
    nb = cliques([33] * 3)
    inputs = draw_inputs(nb, 2, 8, "edges", torch.float64)
    nodes = (inputs.query, inputs.key, inputs.value)
    true = with_gradients(ops.attention(*nodes, nb, bias=inputs.bias), inputs)
    for k in (33, 10**6):
        assert_same(with_gradients(run(inputs, nb, k, backend), inputs), true, 1e-12)


@pytest.mark.parametrize("p", [1e-12, 0.4, 0.999])
@pytest.mark.parametrize("bias", ["none", "masked", "buckets"])
def test_dropout_drops_the_same_everywhere(bias: str, p: float) -> None:
    nb = cliques([20, 20])
    inputs = draw_inputs(nb, 3, 5, bias, torch.float64)

    def drawn(backend: str) -> list[Tensor]:
        generator = torch.Generator().manual_seed(5)
        return with_gradients(run(inputs, nb, 7, backend, dropout=p, generator=generator), inputs)

    true = drawn("reference")
    for backend in BACKENDS[:-1]:
        assert_same(drawn(backend), true, 1e-11)
    if p == 0.4:
        assert not torch.allclose(true[0], run(inputs, nb, 7).detach())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_without_neighbors_gives_zeros(backend: str) -> None:
    nb = cliques([4, 4])
    inputs = draw_inputs(nb, 1, 3, "edges", torch.float64)
    barred = inputs.bias.detach().clone()
    barred[:8] = -torch.inf  # the first two rows
    out = ops.topk_attention(
        inputs.query, inputs.key, inputs.value, nb, 2, bias=barred, backend=backend
    )
    grads = torch.autograd.grad(out.sum(), (inputs.query, inputs.value))
    assert out[:2].abs().max() == 0 and grads[0][:2].abs().max() == 0
    assert all(bool(g.isfinite().all()) for g in grads)


def test_the_same_bits_again_and_on_more_threads() -> None:
    nb = cliques([65] * 12)
    inputs = draw_inputs(nb, 3, 24, "buckets")
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 1, 2):
            torch.set_num_threads(threads)
            found.append(with_gradients(run(inputs, nb, 30, "blocks"), inputs))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_nothing_of_the_size_of_the_logits_is_kept_on_blocks() -> None:
    nb = cliques([50, 50])
    inputs = draw_inputs(nb, 2, 4)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        run(inputs, nb, 10)
    assert kept and max(t.numel() for t in kept) <= 100 * 2 * 4


@pytest.mark.parametrize("what", [torch.nan, torch.inf])
def test_a_row_that_is_no_number_leaves_other_sets_alone(what: float) -> None:
    nb = bipartite([3, 3], [20, 20])
    inputs = draw_inputs(nb, 1, 4, "edges")
    bias = inputs.bias.detach().clone()
    bias[25] = what  # of row 1, whose place in a buffer row 4 has next
    bad = replace(inputs, bias=bias.requires_grad_())
    found, true = (with_gradients(run(given, nb, 5, "blocks"), given) for given in (bad, inputs))
    for a, b in zip(found, true, strict=True):
        assert torch.equal(a[len(a) // 2 :], b[len(b) // 2 :])
    assert found[0][1].isnan().all()


def test_a_table_without_a_gradient_changes_no_other() -> None:
    nb = cliques([9, 9])
    inputs = draw_inputs(nb, 2, 3, "buckets")
    fixed = replace(inputs, bias=ops.BucketedBias(inputs.bias.bucket, inputs.bias.table.detach()))
    nodes = [inputs.query, inputs.key, inputs.value]
    found, true = (
        torch.autograd.grad(run(given, nb, 3, "blocks"), nodes, inputs.grad)
        for given in (fixed, inputs)
    )
    assert all(torch.equal(a, b) for a, b in zip(found, true, strict=True))


@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("heads", [2, 4, 5, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_heads_that_share_look_ups(heads, dtype, p, monkeypatch) -> None:
    nb = bipartite([7] * 70, [31] * 70)  # 31 sources are vectors of 16, 8, 4, 2 and 1
    inputs = draw_inputs(nb, heads, 3, "buckets", dtype)
    assert kernels.heads_together(nb.blocks, inputs.query, inputs.bias.table) == 4

    def step(backend: str) -> list[Tensor]:
        generator = torch.Generator().manual_seed(3)
        out = run(inputs, nb, 9, backend, dropout=p, generator=generator)
        return with_gradients(out, inputs)

    found = step("blocks")
    assert_same(found, step("numba_csr"), 1e-12 if dtype == torch.float64 else 1e-5)
    monkeypatch.setattr(kernels, "TOGETHER", 1)
    *nodes, table = step("blocks")
    assert all(torch.equal(a, b) for a, b in zip(found, nodes, strict=False))
    assert_same(found[-1:], [table], 1e-12 if dtype == torch.float64 else 1e-5)


def test_nan_in_one_head_leaves_those_that_share_its_look_ups_alone() -> None:
    nb = cliques([9] * 40)
    # Head 8 comes with what heads 5 to 7 left; its sums would go on to heads 1 to 3 of another set.
    inputs = draw_inputs(nb, 9, 3, "buckets")
    bad = replace(inputs, query=inputs.query.detach().clone().requires_grad_())
    with torch.no_grad():
        bad.query[40, 5] = torch.nan
    found, true = (with_gradients(run(given, nb, 5, "blocks"), given) for given in (bad, inputs))
    others = [0, 1, 2, 3, 4, 6, 7, 8]
    for a, b in zip(found, true, strict=True):
        assert torch.equal(a[:, others], b[:, others]) and a[:, 5].isnan().any()


@pytest.mark.parametrize("graph", ["clique", "random"])
def test_compiles_into_one_graph(graph: str) -> None:
    nb = GRAPHS[graph](7)
    inputs = draw_inputs(nb, 2, 3, "edges")
    compiled = torch.compile(lambda q, x, v, b: ops.topk_attention(q, x, v, nb, 2, bias=b),
                             fullgraph=True)  # fmt: skip
    out = compiled(inputs.query, inputs.key, inputs.value, inputs.bias)
    assert_same(with_gradients(out, inputs), with_gradients(run(inputs, nb, 2), inputs), 1e-6)


def test_bad_input() -> None:
    nb = Neighborhood.from_edge_index(torch.tensor([[0, 1], [1, 1]]), 2)
    x = torch.ones(2, 1, 1)
    with pytest.raises(ValueError, match="k: got 0, expected 1 or more"):
        ops.topk_attention(x, x, x, nb, 0)
    for k in (2.0, True, None):
        with pytest.raises(TypeError, match=r"k: got .* expected an int"):
            ops.topk_attention(x, x, x, nb, k)
    with pytest.raises(ValueError, match="key: shape"):
        ops.topk_attention(x, torch.ones(3, 1, 1), x, nb, 1)
    with pytest.raises(NotImplementedError, match="equal complete blocks"):
        ops.topk_attention(x, x, x, nb, 1, backend="blocks")
    with pytest.raises(ValueError, match="got 'fast', expected one of blocks, numba_csr, torch_"):
        ops.topk_attention(x, x, x, nb, 1, backend="fast")
    bias = ops.BucketedBias(torch.tensor([0, 9], dtype=torch.uint8), torch.zeros(2, 1))
    for backend in ("numba_csr", "torch_csr", "reference"):
        with pytest.raises(IndexError):
            ops.topk_attention(x, x, x, nb, 1, bias=bias, backend=backend)
