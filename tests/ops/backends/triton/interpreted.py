"""Triton's kernels, interpreted on the CPU, against the definition; see `test_kernels.py`.

Bins and chunks are made so small that a graph of some ten nodes meets every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from graphtheory import Neighborhood, cliques, ops
from graphtheory.graph import csr
from graphtheory.ops import reference
from graphtheory.ops.backend import BACKENDS
from graphtheory.ops.backends import triton_csr
from graphtheory.ops.backends.cpu.attention.rows import kept
from graphtheory.ops.backends.triton import bins, launch
from graphtheory.ops.backends.triton import kernels as triton_kernels
from graphtheory.ops.backends.triton.primitives import dropout_factor
from graphtheory.ops.backends.triton.ranks import rank_edges
from graphtheory.ops.call import AttentionCall
from graphtheory.ops.dropout import draw_seed
from graphtheory.ops.look_up import _rows
from tests.conformance import check
from tests.conformance.check import BIASES, draw_inputs, expanded
from tests.conformance.check_edges import FORMS, assert_edges_conform, draw_edges
from tests.conformance.check_edges import results as results_with_edges
from tests.conformance.test_primitives import SHAPES, called, draw, results, run_by
from tests.ops.test_additive import call as call_of_score
from tests.ops.test_additive import case
from tests.ops.test_additive import definition as definition_of_score
from tests.ops.test_additive_attention import PARTS, with_gradients
from tests.ops.test_additive_attention import definition as definition_of_gat
from tests.ops.test_additive_attention import draw as draw_gat
from tests.ops.test_additive_attention import run as run_gat

# The interpreter takes maxima by numpy, which warns where every number is NaN.
pytestmark = pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")

TRITON = BACKENDS["triton_csr"]
TOLERANCE = TRITON.tolerance


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("edges, sources, targets", [(1, 1, 1), (300, 7, 90), (513, 64, 3)])
def test_edges_by_rank_are_sorted_edges(
    edges: int, sources: int, targets: int, dtype: torch.dtype, both: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    ends = [torch.randint(n, (edges,), generator=generator) for n in (sources, targets)]
    edge_index = torch.stack(ends).to(dtype)
    rows, turned, outside, loops = rank_edges(edge_index, sources, targets, both, edges // 3)
    wanted = csr.csr_from_edges(edge_index, sources, targets)
    by_source = csr.csr_transpose(*wanted[:2], sources) if both else ()
    assert all(
        torch.equal(a, b) for a, b in zip([*rows, *turned], [*wanted, *by_source], strict=True)
    )
    assert all(t.data_ptr() % 16 == 0 and t.dtype == torch.int64 for t in [*rows, *turned])
    assert not outside and loops == int((ends[0] == ends[1])[: edges - edges // 3].sum())
    for t in (rows[0], *turned[:1]):
        found, known = bins.plan(t).bins, bins._plan(t.clone()).bins
        assert [(b.count, b.edges) for b in found] == [(b.count, b.edges) for b in known]


@pytest.mark.parametrize("wrong", [-1, 5, 2**40])
@pytest.mark.parametrize("side", [0, 1])
def test_a_rank_of_an_id_out_of_range_lies_within(side: int, wrong: int) -> None:
    edge_index = torch.arange(5).expand(2, 5).clone()
    edge_index[side, 3] = wrong
    rows, turned, outside, _ = rank_edges(edge_index, 5, 5, True, 0)
    assert outside == 1
    assert all(sorted(perm.tolist()) == [*range(5)] for perm in (rows[2], turned[2]))


def attend(
    query: Tensor, key: Tensor, value: Tensor, nb: Neighborhood, *,
    bias: Tensor | ops.BucketedBias | None = None, dropout: float = 0.0,
    generator: torch.Generator | None = None, edges: tuple[ops.EdgeFeatures, ...] = (),
) -> Tensor:  # fmt: skip
    """`ops.attention`, which would refuse tensors on the CPU."""
    seed = draw_seed(generator) if dropout > 0 else None
    scale = max(query.size(2), 1) ** -0.5
    call = AttentionCall(query, key, value, nb, bias, scale, dropout, seed, None, edges)
    return TRITON.run(call)


def graph(in_degrees: list[int], num_src: int, hub: float = 0.2) -> Neighborhood:
    """Rows of these lengths; a share of the edges leaves from source 0, the others from any."""
    generator = torch.Generator().manual_seed(0)
    dst = torch.repeat_interleave(torch.arange(len(in_degrees)), torch.tensor(in_degrees).long())
    src = torch.randint(max(num_src, 1), dst.shape, generator=generator)
    src = torch.where(torch.rand(dst.shape, generator=generator) < hub, 0, src)
    edges = torch.stack([src, dst])
    return Neighborhood.from_edge_index(edges, num_src=num_src, num_dst=len(in_degrees))


GRAPHS = {
    "every bin": lambda: graph([9, 0, 1, 2, 2, 5, 0, 3, 1], 9),  # loops, duplicates, two hubs
    "more sources": lambda: graph([2, 6, 1], 8),
    "more targets": lambda: graph([1, 0, 4, 1, 1, 0, 6], 2),
    "equal rows": lambda: graph([3] * 5, 5),
    "no edges": lambda: graph([0] * 3, 3),
    "no nodes": lambda: graph([], 0),
    "clique": lambda: cliques([4]),
}


@pytest.fixture(autouse=True)
def low_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Chunks of 4 edges; steps of 2 edges of 2 rows."""
    monkeypatch.setattr(bins, "_OF_SMALL", 4)
    monkeypatch.setattr(bins, "_MOST", 2)
    bins.tile.cache_clear()
    yield
    bins.tile.cache_clear()


def test_the_graph_of_every_bin_has_every_bin() -> None:
    nb = GRAPHS["every bin"]()
    for indptr in (nb.indptr, nb.transpose().indptr):
        plan = bins.plan(indptr)
        assert [b.chunk for b in plan.bins] == [4, 0]
    assert (nb.indices == nb.targets()).any()
    assert len(nb.edge_index().unique(dim=1).T) < nb.num_edges


F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
MORE = {
    "four rows": lambda: graph([6, 1, 2, 0], 4),
    "many chunks": lambda: graph([45, 1], 2, hub=0.9),
}
ATTENTION = [  # graph, heads, features of a head, bias, type, dropout
    *(("every bin", 3, 5, b, F32, 0.4 if b in ("none", "buckets") else 0.0) for b in BIASES),
    *(("every bin", 3, 5, b, dtype, 0.4) for b in ("edges", "buckets") for dtype in (F64, BF16)),
    *((name, 2, 3, "masked", F32, 0.4) for name in GRAPHS if name != "every bin"),
    *(("four rows", h, d, "buckets", F32, 0.0) for h, d in ((1, 1), (3, 16), (1, 33), (5, 130))),
    ("many chunks", 1, 3, "large", F32, 0.0),
    ("equal rows", 3, 5, "buckets", F32, 0.4),
]


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize(("name", "heads", "dim", "bias", "dtype", "dropout"), ATTENTION)
def test_attention_conforms(name, heads, dim, bias, dtype, dropout):
    nb = (GRAPHS | MORE)[name]()
    inputs = draw_inputs(nb, heads, dim, bias, dtype)
    check.assert_conforms(attend, nb, inputs, dropout=dropout, tolerance=TOLERANCE)


@pytest.mark.parametrize("shape", [(4, 0, 3), (4, 2, 0)])
def test_attention_without_heads_or_features(shape: tuple[int, int, int]) -> None:
    q, k, v = (torch.zeros(shape, requires_grad=True) for _ in range(3))
    out = attend(q, k, v, graph([6, 1, 2, 0], 4))
    assert out.shape == shape
    out.sum().backward()


def test_attention_of_strided_tensors() -> None:
    nb = GRAPHS["every bin"]()
    check.assert_conforms(
        attend, nb, expanded(draw_inputs(nb, 3, 5, "buckets")), tolerance=TOLERANCE
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("graph_name", ["every bin", "equal rows", "no edges"])
def test_features_of_edges(graph_name: str, form: str) -> None:
    nb = GRAPHS[graph_name]()
    for dtype, bias, p in ((torch.float32, "buckets", 0.4), (torch.bfloat16, "masked", 0.0)):
        assert_edges_conform(attend, nb, draw_edges(nb, 3, 5, form, bias, dtype), TOLERANCE, p)


def test_attention_sorts_rows_once_a_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_rows = []

    def plan(indptr: Tensor) -> bins.Plan:
        sorted_rows.append(indptr)
        return bins._plan(indptr)

    monkeypatch.setattr(bins.plan, "_compute", plan)
    nb = GRAPHS["more sources"]()
    inputs = draw_inputs(nb, 1, 2)
    for _ in range(2):
        check.outputs_and_gradients(attend, nb, inputs)
    assert len(sorted_rows) == 2  # the structure, and its transposed one


def test_attention_takes_32_bit_indices_with_gaps() -> None:
    nb = GRAPHS["every bin"]()
    indptr, indices = (t.int().repeat_interleave(2)[::2] for t in (nb.indptr, nb.indices))
    narrow = Neighborhood(indptr, indices, nb.num_src, validate=False)
    t = nb.transpose()
    narrow._adopt_transpose(t.indptr.int(), t.indices.int(), t.perm.int())
    inputs = draw_inputs(nb, 2, 3)
    wide, found = (check.outputs_and_gradients(attend, g, inputs, 0.3) for g in (nb, narrow))
    assert all(torch.equal(wide[name], found[name]) for name in wide)


def test_attention_with_a_bucket_beyond_the_table_is_not_a_number() -> None:
    # The check before the launch raises; a recorded CUDA graph runs the kernel alone.
    nb = graph([2, 1], 2)
    x, table = torch.zeros(2, 1, 1), torch.zeros(3, 1)
    bucket = torch.tensor([0, 3, 2], dtype=torch.uint8)
    args = (nb.indptr, nb.indices, x, x, x, None, bucket, table, 1.0, 0.0, None)
    out, _ = triton_kernels.attention(*args)
    assert out.isnan().flatten().tolist() == [True, False]


def test_sums_by_bucket_in_many_shares() -> None:
    generator = torch.Generator().manual_seed(0)
    bucket = torch.randint(40, (997,), generator=generator).to(torch.uint8)
    values = torch.randn(997, 3, generator=generator).double()
    wanted = torch.zeros(40, 3).double().index_add(0, bucket.long(), values)
    torch.testing.assert_close(launch.by_bucket(bucket, values, 40), wanted)


def test_attention_is_a_proper_torch_op() -> None:
    nb = GRAPHS["more sources"]()
    inputs, t = draw_inputs(nb, 2, 3, "buckets"), nb.transpose()
    nodes = (inputs.query, inputs.key, inputs.value)
    parts = [nb.indptr, nb.indices, t.indptr, t.indices, t.perm]
    bucket, table = inputs.bias
    options = (0.5, 0.25, "triton_csr")
    forward = torch.ops.graphtheory.attention
    given = (*nodes, None, table, bucket, torch.tensor(5), parts, *options)
    torch.library.opcheck(forward, given, test_utils=("test_schema", "test_faketensor"))
    out, stats = forward(*given)
    torch.library.opcheck(
        torch.ops.graphtheory.attention_backward,
        (inputs.grad, stats, out.detach(), "11111", *(x.detach() for x in nodes), None,
         table.detach(), bucket, torch.tensor(5), parts, *options),
        test_utils=("test_schema", "test_faketensor"),
    )  # fmt: skip


@triton.jit
def factors(out, first, seed, threshold: tl.int64, kept: tl.float64, HEADS: tl.constexpr):
    """Factors of 8 edges, the first of which is edge `first`."""
    edge, head = (tl.load(first) + tl.arange(0, 8))[None, :], tl.arange(0, HEADS)
    factor = dropout_factor(edge, head, seed, threshold, kept, HEADS, tl.float32)
    tl.store(out + tl.arange(0, 8)[None, :, None] * HEADS + head[None, None, :], factor)


@pytest.mark.parametrize("seed", [0, 2**31 - 2])
@pytest.mark.parametrize("p", [1e-12, 0.5, 0.999])
@pytest.mark.parametrize("first", [0, 2**29 - 4, 2**31 - 4, 2**34 + 3])
def test_dropout_is_that_of_the_other_backends(p: float, seed: int, first: int) -> None:
    heads, out = 8, torch.empty(8, 8)
    at, drawn = torch.tensor(first), torch.tensor(seed)
    factors[(1,)](out, at, drawn, int(p * 2**32), 1 / (1 - p), HEADS=heads)
    counters = range(first * heads, (first + 8) * heads)
    assert (out > 0).flatten().tolist() == [kept(c, p, seed) for c in counters]
    assert out[out > 0].sub(1 / (1 - p)).abs().le(1e-6 / (1 - p)).all()


HERE = [name for name in SHAPES if name.partition(" by ")[2] not in ("max", "min")]  # no kernel


@pytest.mark.parametrize(("heads", "dim", "ordered"), [(4, 64, True), (1, 5, False)])
def test_rows_from_the_longest_on_have_the_same_bits(heads, dim, ordered, monkeypatch) -> None:
    monkeypatch.setattr(bins, "_OF_SMALL", 16)
    monkeypatch.setattr(bins, "_MOST", 64)
    found, begun = [], []

    def noted(kernel: object, grid: object, like: Tensor, rows: Tensor | None, *args: object,
              **constants: object) -> None:  # fmt: skip
        begun.append(rows is not None)
        real(kernel, grid, like, rows, *args, **constants)

    real = launch.launch
    monkeypatch.setattr(launch, "launch", noted)
    for long in (16, 3):  # of no row, and of some
        monkeypatch.setattr(bins, "CHUNK", long)
        bins.tile.cache_clear()
        nb = graph([1, 4, 12, 0, 7, 9, 3], 7)
        found.append(check.outputs_and_gradients(attend, nb, draw_inputs(nb, heads, dim)))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert begun == [False] * 3 + [ordered] * 3


@pytest.fixture
def primitives(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The primitives and the additive score on these kernels, which refuse tensors on a CPU."""
    monkeypatch.setattr(triton_csr, "triton_objections", lambda device: [])
    yield


@pytest.mark.usefixtures("primitives", "poisoned_memory")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", HERE)
def test_primitives(name: str, dtype: torch.dtype) -> None:
    for graph in ("every bin", "more sources", "equal rows", "no edges"):
        nb = GRAPHS[graph]()
        leaves = draw(name, nb, 7, dtype)
        exact = [t.detach().double().requires_grad_() for t in leaves]
        true = results(called(name, reference), exact, nb)
        plain = results(called(name, reference), leaves, nb)
        found = results(run_by("triton_csr", name), leaves, nb)
        check.assert_within(found, plain, true, TOLERANCE)


@pytest.mark.usefixtures("primitives")
def test_softmax_of_a_row_of_minus_infinity() -> None:
    nb = graph([2, 2], 2)
    logits = torch.tensor([[-torch.inf], [-torch.inf], [-torch.inf], [3e38]], requires_grad=True)
    weights = ops.edge_softmax(logits, nb, backend="triton_csr")
    assert weights.flatten().tolist() == [0, 0, 0, 1]
    (grad,) = torch.autograd.grad(weights, logits, torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    assert grad.eq(0).all()


@pytest.mark.usefixtures("primitives", "poisoned_memory")
@pytest.mark.parametrize(
    ("name", "edge_dim"), [(name, 3) for name in GRAPHS] + [("every bin", k) for k in (0, 1, 17)]
)
def test_additive_score(name: str, edge_dim: int) -> None:
    nb = GRAPHS[name]()
    for heads, dim, dtype in ((2, 5, F64), (5, 66, F32), (1, 3, BF16)):
        _, tensors = case(1, nb.num_src, nb.num_dst, nb.num_edges, heads, dim, edge_dim, dtype)
        exact = [t.detach().double().requires_grad_() for t in tensors]
        for asked in ([0, 1, 2, 3, 4], [0, 1, 2, 4]) if edge_dim else ([0, 1, 2],):
            for k, t in enumerate(tensors):
                t.requires_grad_(k in asked)
            plain, true = (
                with_gradients(definition_of_score(nb, *given, 0.3), [given[k] for k in asked])
                for given in (tensors, exact)
            )
            score = call_of_score(nb, tensors, 0.3, "triton_csr")
            found = with_gradients(score, [tensors[k] for k in asked])
            check.assert_within(found, plain, true, TOLERANCE)


@pytest.mark.usefixtures("primitives", "poisoned_memory")
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", GRAPHS)
def test_additive_attention(name: str, parts: str) -> None:
    nb, seed = GRAPHS[name](), draw_seed(torch.Generator().manual_seed(3))
    for heads, dim, dtype, slope, p in (
        (1, 1, F64, 0.2, 0.0),
        (3, 5, F64, 0.0, 0.4),
        (2, 7, F32, 0.2, 0.0),
        (2, 4, BF16, 0.2, 0.4),
    ):
        leaves = draw_gat(nb, heads, dim, parts, dtype)
        exact = [t.detach().double().requires_grad_() for t in leaves]
        true, plain = (
            with_gradients(definition_of_gat(given, nb, slope, p, int(seed)), given)
            for given in (exact, leaves)
        )
        options = {"negative_slope": slope, "dropout": p, "backend": "triton_csr"}
        out = run_gat(leaves, nb, generator=torch.Generator().manual_seed(3), **options)
        found = with_gradients(out, leaves)
        check.assert_within(found, plain, true, TOLERANCE)


@pytest.mark.usefixtures("primitives")
def test_second_derivatives_of_additive_attention() -> None:
    nb = GRAPHS["more sources"]()
    leaves = draw_gat(nb, 2, 3, "edge", torch.float64)

    def second(backend: str) -> list[Tensor]:
        out = run_gat(leaves, nb, backend=backend)
        first = torch.autograd.grad(out.sin().sum(), leaves, create_graph=True)
        return list(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))

    torch.testing.assert_close(second("triton_csr"), second("reference"))


@pytest.mark.usefixtures("primitives")
@pytest.mark.parametrize("name", ["attention", "features of edges", "score", *HERE])
def test_twice_gives_the_same_bits(name: str) -> None:
    nb = GRAPHS["every bin"]()

    def found() -> list[Tensor]:
        if name == "attention":
            inputs = draw_inputs(nb, 3, 5, "buckets")
            return list(check.outputs_and_gradients(attend, nb, inputs, 0.3).values())
        if name == "features of edges":
            given = draw_edges(nb, 2, 3, "both", "edges", torch.float32)
            return list(results_with_edges(attend, nb, given, 0.3).values())
        if name == "score":
            _, tensors = case(1, nb.num_src, nb.num_dst, nb.num_edges, 3, 5, 4, torch.float32)
            return with_gradients(call_of_score(nb, tensors, 0.3, "triton_csr"), tensors)
        return results(run_by("triton_csr", name), draw(name, nb, 7, torch.float32), nb)

    assert all(torch.equal(a, b) for a, b in zip(found(), found(), strict=True))


@pytest.mark.parametrize("shape", [(5, 3), (40, 9)])
def test_sums_by_row_are_the_gradient_of_a_table(shape: tuple[int, int]) -> None:
    row = torch.randint(shape[0], (300,), dtype=torch.uint8)
    made = torch.randn(shape), torch.randn(300, shape[1])

    def gradients(rows: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
        table, grad = (t.clone().requires_grad_() for t in made)
        (of_table,) = torch.autograd.grad(rows(table, row), table, grad, create_graph=True)
        return [of_table, *torch.autograd.grad(of_table.square().sum(), grad)]

    wanted = gradients(lambda table, row: table[row.long()])
    torch.testing.assert_close(gradients(_rows), wanted)
