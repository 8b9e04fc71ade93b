"""Weights that are kept for the backward pass and weights that it computes again."""

from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from graphtheory import Neighborhood, ops
from graphtheory.ops import BucketedBias
from graphtheory.ops.backends.cpu import launch, primitives, regimes, run
from graphtheory.ops.backends.cpu.attention import calls, tiles, tiles_backward
from graphtheory.ops.backends.cpu.launch import _compiled, turns

NODES, HUB, EDGES, HEADS, DIM = 900, 2500, 7000, 3, 5


def graph() -> Neighborhood:
    """A row and a source over several chunks, rows without edges, the rest at random."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(NODES, (2, EDGES), generator=generator)
    edges[1] += edges[1] % 10 == 0  # nobody speaks to these
    edges[1, :HUB], edges[0, HUB : 2 * HUB] = 3, 4
    return Neighborhood.from_edge_index(edges, NODES + 1)


def leaves(dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    nodes = (torch.randn(NODES + 1, HEADS, DIM, generator=generator) for _ in range(3))
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


def recompute(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a large graph: no weights are kept, and rows are cut."""
    monkeypatch.setattr(regimes, "KEPT_WEIGHTS_BELOW", 0)


ERROR = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("kind", ["nothing", "edge", "table", "barred", "large"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("dtype", list(ERROR))
def test_weights_computed_again_are_those_that_are_kept(
    monkeypatch: pytest.MonkeyPatch, kind: str, dropout: float, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(regimes, "WHOLE_ROWS_BELOW", 0)
    kept = step(leaves(dtype), kind, dropout)
    recompute(monkeypatch)
    again = step(leaves(dtype), kind, dropout)
    error = ERROR[dtype] * (300 if kind == "large" else 1)  # as logits are larger
    for a, b in zip(kept, again, strict=True):
        assert a.abs().sum() > 0
        assert (a - b).abs().max() <= error * a.abs().max()


def one_row(sources: int = 6000) -> Neighborhood:
    """A row over several chunks of which everybody is the same node."""
    ends = torch.stack([torch.zeros(sources, dtype=torch.int64), torch.ones(sources).long()])
    return Neighborhood.from_edge_index(ends, num_dst=3, num_src=1)


@pytest.mark.parametrize("size", [59.0, -59.0, 500.0, -500.0])
@pytest.mark.parametrize("value", [1e-20, 1e18])
def test_sums_of_small_and_large_values_stay_in_range(
    monkeypatch: pytest.MonkeyPatch, size: float, value: float
) -> None:
    recompute(monkeypatch)
    query, one, bias = torch.zeros(3, 1, 1), torch.ones(1, 1, 1), torch.full((6000, 1), size)
    out = ops.attention(query, one, one * value, one_row(), bias=bias, backend="numba_csr")
    assert out[1].item() == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("place", [10, 3000, 5999])
def test_nan_of_a_row_otherwise_barred_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    recompute(monkeypatch)
    query, one, bias = torch.zeros(3, 1, 1), torch.ones(1, 1, 1), torch.full((6000, 1), -torch.inf)
    bias[place] = torch.nan
    out = ops.attention(query, one, one, one_row(), bias=bias, backend="numba_csr")
    assert out[1].isnan().all() and (out[::2] == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_do_not_pass_through_rounded_output(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    query, key, value, *_ = leaves(dtype)
    given = [query, key, (value.detach() + 16).requires_grad_()]  # far from zero: m is large

    def gradients(given: list[Tensor]) -> tuple[Tensor, ...]:
        out = ops.attention(*given, graph(), backend="numba_csr")
        up = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out)
        return torch.autograd.grad(out, given, up.to(dtype).to(out.dtype))

    exact = gradients([t.detach().double().requires_grad_() for t in given])
    recompute(monkeypatch)
    for found, true in zip(gradients(given), exact, strict=True):
        assert (found.double() - true).abs().max() < 5 * torch.finfo(dtype).eps * true.abs().max()


def test_the_output_may_be_changed_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    recompute(monkeypatch)
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
    recompute(monkeypatch)
    torch.testing.assert_close(gradient(), kept, rtol=1e-10, atol=1e-12)


def test_nothing_by_edge_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    recompute(monkeypatch)
    query, key, value, *_ = leaves(torch.float32)
    sizes: list[int] = []

    def pack(t: Tensor) -> Tensor:
        sizes.append(t.numel() if t.is_floating_point() else 0)
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        ops.attention(query, key, value, graph(), backend="numba_csr")
    assert max(sizes) == (NODES + 1) * HEADS * DIM


@pytest.mark.parametrize("kind", ["edge", "table"])
def test_computed_again_the_same_bits_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    recompute(monkeypatch)
    monkeypatch.setattr(launch, "WORTH_A_THREAD", 1)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(step(leaves(torch.float32), kind, 0.3))
    for one, three in zip(*found, strict=True):
        assert torch.equal(one, three)


def test_compiled_as_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    recompute(monkeypatch)
    query, key, value, *_ = leaves(torch.float32)
    nb = graph()

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return ops.attention(q, k, v, nb, backend="numba_csr")

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    grads = [
        torch.autograd.grad(f(query, key, value).square().sum(), [query, key, value])
        for f in (run, compiled)
    ]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_compiled_with_gradients_of_a_bias_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    recompute(monkeypatch)
    query, key, value, edge, _ = leaves(torch.float32)
    nb, nodes = graph(), [t.detach() for t in (query, key, value)]

    def run(bias: Tensor) -> Tensor:
        return ops.attention(*nodes, nb, bias=bias, backend="numba_csr")

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    found, wanted = (torch.autograd.grad(f(edge).square().sum(), edge)[0] for f in (compiled, run))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("module", [calls, primitives, run])
def test_imported_while_torch_traces_it_is_the_same(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
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


ROWS, CARRIED = (3, 2, 4), (5, 2, 4)  # [N, H, D] of rows and of what chunks carry
MERGES = [
    (tiles.merge_rows, (ROWS, (3, 2, 2), (5, 2, 2), CARRIED)),
    (
        tiles_backward.merge_queries,
        (ROWS, ROWS, (3, 3, 2), (5, 2, 2), (), CARRIED, (5, 3, 2), ROWS),
    ),
]


@pytest.mark.parametrize(("loop", "shapes"), MERGES)
def test_a_row_that_ends_in_the_last_chunk_is_merged_within_the_arrays(
    loop: Callable[..., None], shapes: tuple[tuple[int, ...], ...]
) -> None:
    rng = np.random.default_rng(0)
    given = [1 + rng.random(shape) if shape else 0.5 for shape in shapes]
    python, machine = ([np.copy(one) if np.ndim(one) else one for one in given] for _ in range(2))
    carried = np.array([-1, 1, 1])
    loop(turns(), 3, carried, *python)  # an index beyond an array is an error in Python alone
    _compiled(loop)(turns(), 3, carried, *machine)
    assert not np.array_equal(python[-1], given[-1])
    for ours, theirs in zip(python, machine, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-12)
