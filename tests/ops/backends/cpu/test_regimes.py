"""The three regimes of loops say the same: whole rows, rows that are cut, weights not kept."""

from importlib.util import find_spec, module_from_spec

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from graphtheory import Neighborhood, ops
from graphtheory.ops import BucketedBias
from graphtheory.ops.backends.cpu import launch, memory, primitives
from graphtheory.ops.backends.cpu.attention import calls, tiles
from graphtheory.ops.backends.cpu.launch import _COUNTERS, _compiled
from tests.ops.backends.cpu.test_vector import run_as_python

NODES, HUB, EDGES, HEADS, DIM = 900, 2500, 7000, 3, 5
REGIMES = {  # limits of whole rows and of kept weights
    "whole": (2**62, 2**62), "cut": (0, 2**62), "recomputed": (0, 0),
}  # fmt: skip


def graph() -> Neighborhood:
    """A row and a source over several chunks, rows without edges, the rest at random."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(NODES, (2, EDGES), generator=generator)
    edges[1] += edges[1] % 10 == 0  # no edges point to these
    edges[1, :HUB], edges[0, HUB : 2 * HUB] = 3, 4
    return Neighborhood.from_edge_index(edges, NODES + 1)


def leaves(dtype: torch.dtype, dim: int = DIM) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    nodes = (torch.randn(NODES + 1, HEADS, dim, generator=generator) for _ in range(3))
    biases = (torch.randn(n, HEADS, generator=generator) for n in (EDGES, 4))
    return [t.to(dtype).requires_grad_() for t in (*nodes, *biases)]


def step(given: list[Tensor], kind: str, dropout: float) -> tuple[Tensor, ...]:
    """Output and gradients; "barred" takes a bucket from every row and one row's all edges."""
    nb, (query, key, value, edge, table) = graph(), given
    bucket = (torch.arange(EDGES) % 4).to(torch.uint8)
    barred = torch.zeros_like(table)
    if kind == "barred":
        bucket[nb.indptr[7] : nb.indptr[8]] = 2
        barred[2] = -torch.inf
    if kind == "large":  # sizes of rows are subtracted, and rise on the way
        query = query * 300
    bias = {"edge": edge, "table": BucketedBias(bucket, table)}.get(kind)
    bias = BucketedBias(bucket, table + barred) if kind == "barred" else bias
    out = ops.attention(
        query, key, value, nb, bias=bias, dropout=dropout,
        generator=torch.Generator().manual_seed(2), backend="numba_csr",
    )  # fmt: skip
    up = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    wanted = given[:3] + {"edge": [edge], "table": [table], "barred": [table]}.get(kind, [])
    return out, *torch.autograd.grad(out, wanted, up)


def choose(monkeypatch: pytest.MonkeyPatch, regime: str) -> None:
    whole_below, kept_below = REGIMES[regime]
    monkeypatch.setattr(memory, "WHOLE_ROWS_BELOW", whole_below)
    monkeypatch.setattr(memory, "KEPT_WEIGHTS_BELOW", kept_below)


@pytest.fixture
def recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a large graph: no weights are kept, and rows are cut."""
    choose(monkeypatch, "recomputed")


ERROR = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("kind", ["nothing", "edge", "table", "barred", "large"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize(
    ("dtype", "dim"), [(dtype, DIM) for dtype in ERROR] + [(torch.float64, 16)]
)
def test_every_regime_says_the_same(monkeypatch, kind, dropout, dtype, dim) -> None:
    error = ERROR[dtype] * (300 if kind == "large" else 1)  # as logits are larger
    choose(monkeypatch, "cut")
    kept = step(leaves(dtype, dim), kind, dropout)
    others = {"recomputed": error} | ({"whole": 10 * error} if dtype == torch.float64 else {})
    for regime, bound in others.items():
        choose(monkeypatch, regime)
        for a, b in zip(kept, step(leaves(dtype, dim), kind, dropout), strict=True):
            assert a.abs().sum() > 0
            assert (a - b).abs().max() <= bound * a.abs().max(), regime


@pytest.mark.parametrize("dim", [DIM, 16])
@pytest.mark.parametrize("option", ["nothing", "dst_score", "edge", "dropout"])
def test_both_regimes_of_additive_attention_say_the_same(monkeypatch, option, dim) -> None:
    nb, generator = graph(), torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    value, src_score = drawn(NODES + 1, 2, dim), drawn(NODES + 1, 2)
    given = {"value": value, "src_score": src_score, "dst_score": None}
    if option != "nothing":
        given["dst_score"] = drawn(NODES + 1, 2)
    if option == "edge":
        barred = torch.arange(EDGES)[:, None] % 7 == 0
        given["edge"] = drawn(EDGES, 2).detach().masked_fill(barred, -torch.inf).requires_grad_()
    inputs, p = [t for t in given.values() if t is not None], 0.4 if option == "dropout" else 0.0

    def run(regime: str) -> tuple[Tensor, ...]:
        choose(monkeypatch, regime)
        drawn = {"dropout": p, "generator": torch.Generator().manual_seed(2) if p else None}
        out = ops.additive_attention(**given, neighborhood=nb, **drawn)
        up = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
        return out, *torch.autograd.grad(out, inputs, up)

    for whole, cut in zip(run("whole"), run("cut"), strict=True):
        assert whole.abs().sum() > 0
        torch.testing.assert_close(whole, cut, rtol=1e-12, atol=1e-13)


def test_rows_stay_whole_below_a_number_of_multiply_adds() -> None:
    edges = torch.empty(2**12, dtype=torch.int64)
    value = torch.empty(3, 4, 2**8)  # 2^12 edges x 4 heads x 2^8 features: 2^22
    assert not memory.rows_stay_whole(edges, value) and memory.rows_stay_whole(edges[1:], value)
    assert memory.rows_stay_whole(edges, value[:, 1:])
    assert memory.rows_stay_whole(edges, value[:, :, 1:])
    assert memory.rows_stay_whole(edges[:0], value)


def test_weights_are_kept_below_a_number_of_bytes() -> None:
    for edges, heads, itemsize in ((2**20, 16, 4), (2**19, 16, 8), (2**22, 4, 4)):  # 2^26 bytes
        assert not memory.keeps_weights(edges, heads, itemsize)
        assert memory.keeps_weights(edges - 1, heads, itemsize)
    assert memory.keeps_weights(0, 16, 4)


def attend_one_row(bias: Tensor, value: float = 1.0) -> Tensor:
    """A row over several chunks of which every source is the same node; others without edges."""
    ends = torch.stack([torch.zeros(6000).long(), torch.ones(6000).long()])
    nb = Neighborhood.from_edge_index(ends, num_dst=3, num_src=1)
    query, one = torch.zeros(3, 1, 1), torch.ones(1, 1, 1)
    return ops.attention(query, one, one * value, nb, bias=bias, backend="numba_csr")


@pytest.mark.parametrize("size", [59.0, -59.0, 500.0, -500.0])
@pytest.mark.parametrize("value", [1e-20, 1e18])
def test_sums_of_small_and_large_values_stay_in_range(recomputed, size, value) -> None:
    out = attend_one_row(torch.full((6000, 1), size), value)
    assert out[1].item() == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("place", [10, 3000, 5999])
def test_nan_of_a_row_otherwise_barred_is_not_lost(recomputed: None, place: int) -> None:
    bias = torch.full((6000, 1), -torch.inf)
    bias[place] = torch.nan
    out = attend_one_row(bias)
    assert out[1].isnan().all() and (out[::2] == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_do_not_pass_through_rounded_output(monkeypatch, dtype) -> None:
    query, key, value, *_ = leaves(dtype)
    given = [query, key, (value.detach() + 16).requires_grad_()]  # far from zero: m is large

    def gradients(given: list[Tensor]) -> tuple[Tensor, ...]:
        out = ops.attention(*given, graph(), backend="numba_csr")
        up = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out)
        return torch.autograd.grad(out, given, up.to(dtype).to(out.dtype))

    exact = gradients([t.detach().double().requires_grad_() for t in given])
    choose(monkeypatch, "recomputed")
    for found, true in zip(gradients(given), exact, strict=True):
        assert (found.double() - true).abs().max() < 5 * torch.finfo(dtype).eps * true.abs().max()


def test_the_output_may_be_changed_in_place(recomputed: None) -> None:
    query, key, value, *_ = leaves(torch.float64)
    out = ops.attention(query, key, value, graph(), backend="numba_csr")
    wanted = torch.autograd.grad(out.relu().sum(), query, retain_graph=True)
    assert torch.equal(torch.autograd.grad(out.relu_().sum(), query)[0], wanted[0])


@pytest.mark.parametrize("wanted", ["query", "edge", "table"])
def test_gradients_of_a_part_alone(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    names = ("query", "key", "value", "edge", "table")

    def gradient() -> Tensor:
        given = dict(zip(names, leaves(torch.float64), strict=True))
        for name in given:
            given[name].requires_grad_(name == wanted)
        edge, bucket = given.pop("edge"), (torch.arange(EDGES) % 4).to(torch.uint8)
        table = BucketedBias(bucket, given.pop("table"))
        nodes = list(given.values())
        out = ops.attention(
            *nodes, graph(), bias=table if wanted == "table" else edge, backend="numba_csr"
        )
        leaf = {"edge": edge, "table": table.table}.get(wanted, nodes[0])
        return torch.autograd.grad(out.square().sum(), leaf)[0]

    kept = gradient()
    choose(monkeypatch, "recomputed")
    torch.testing.assert_close(gradient(), kept, rtol=1e-10, atol=1e-12)


def test_nothing_by_edge_is_kept(recomputed: None) -> None:
    query, key, value, *_ = leaves(torch.float32)
    sizes: list[int] = []

    def pack(t: Tensor) -> Tensor:
        sizes.append(t.numel() if t.is_floating_point() else 0)
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        ops.attention(query, key, value, graph(), backend="numba_csr")
    assert max(sizes) == (NODES + 1) * HEADS * DIM


@pytest.mark.parametrize("of_bias", [False, True])
def test_compiled_as_eager(recomputed: None, of_bias: bool) -> None:
    *nodes, edge, _ = leaves(torch.float32)
    nb, given = graph(), [edge] if of_bias else nodes
    nodes, bias = ([t.detach() for t in nodes], edge) if of_bias else (nodes, None)

    def run(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        return ops.attention(q, k, v, nb, bias=bias, backend="numba_csr")

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    grads = [torch.autograd.grad(f(*nodes, bias).square().sum(), given) for f in (run, compiled)]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("module", [calls, primitives, launch])
def test_imported_while_torch_traces_it_is_the_same(module, monkeypatch) -> None:
    """As where `torch.compile` is the first to need it."""
    (query, key, value, *_), nb = leaves(torch.float32), graph()
    given = (nb.indptr, nb.indices, *(t.detach() for t in (query, key, value)))
    wanted = calls.attention(*given, None, None, None, 0.5, 0.0, None)
    spec = find_spec(module.__name__)
    assert spec is not None and spec.loader is not None
    imported = module_from_spec(spec)
    with FakeTensorMode():
        spec.loader.exec_module(imported)
    for name, thing in vars(imported).items():
        if not name.startswith("__"):
            monkeypatch.setattr(module, name, thing)
    found = calls.attention(*given, None, None, None, 0.5, 0.0, None)
    torch.testing.assert_close(found, wanted)


ROWS, PARTIAL = (3, 2, 4), (5, 2, 4)  # [N, H, D] of rows and of partial sums of chunks
MERGES = [
    (tiles.merge_rows, (ROWS, (3, 2, 2), (5, 2, 2), PARTIAL)),
    (tiles.merge_queries, (ROWS, ROWS, (3, 3, 2), (5, 2, 2), (), PARTIAL, (5, 3, 2), ROWS)),
]


@pytest.mark.parametrize(("loop", "shapes"), MERGES)
def test_a_row_that_ends_in_the_last_chunk_is_merged_within_the_arrays(loop, shapes, monkeypatch):
    rng = np.random.default_rng(0)
    given = [1 + rng.random(shape) if shape else 0.5 for shape in shapes]
    python, machine = ([np.copy(one) if np.ndim(one) else one for one in given] for _ in range(2))
    split_row = np.array([-1, 1, 1])
    _compiled(loop)(np.zeros(_COUNTERS, np.int64), 3, split_row, *machine)
    run_as_python(tiles, monkeypatch)
    loop(
        np.zeros(_COUNTERS, np.int64), 3, split_row, *python
    )  # an index beyond an array is an error here alone
    assert not np.array_equal(python[-1], given[-1])
    for ours, theirs in zip(python, machine, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-12)
