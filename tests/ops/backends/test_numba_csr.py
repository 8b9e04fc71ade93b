"""Weights that are kept for the backward pass and weights that it computes again."""

from importlib.util import find_spec, module_from_spec

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from graphtheory import Neighborhood, ops
from graphtheory.ops import BucketedBias
from graphtheory.ops.backends import _launch, numba_csr

NODES, HUB, EDGES, HEADS, DIM = 900, 2500, 7000, 3, 5


def graph() -> Neighborhood:
    """A row and a sender over several chunks, rows without edges, the rest at random."""
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
    monkeypatch.setattr(numba_csr, "_HANDED", 0)


ERROR = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("kind", ["nothing", "edge", "table", "barred", "large"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("dtype", list(ERROR))
def test_weights_computed_again_are_those_that_are_kept(
    monkeypatch: pytest.MonkeyPatch, kind: str, dropout: float, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(numba_csr, "_WHOLE", 0)
    kept = step(leaves(dtype), kind, dropout)
    recompute(monkeypatch)
    again = step(leaves(dtype), kind, dropout)
    error = ERROR[dtype] * (300 if kind == "large" else 1)  # as logits are larger
    for a, b in zip(kept, again, strict=True):
        assert a.abs().sum() > 0
        assert (a - b).abs().max() <= error * a.abs().max()


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
    monkeypatch.setattr(_launch, "_WORTH_A_THREAD", 1)
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


def test_imported_while_torch_traces_it_is_the_same() -> None:
    """As where `torch.compile` is the first to need it."""
    spec = find_spec(numba_csr.__name__)
    assert spec is not None and spec.loader is not None
    anew = module_from_spec(spec)
    with FakeTensorMode():
        spec.loader.exec_module(anew)
    (query, key, value, *_), nb = leaves(torch.float32), graph()
    given = (nb.indptr, nb.indices, *(t.detach() for t in (query, key, value)))
    found = anew.attention(*given, None, None, None, 0.5, 0.0, None)
    torch.testing.assert_close(found, numba_csr.attention(*given, None, None, None, 0.5, 0.0, None))
