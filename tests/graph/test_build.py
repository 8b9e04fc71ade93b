"""Graphs from sizes, lists and other graphs, and with a token each."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphtheory import Neighborhood, bipartite, causal, cliques, neighbor_lists, star
from graphtheory.graph import TOKEN, GraphTokens, Sets, query_stars, union

sizes = st.lists(st.integers(0, 5), max_size=5)


def complete(dst: list[int], src: list[int]) -> torch.Tensor:
    """The definition: one full block after the other."""
    return torch.block_diag(*(torch.ones(a, b) for a, b in zip(dst, src, strict=True)))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=5))
def test_bipartite_is_complete_in_each_block(pairs: list[tuple[int, int]]) -> None:
    dst, src = [a for a, _ in pairs], [b for _, b in pairs]
    nb = bipartite(dst, src)
    assert torch.equal(nb.to_dense(), complete(dst, src))
    Neighborhood(nb.indptr, nb.indices, nb.num_src, sets=nb.sets)  # validates
    equal = len(set(dst)) == len(set(src)) == 1
    assert nb.blocks == ((len(dst), dst[0], src[0]) if equal else None)
    assert nb.sets == Sets(tuple(dst), tuple(src))


@given(sizes)
def test_cliques_and_stars_are_bipartite(counts: list[int]) -> None:
    for ours, theirs in (
        (cliques(counts), bipartite(counts, counts)),
        (star(counts), bipartite([1] * len(counts), counts)),
    ):
        assert torch.equal(ours.indptr, theirs.indptr) and torch.equal(ours.indices, theirs.indices)
        assert (ours.num_src, ours.num_dst) == (theirs.num_src, theirs.num_dst)
        assert (ours.blocks, ours.sets) == (theirs.blocks, theirs.sets)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5))
def test_causal_cliques_look_back(counts: list[int]) -> None:
    nb = causal(counts)
    assert torch.equal(nb.to_dense(), complete(counts, counts).tril())
    assert nb.sets == Sets(tuple(counts), tuple(counts), causal=True) and nb.blocks is None
    Neighborhood(nb.indptr, nb.indices, nb.num_src, sets=nb.sets)  # validates


def test_every_query_aggregates_from_its_own_contexts_and_no_query() -> None:
    rows = query_stars(3, 2)
    assert (rows.num_dst, rows.num_src) == (3, 9)
    found = [rows.indices[rows.indptr[p] : rows.indptr[p + 1]].tolist() for p in range(3)]
    assert found == [[0, 1], [3, 4], [6, 7]]
    assert query_stars(2, 0).num_edges == 0 and query_stars(2, 0).num_src == 2
    with pytest.raises(ValueError, match="length: got -1"):
        query_stars(1, -1)


def test_sizes_of_other_kinds_and_none_at_all() -> None:
    expected = cliques([2, 3]).indices
    for sizes in ((2, 3), torch.tensor([2, 3]), np.array([2, 3]), [np.int32(2), 3]):
        assert torch.equal(cliques(sizes).indices, expected)
    assert cliques(torch.tensor([2, 0, 3])).indices.tolist() == [0, 1, 0, 1, *[2, 3, 4] * 3]
    for nb in (cliques([]), star([]), bipartite([], []), cliques([0]), causal([]), causal([0])):
        assert (nb.num_dst, nb.num_src, nb.num_edges) == (0, 0, 0)
    assert star([0]).indptr.tolist() == [0, 0]


@pytest.mark.parametrize(("call", "words"), [
    (lambda: cliques([2, -1]), r"sizes: got \[2, -1\], expected a list of counts"),
    (lambda: cliques([2.5]), "sizes: got"),
    (lambda: cliques([[2]]), "sizes: got"),
    (lambda: cliques(torch.tensor([2.0])), "sizes: got"),
    (lambda: star([-1]), "sizes: got"),
    (lambda: causal([2, -1]), r"sizes: got \[2, -1\], expected a list of counts"),
    (lambda: bipartite([1], [-1]), "sizes_src: got"),
    (lambda: bipartite([1, 2], [3]), "sizes_src: 1 blocks, expected 2 as many as sizes_dst"),
    (lambda: bipartite([1], [2, 3]), "sizes_src: 2 blocks, expected 1 as many as sizes_dst"),
])  # fmt: skip
def test_what_is_no_size_is_refused(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize(
    ("count", "k", "num_src"), [(5, 3, None), (5, 3, 9), (0, 3, 4), (4, 0, None)]
)
def test_neighbor_lists_are_rows(count, k, num_src, dtype) -> None:
    sources = torch.randint(num_src or max(count, 1), (count, k), dtype=dtype)
    nb = neighbor_lists(sources, num_src)
    edges = torch.stack([sources.flatten().long(), torch.arange(count).repeat_interleave(k)])
    same = Neighborhood.from_edge_index(
        edges, num_src=count if num_src is None else num_src, num_dst=count
    )
    for name in ("indptr", "indices", "num_src", "num_dst"):
        ours, theirs = getattr(nb, name), getattr(same, name)
        assert torch.equal(torch.as_tensor(ours), torch.as_tensor(theirs)), name
    assert torch.equal(nb.transpose().to_dense(), same.to_dense().t())


def test_neighbor_lists_are_copied() -> None:
    sources = torch.tensor([[1, 0], [0, 1]])
    assert neighbor_lists(sources).indices.data_ptr() != sources.data_ptr()


@pytest.mark.parametrize(("sources", "error", "message"), [
    (torch.tensor([[0, -1]]), IndexError, "sources: entry 1 is -1, expected a node id in 0..0"),
    (torch.tensor([0, 1]), ValueError, r"sources: shape \(2,\), expected \[num_dst, k\]"),
    (torch.tensor([[0.0]]), TypeError, "sources: got torch.float32, expected int64 or int32"),
    ([[0]], TypeError, "sources: got list, expected int64 or int32"),
])  # fmt: skip
def test_bad_neighbor_lists(sources: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        neighbor_lists(sources)


def test_unions_keep_weights_and_distances_and_the_union_of_one_is_that_graph() -> None:
    first = Neighborhood.from_edge_index(torch.tensor([[1, 0], [0, 1]]), 2)
    second = Neighborhood(torch.tensor([0, 2]), torch.tensor([2, 0]), 3)
    both = union([first, second])
    assert (both.num_dst, both.num_src) == (3, 5)
    assert both.edge_index().tolist() == [[1, 0, 4, 2], [0, 1, 2, 2]]
    assert both.weight is None and both.distance is None
    heavy = second.replace(weight=torch.tensor([3.0, 4.0]))
    weight = union([first, heavy]).weight
    assert weight is not None and weight.tolist() == [1, 1, 3, 4]
    hops = torch.tensor([1, 2], dtype=torch.uint8)
    assert union([first.replace(distance=hops), second]).distance is None
    narrow = union([first.to_int32(), second.to_int32()])
    assert narrow.indices.dtype == torch.int32
    assert torch.equal(narrow.edge_index(), both.edge_index())
    known = union([first.replace(distance=hops), second.replace(distance=hops)]).distance
    assert known is not None and known.tolist() == [1, 2, 1, 2]
    with pytest.raises(ValueError, match="graphs: none"):
        union([])
    one = Neighborhood(torch.tensor([0, 1, 1]), torch.tensor([2]), 3)
    found = union([one])
    assert found.indptr.tolist() == [0, 1, 1] and found.indices.tolist() == [2]
    assert (found.num_src, found.num_dst) == (3, 2)


def test_ids_of_32_bits_stay_where_the_nodes_and_edges_of_a_union_fit() -> None:
    last = 2**30
    one = Neighborhood(torch.tensor([0, 1]), torch.tensor([last]).int(), last + 1)
    assert union([one, one, one]).indices.tolist() == [last, 2 * last + 1, 3 * last + 2]

    def few(num_src: int) -> Neighborhood:
        indptr, indices = torch.tensor([0, 1, 2]), torch.tensor([0, num_src - 1])
        return Neighborhood(indptr, indices.int(), num_src)

    most = 2**31 - 1  # nodes that ids of 32 bits name
    below = union([few(most - 7), few(7)])
    assert below.indices.dtype == torch.int32
    assert below.num_src == most and below.indices.tolist() == [0, most - 8, most - 7, most - 1]
    beyond = union([few(most - 7), few(9)])
    assert beyond.indices.dtype == torch.int64 and beyond.num_src == most + 2
    assert beyond.indices.tolist() == [0, most - 8, most - 7, most + 1]
    assert beyond.indptr.tolist() == [0, 1, 2, 3, 4]


def test_nodes_and_edges_of_a_whole_union_have_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr("graphtheory.graph.build.fit_int32", lambda *n: asked.append(n) or True)
    union([bipartite([3], [2]), bipartite([1], [4]), bipartite([2], [5])])
    assert asked == [(11, 20, 6)]  # sources, edges, targets


SIZES = [2, 0, 3]


def test_nodes_and_tokens_fill_the_graphs_and_features_move_with_them() -> None:
    for sizes in (SIZES, torch.tensor(SIZES)):
        tokens = GraphTokens(sizes)
        assert tokens.nodes.tolist() == [0, 1, 4, 5, 6] and tokens.tokens.tolist() == [2, 3, 7]
        assert tokens.batch.tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
        assert tokens.cliques().sets.dst == (3, 1, 4)
    tokens, x, token = GraphTokens(SIZES), torch.randn(5, 2), torch.randn(2, requires_grad=True)
    found = tokens.features(x, token)
    assert torch.equal(found[tokens.nodes], x)
    assert torch.equal(found[tokens.tokens], token.expand(3, 2))
    found.sum().backward()
    assert token.grad.tolist() == [3, 3]
    edges = torch.tensor([[0, 3], [1, 4]])
    assert tokens.edge_index(edges).tolist() == [[0, 5], [1, 6]]


def test_distances_and_biases_of_all_pairs() -> None:
    tokens, old = GraphTokens(SIZES), cliques(SIZES)
    hops = torch.arange(old.num_edges).to(torch.uint8)
    hops[3], hops[5] = 254, 255
    new = tokens.cliques().replace(distance=tokens.distance(hops))
    dense = torch.full((8, 8), -1)
    dense[new.targets(), new.indices] = new.distance.long()
    inner = dense[tokens.nodes][:, tokens.nodes]
    wanted = torch.full((5, 5), -1)
    wanted[old.targets(), old.indices] = torch.where(hops == 254, 253, hops).long()
    assert torch.equal(inner, wanted)
    for graph, token in enumerate(tokens.tokens.tolist()):
        mine = tokens.batch == graph
        assert (dense[token, mine] == TOKEN).all() and (dense[mine, token] == TOKEN).all()
        assert (dense[token, ~mine] == -1).all()
    bias = torch.randn(old.num_edges, 2)
    moved = tokens.bias(bias)
    assert torch.equal(moved[new.distance != TOKEN], bias)
    assert not moved[new.distance == TOKEN].any()


def test_wrong_input_is_refused() -> None:
    tokens = GraphTokens(SIZES)
    with pytest.raises(ValueError, match="x: 4 rows, expected 5"):
        tokens.features(torch.zeros(4, 2), torch.zeros(2))
    with pytest.raises(ValueError, match=r"distance: shape \(3,\), expected \[13\]"):
        tokens.distance(torch.zeros(3, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"distance: shape \(14,\), expected \[13\]"):
        tokens.distance(torch.zeros(14, dtype=torch.uint8))
    with pytest.raises(ValueError, match="bias: 3 rows, expected 13"):
        tokens.bias(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="sizes: got"):
        GraphTokens([-1])


def test_distances_with_tokens_are_bytes() -> None:
    tokens = GraphTokens(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"distance: dtype torch.int64, expected torch.uint8"):
        tokens.distance(torch.full((4,), 300))
