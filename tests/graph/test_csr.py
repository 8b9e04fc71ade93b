"""Sorting edges into rows: as torch ops, checked and traced."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood
from graphtheory.graph.csr import (
    _stable_order,
    check_index,
    csr_from_edges,
    csr_transpose,
    distinct_ids,
    row_places,
    sort_by_key,
    take_rows,
)

EDGES = torch.tensor([[2, 0, 1, 2, 3], [0, 2, 0, 0, 3]])


@pytest.mark.parametrize("limit", [60, 10_000_000])
def test_distinct_ids_are_unique_with_or_without_a_table(
    limit: int, generator: torch.Generator
) -> None:
    for count in (0, 1, 57):
        ids = torch.randint(60, (count,), generator=generator) * (limit // 60)
        expected = ids.unique(return_inverse=True)
        assert all(map(torch.equal, distinct_ids(ids, limit), expected))


def test_rows_have_places_in_the_order_asked_for_and_a_stable_sort() -> None:
    ends, places = row_places(torch.tensor([0, 2, 2, 5]), torch.tensor([2, 1, 0, 2]))
    assert ends.tolist() == [0, 3, 3, 5, 8]
    assert places.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    indptr, order = sort_by_key(torch.tensor([3, 1, 3, 1, 3]), 5)
    assert indptr.tolist() == [0, 0, 2, 2, 5, 5]
    assert order.tolist() == [1, 3, 0, 2, 4]


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
