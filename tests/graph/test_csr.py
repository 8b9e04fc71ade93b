"""Sorting edges into rows: as torch ops, checked and traced."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from graphtheory import Neighborhood
from graphtheory.graph import csr
from graphtheory.graph.csr import (
    _stable_order,
    check_index,
    csr_from_edges,
    csr_transpose,
    distinct_ids,
    extent,
    row_places,
    rows_of_edges,
    sort_by_key,
    take_rows,
)

EDGES = torch.tensor([[2, 0, 1, 2, 3], [0, 2, 0, 0, 3]])


@pytest.mark.parametrize("limit", [60, 10_000_000])
def test_distinct_ids_are_unique_with_or_without_a_table(limit, generator) -> None:
    for count in (0, 1, 57):
        ids = torch.randint(60, (count,), generator=generator) * (limit // 60)
        expected = ids.unique(return_inverse=True)
        assert all(map(torch.equal, distinct_ids(ids, limit), expected))


def test_rows_have_places_in_the_order_asked_for_and_a_stable_sort() -> None:
    ends, places = row_places(torch.tensor([0, 2, 2, 5]), torch.tensor([2, 1, 0, 2]))
    assert ends.tolist() == [0, 3, 3, 5, 8] and places.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    indptr, order = sort_by_key(torch.tensor([3, 1, 3, 1, 3]), 5)
    assert indptr.tolist() == [0, 0, 2, 2, 5, 5] and order.tolist() == [1, 3, 0, 2, 4]


@pytest.mark.parametrize("num_keys", [1, 2**16, 2**16 + 1, 2**33])
def test_keys_of_any_width_are_sorted(num_keys: int, generator: torch.Generator) -> None:
    few = torch.randint(num_keys, (50,), generator=generator)
    few[0] = num_keys - 1
    key = few[torch.randint(50, (1000,), generator=generator)]
    assert torch.equal(_stable_order(key, num_keys), torch.sort(key, stable=True)[1])
    assert _stable_order(key[:0], 0).tolist() == []


@pytest.mark.parametrize("entry", [-1, 4, 2**40])
def test_the_offender_is_named(entry: int) -> None:
    index = torch.tensor([0, 3, entry, entry])
    with pytest.raises(IndexError, match=rf"source: entry 2 is {entry}, expected .* 0\.\.3"):
        check_index("source", index, 4)


@pytest.mark.parametrize(
    "edges",
    [EDGES, EDGES.int(), EDGES[:, :0], EDGES.repeat_interleave(2, 1)[:, ::2], EDGES.T.clone().T],
    ids=["int64", "int32", "empty", "strided", "transposed"],
)
def test_ops_are_registered_as_torch_demands(edges: Tensor) -> None:
    torch.library.opcheck(csr_from_edges, (edges, 4, 5))
    nb = Neighborhood.from_edge_index(edges, num_src=4, num_dst=5)
    torch.library.opcheck(csr_transpose, (nb.indptr, nb.indices, 4))


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tensors say that they are not in main memory; what is read of them."""
    read: list[str] = []
    for name in ("tolist", "item", "__bool__", "__int__", "nonzero"):
        real = getattr(Tensor, name)

        def noted(self: Tensor, real: Any = real) -> Any:
            read.append(real.__name__)
            return real(self)

        monkeypatch.setattr(Tensor, name, noted)
    monkeypatch.setattr(Tensor, "is_cpu", False)
    monkeypatch.setattr(torch, "bincount", None)
    monkeypatch.setattr(csr, "rank_edges", None)  # of a process that has launched kernels
    return read


@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
@pytest.mark.parametrize("columns", [5, 0])
def test_on_a_device_rows_are_the_same_and_are_read_once(kind, columns, request) -> None:
    edges = EDGES[:, :columns].to(kind)
    here = Neighborhood.from_edge_index(edges, num_src=4, num_dst=5)
    wanted = [*csr_from_edges(edges, 4, 5), *csr_transpose(here.indptr, here.indices, 4)]
    read = request.getfixturevalue("away")
    rows, turned, loops = rows_of_edges(edges, 4, 5, True, 0)
    longest = extent(rows[0]), extent(turned[0])
    assert read == ["tolist"]
    assert (loops, *longest) == ((1, [5, 3], [5, 2]) if columns else (0, [0, 0], [0, 0]))
    found = rows + turned
    assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            nb = Neighborhood.from_edge_index(edges, num_src=4, num_dst=5)
        assert (nb._transpose is not None) == grad
        assert torch.equal(nb.edge_index(), here.edge_index())


@pytest.mark.parametrize("entry", [-1, 4])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.usefixtures("away")
def test_on_a_device_ids_out_of_range_are_refused(side: int, entry: int, grad: bool) -> None:
    edges = EDGES.clone()
    edges[side, 3] = entry
    match = rf"edge_index\[{side}\]: entry 3 is {entry}, expected a node id in 0\.\.3"
    with torch.set_grad_enabled(grad), pytest.raises(IndexError, match=match):
        Neighborhood.from_edge_index(edges, 4)
    with forward_ad.dual_level(), pytest.raises(IndexError, match=match):  # as torch's operator
        Neighborhood.from_edge_index(edges, 4)


def test_ops_trace_through_compilation() -> None:
    @torch.compile(fullgraph=True, dynamic=True, backend="aot_eager")
    def degrees(edges: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
        nb = Neighborhood.from_edge_index(edges, nodes)
        return nb.degree(), nb.transpose().degree()

    for nodes in (4, 6):
        received, sent = degrees(EDGES, nodes)
        assert received.tolist() == [3, 0, 1, 1] + [0] * (nodes - 4)
        assert sent.tolist() == [1, 1, 2, 1] + [0] * (nodes - 4)
    with pytest.raises(IndexError, match="entry 4 is 3"):
        degrees(EDGES, 3)


def test_rows_of_dense_and_of_sparse_tensors(generator: torch.Generator) -> None:
    dense = torch.randn(5, 3, generator=generator) * (torch.arange(15).view(5, 3) % 4 > 0)
    nodes = torch.tensor([4, 0, 0, 3])
    assert torch.equal(take_rows(dense, nodes), dense[nodes])
    sparse = take_rows(dense.to_sparse_csr(), nodes)
    assert sparse.layout == torch.sparse_csr and sparse.shape == (4, 3)
    assert torch.equal(sparse.to_dense(), dense[nodes])
    assert sparse.values().numel() == int((dense[nodes] != 0).sum())
    none = take_rows(dense.to_sparse_csr(), nodes[:0])
    assert none.shape == (0, 3) and none.values().numel() == 0
