"""Weights that are kept for the backward pass and weights that it computes again."""

from importlib.util import find_spec, module_from_spec

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from graphtheory import Neighborhood, ops
from graphtheory.ops import BucketedBias
from graphtheory.ops.backends import numba_csr

NODES, EDGES, HEADS, DIM = 60, 900, 6, 5


def graph() -> Neighborhood:
    """A hub, and edges at random."""
    edges = torch.randint(NODES, (2, EDGES - NODES), generator=torch.Generator().manual_seed(0))
    hub = torch.stack([torch.arange(NODES), torch.full((NODES,), 3)])
    return Neighborhood.from_edge_index(torch.cat([edges, hub], 1), NODES)


def leaves(dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    nodes = (torch.randn(NODES, HEADS, DIM, generator=generator) for _ in range(3))
    table = torch.randn(4, HEADS, generator=generator)
    return [t.to(dtype).requires_grad_() for t in (*nodes, table)]


def step(given: list[Tensor], with_table: bool, dropout: float) -> tuple[Tensor, ...]:
    nb, (*nodes, table) = graph(), given
    bucket = (torch.arange(EDGES) % 4).to(torch.uint8)
    out = ops.attention(
        *nodes, nb, bias=BucketedBias(bucket, table) if with_table else None, dropout=dropout,
        generator=torch.Generator().manual_seed(2), backend="numba_csr",
    )  # fmt: skip
    up = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    wanted = given if with_table else nodes
    return out, *torch.autograd.grad(out, wanted, up)


def recompute(monkeypatch: pytest.MonkeyPatch, heads: int, itemsize: int) -> None:
    """As for a large graph, so many heads at once; rows are cut."""
    monkeypatch.setattr(numba_csr, "_HANDED", 0)
    monkeypatch.setattr(numba_csr, "_WHOLE", 0)
    monkeypatch.setattr(numba_csr, "_AT_ONCE", heads * EDGES * itemsize)


@pytest.mark.parametrize("heads", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("with_table", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weights_computed_again_are_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, heads: int, with_table: bool, dropout: float,
    dtype: torch.dtype,
) -> None:  # fmt: skip
    monkeypatch.setattr(numba_csr, "_WHOLE", 0)
    kept = step(leaves(dtype), with_table, dropout)
    recompute(monkeypatch, heads, 8 if dtype == torch.float64 else 4)
    again = step(leaves(dtype), with_table, dropout)
    for a, b in zip(kept[:4], again[:4], strict=True):
        assert a.abs().sum() > 0
        assert torch.equal(a, b)
    if with_table:  # its parts are added up in another order
        torch.testing.assert_close(kept[4], again[4])


def test_only_a_bias_of_each_edge_keeps_many_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    recompute(monkeypatch, 2, 4)
    query, key, value, _ = leaves(torch.float32)

    def saved(bias: Tensor | None) -> int:
        sizes: list[int] = []

        def pack(t: Tensor) -> Tensor:
            sizes.append(t.numel())
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            ops.attention(query, key, value, graph(), bias=bias, backend="numba_csr")
        return max(sizes)

    assert saved(None) == NODES * HEADS * DIM  # of the nodes alone
    assert saved(torch.zeros(EDGES, HEADS)) == EDGES * HEADS


@pytest.mark.parametrize(
    ("num_heads", "limit", "at_once"), [(8, 3, 2), (8, 8, 8), (6, 4, 3), (7, 6, 1), (1, 1, 1)]
)
def test_heads_at_once_divide_all(
    monkeypatch: pytest.MonkeyPatch, num_heads: int, limit: int, at_once: int
) -> None:
    monkeypatch.setattr(numba_csr, "_AT_ONCE", limit * 10 * 4)
    assert numba_csr._heads_at_once(10, num_heads, 4) == at_once


def test_compiled_as_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    recompute(monkeypatch, 2, 4)
    query, key, value, _ = leaves(torch.float32)
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
    (query, key, value, _), nb = leaves(torch.float32), graph()
    given = (nb.indptr, nb.indices, *(t.detach() for t in (query, key, value)))
    found = anew.attention(*given, None, None, None, 0.5, 0.0, None)
    torch.testing.assert_close(found, numba_csr.attention(*given, None, None, None, 0.5, 0.0, None))
