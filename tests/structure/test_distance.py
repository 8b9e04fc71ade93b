"""Distances and paths against networkx and scipy, and at every border of the definition."""

import multiprocessing

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheory import Neighborhood, bipartite
from graphtheory.graph import memory
from graphtheory.structure import (
    UNREACHABLE,
    _search,
    hop_ball,
    shortest_path_distance,
    shortest_path_edges,
)
from tests.patterns.laws import GRAPHS


def graph_of(edges, num_nodes, *, undirected=False):
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    if undirected:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    return Neighborhood.from_edge_index(edge_index, num_nodes=num_nodes)


def random_graph(num_nodes, num_edges, seed, *, undirected=False):
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(num_nodes, (num_edges, 2), generator=generator)
    return graph_of(edges.tolist(), num_nodes, undirected=undirected)


def networkx_table(graph, cutoff):
    """D[n, s] by networkx, from the edge list alone."""
    theirs = nx.DiGraph()
    theirs.add_nodes_from(range(graph.num_dst))
    theirs.add_edges_from(graph.edge_index().t().tolist())
    table = torch.full((graph.num_dst, graph.num_dst), UNREACHABLE, dtype=torch.uint8)
    for source, lengths in nx.all_pairs_shortest_path_length(theirs):
        for target, hops in lengths.items():
            table[target, source] = min(hops, cutoff)
    return table


def scipy_table(graph, cutoff):
    sources, targets = graph.edge_index().numpy()
    size = (graph.num_dst, graph.num_dst)
    matrix = sp.csr_matrix((np.ones(len(sources)), (sources, targets)), shape=size)
    hops = sp.csgraph.shortest_path(matrix, unweighted=True).T
    table = np.where(np.isinf(hops), UNREACHABLE, np.minimum(hops, cutoff))
    return torch.from_numpy(table.astype(np.uint8))


def all_pairs_of(num_nodes):
    targets, sources = torch.meshgrid(
        torch.arange(num_nodes), torch.arange(num_nodes), indexing="ij"
    )
    return torch.stack([sources.flatten(), targets.flatten()])


edge_lists = st.integers(1, 9).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=3 * n),
        st.booleans(),
        st.integers(1, 6),
    )
)


@given(edge_lists)
@settings(max_examples=150, deadline=None)
def test_every_route_agrees_with_networkx_on_any_small_graph(drawn):
    num_nodes, edges, undirected, cutoff = drawn  # isolated nodes, self-loops, duplicates included
    graph = graph_of(edges, num_nodes, undirected=undirected)
    expected = networkx_table(graph, cutoff)
    assert torch.equal(shortest_path_distance(graph, cutoff=cutoff), expected)
    flat = shortest_path_distance(graph, cutoff=cutoff, pairs=all_pairs_of(num_nodes))
    assert torch.equal(flat.view(num_nodes, num_nodes), expected)
    sources = torch.arange(num_nodes).flip(0)
    columns = shortest_path_distance(graph, cutoff=cutoff, sources=sources)
    assert torch.equal(columns, expected[:, sources])
    exact = networkx_table(graph, 254)
    ball, distance = hop_ball(graph, cutoff)
    targets, sources = (exact <= cutoff).nonzero(as_tuple=True)
    assert torch.equal(ball.edge_index(), torch.stack([sources, targets]))
    assert torch.equal(distance, exact[targets, sources])


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("cutoff", [1, 2, 5, 20, 254])
def test_more_sources_than_one_batch_agree_with_scipy(undirected, cutoff):
    graph = random_graph(1100, 1300, seed=cutoff, undirected=undirected)
    expected = scipy_table(graph, cutoff)
    assert (expected == UNREACHABLE).any() and (expected == min(cutoff, 5)).any()
    assert torch.equal(shortest_path_distance(graph, cutoff=cutoff), expected)
    pairs = torch.randint(1100, (2, 9000), generator=torch.Generator().manual_seed(1))
    found = shortest_path_distance(graph, cutoff=cutoff, pairs=pairs)
    assert torch.equal(found, expected[pairs[1], pairs[0]])


def test_orientation_is_source_to_target_and_sources_may_repeat():
    graph = graph_of([(0, 1), (1, 2)], 3)
    table = shortest_path_distance(graph)
    assert table[2, 0] == 2 and table[0, 2] == UNREACHABLE
    assert shortest_path_distance(graph, sources=torch.tensor([0])).tolist() == [[0], [1], [2]]
    assert shortest_path_distance(graph, pairs=torch.tensor([[0, 2], [2, 0]])).tolist() == [2, 255]
    assert hop_ball(graph, 1)[0].edge_index().tolist() == [[0, 0, 1, 1, 2], [0, 1, 1, 2, 2]]
    graph = random_graph(600, 900, seed=8, undirected=True)
    sources = torch.randint(600, (1030,), generator=torch.Generator().manual_seed(4))
    expected = shortest_path_distance(graph)[:, sources]
    assert torch.equal(shortest_path_distance(graph, sources=sources), expected)
    assert torch.equal(shortest_path_distance(graph, sources=sources.int()), expected)
    strided = torch.stack([sources, sources], dim=1)[:, 0]
    assert torch.equal(shortest_path_distance(graph, sources=strided), expected)


def long_path(length):
    return graph_of([(i, i + 1) for i in range(length)], length + 2)  # one isolated node


@pytest.mark.parametrize("cutoff", [1, 7, 254])
def test_far_is_never_mistaken_for_unreachable(cutoff):
    graph = long_path(700)
    hops = torch.arange(702)[:, None] - torch.arange(702)
    expected = hops.clamp(max=cutoff)
    expected[hops < 0] = UNREACHABLE
    expected[701, :701] = UNREACHABLE
    expected[701, 701] = 0
    assert torch.equal(shortest_path_distance(graph, cutoff=cutoff).long(), expected)
    pairs = torch.tensor([[0, 700, 0, 701, 3], [700, 0, 701, 5, 3]])
    found = shortest_path_distance(graph, cutoff=cutoff, pairs=pairs)
    assert found.tolist() == [cutoff, 255, 255, 255, 0]


def test_reachability_crosses_cycles_that_feed_each_other():
    # Two 30-cycles, a path of 40 from the first to the second, and a third cycle on its own.
    first = [(i, (i + 1) % 30) for i in range(30)]
    second = [(30 + i, 30 + (i + 1) % 30) for i in range(30)]
    third = [(60 + i, 60 + (i + 1) % 30) for i in range(30)]
    bridge = [(7, 90), *((90 + i, 91 + i) for i in range(39)), (129, 45)]
    graph = graph_of(first + second + third + bridge, 130)
    for cutoff in (3, 35, 100):
        expected = networkx_table(graph, cutoff)
        assert torch.equal(shortest_path_distance(graph, cutoff=cutoff), expected)
        found = shortest_path_distance(graph, cutoff=cutoff, pairs=all_pairs_of(130))
        assert torch.equal(found.view(130, 130), expected)


def test_names_weights_and_duplicates_change_nothing():
    graph = random_graph(80, 150, seed=3)
    perm = torch.randperm(80, generator=torch.Generator().manual_seed(0))
    moved = Neighborhood.from_edge_index(perm[graph.edge_index()], num_nodes=80)
    table = shortest_path_distance(moved)
    assert torch.equal(table[perm][:, perm], shortest_path_distance(graph))
    edges = torch.tensor([[0, 0, 1, 1], [1, 1, 2, 1]])
    graph = Neighborhood.from_edge_index(
        edges, num_nodes=3, weight=torch.tensor([9.0, 1.0, 5.0, 2.0])
    )
    assert torch.equal(
        shortest_path_distance(graph), shortest_path_distance(graph_of([(0, 1), (1, 2)], 3))
    )


def test_thread_count_does_not_change_a_bit(two_threads):
    graph = random_graph(1500, 4000, seed=5)
    pairs = torch.randint(1500, (2, 20000), generator=torch.Generator().manual_seed(2))
    expected = _everything(graph, pairs)
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found = _everything(graph, pairs)
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def _everything(graph, pairs):
    ball, distance = hop_ball(graph, 3)
    table = shortest_path_distance(graph)
    return [table, shortest_path_distance(graph, pairs=pairs), ball.indices, distance]


def _in_child(graph, pairs):
    torch.set_num_threads(2)
    return [result.numpy() for result in _everything(graph, pairs)]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_may_use_threads_after_its_parent_did(two_threads):
    graph = random_graph(1500, 4000, seed=6)
    pairs = torch.randint(1500, (2, 9000), generator=torch.Generator().manual_seed(2))
    ours = _everything(graph, pairs)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        theirs = pool.apply_async(_in_child, (graph, pairs)).get(timeout=60)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, torch.from_numpy(b))


@pytest.mark.parametrize("num_nodes", [0, 1, 5])
def test_graphs_without_edges(num_nodes):
    graph = graph_of([], num_nodes)
    table = shortest_path_distance(graph)
    assert table.dtype == torch.uint8 and table.shape == (num_nodes, num_nodes)
    expected = torch.full((num_nodes, num_nodes), UNREACHABLE, dtype=torch.uint8)
    assert torch.equal(table, expected.fill_diagonal_(0))
    ball, distance = hop_ball(graph, 4)
    assert ball.num_edges == num_nodes and not distance.any()
    assert shortest_path_distance(graph, sources=torch.tensor([])).shape == (num_nodes, 0)
    empty = torch.empty(2, 0, dtype=torch.int64)
    assert shortest_path_distance(graph, pairs=empty).shape == (0,)


@pytest.mark.parametrize(("radius", "inner"), [(0, 0), (3, 0), (3, 1), (3, 3), (6, 2)])
def test_rings_are_slices_of_the_table(radius, inner):
    graph = random_graph(300, 500, seed=11)
    table = shortest_path_distance(graph, cutoff=254)
    ring, distance = hop_ball(graph, radius, inner=inner)
    targets, sources = ((table >= inner) & (table <= radius)).nonzero(as_tuple=True)
    assert torch.equal(ring.edge_index(), torch.stack([sources, targets]))
    assert torch.equal(distance, table[targets, sources]) and torch.equal(ring.distance, distance)


@pytest.mark.parametrize("inner", [0, 2])
def test_balls_of_some_centers_are_rows_of_all(inner):
    graph, centers = random_graph(300, 900, seed=12), torch.tensor([250, 3, 77])
    whole, some = (
        hop_ball(graph, 3, inner=inner)[0],
        hop_ball(graph, 3, inner=inner, targets=centers),
    )
    expected = whole.rows(centers)
    assert torch.equal(some[0].indptr, expected.indptr)
    assert torch.equal(some[0].indices, expected.indices)
    assert torch.equal(some[1], expected.distance)
    with pytest.raises(IndexError, match="targets"):
        hop_ball(graph, 3, targets=torch.tensor([300]))


def test_graphs_too_large_for_narrow_ids_take_wide_ones(monkeypatch):
    graph = random_graph(300, 700, seed=12)
    pairs = all_pairs_of(300)
    ball, expected = hop_ball(graph, 3), shortest_path_distance(graph, pairs=pairs)
    assert _search.rows_of(graph)[1].dtype == np.int32
    monkeypatch.setattr(_search, "fit_int32", lambda *counts: max(counts) < 700)
    graph = random_graph(300, 700, seed=12)  # narrow ids are kept with their graph
    assert _search.rows_of(graph)[1].dtype == np.int64
    wide = hop_ball(graph, 3)
    assert torch.equal(wide[0].indices, ball[0].indices) and torch.equal(wide[1], ball[1])
    assert torch.equal(shortest_path_distance(graph, pairs=pairs), expected)


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"cutoff": 0}, ValueError, r"cutoff: got 0, expected hops in 1\.\.254"),
    ({"cutoff": 255}, ValueError, r"cutoff: got 255, expected hops in 1\.\.254"),
    ({"cutoff": True}, ValueError, "cutoff: got True"),
    ({"cutoff": 2.5}, TypeError, r"cutoff: got 2\.5, expected a whole number"),
    ({"sources": torch.tensor([0.0])}, TypeError, r"sources: dtype torch\.float32"),
    ({"sources": torch.tensor([[0]])}, ValueError, r"sources: shape \(1, 1\).*\[num_sources\]"),
    ({"sources": torch.tensor([0, 3])}, IndexError, "sources: entry 1 is 3"),
    ({"sources": torch.tensor([-1])}, IndexError, "sources: entry 0 is -1"),
    ({"pairs": torch.tensor([[0, 1, 2]])}, ValueError, r"pairs: shape \(1, 3\).*2, num_pairs"),
    ({"pairs": torch.tensor([[0], [7]])}, IndexError, "pairs: entry 1 is 7"),
    ({"pairs": torch.tensor([[0.0], [1.0]])}, TypeError, "pairs: dtype"),
    ({"sources": [0], "pairs": torch.tensor([[0], [1]])}, ValueError, "one of them"),
])  # fmt: skip
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        shortest_path_distance(graph_of([(0, 1)], 3), **arguments)


def test_bad_graphs_and_radii_are_named():
    graph = graph_of([(0, 1)], 3)
    with pytest.raises(TypeError, match="graph: got Tensor, expected a Neighborhood"):
        shortest_path_distance(graph.edge_index())
    with pytest.raises(ValueError, match="graph: 3 sources and 2 targets"):
        shortest_path_distance(bipartite([2], [3]))
    with pytest.raises(ValueError, match=r"radius: got 255, expected hops in 0\.\.254"):
        hop_ball(graph, 255)
    with pytest.raises(ValueError, match=r"inner: got 3, expected hops in 0\.\.2"):
        hop_ball(graph, 2, inner=3)


def test_what_does_not_fit_is_refused_before_it_is_computed(monkeypatch):
    graph = random_graph(200, 500, seed=0)
    monkeypatch.setattr(memory, "available_bytes", lambda: 30_000)
    with pytest.raises(MemoryError, match=r"200 x 200 nodes needs .*40000 bytes.*hop_ball"):
        shortest_path_distance(graph)
    assert shortest_path_distance(graph, sources=torch.arange(100)).shape == (200, 100)
    with pytest.raises(MemoryError, match="smaller radius"):
        hop_ball(graph, 20)


def check(edge_index: torch.Tensor, nodes: int, steps: int) -> None:
    graph = Neighborhood.from_edge_index(edge_index, nodes)
    paths = shortest_path_edges(graph, steps)
    hops = shortest_path_distance(graph, cutoff=254)
    assert paths.shape == (nodes, nodes, steps)
    for n in range(nodes):
        for s in range(nodes):
            known = paths[n, s].tolist()
            if hops[n, s] == UNREACHABLE:
                assert known == [-1] * steps
                continue
            length = int(hops[n, s])
            assert known[length:] == [-1] * len(known[length:])
            at = n
            for edge in known[:length]:  # from the target backward
                assert int(edge_index[1, edge]) == at
                at = int(edge_index[0, edge])
            if length <= steps:
                assert at == s
            else:  # the rest is as long as the distance says
                assert hops[at, s] == length - steps


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_paths_of_random_graphs(steps) -> None:
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        nodes = 1 + 3 * seed
        edges = torch.randint(nodes, (2, 2 * nodes), generator=generator)
        check(edges, nodes, steps)


@pytest.mark.parametrize("name", GRAPHS)
def test_paths_of_special_graphs(name) -> None:
    check(GRAPHS[name].edge_index(), GRAPHS[name].num_dst, 4)


def test_same_for_any_threads_and_dtype(two_threads) -> None:
    edges = torch.randint(60, (2, 200), generator=torch.Generator().manual_seed(0))
    graph = Neighborhood.from_edge_index(edges, 60)
    found = shortest_path_edges(graph)
    assert found.dtype == torch.int16
    torch.set_num_threads(1)
    assert torch.equal(shortest_path_edges(graph), found)
    assert torch.equal(shortest_path_edges(graph.to_int32()), found)
    many = torch.randint(3, (2, 2**15 + 1), generator=torch.Generator().manual_seed(0))
    many = shortest_path_edges(Neighborhood.from_edge_index(many, 3), 1)
    assert many.dtype == torch.int32


def test_wrong_input_is_refused() -> None:
    graph = GRAPHS["path"]
    with pytest.raises(ValueError, match="max_steps: got 0"):
        shortest_path_edges(graph, 0)
    with pytest.raises(TypeError, match="graph: got Tensor"):
        shortest_path_edges(graph.indices)


@pytest.mark.parametrize(
    ("name", "dtype"), [(2**15 - 1, torch.int16), (2**15, torch.int32), (2**31 - 1, torch.int32)]
)
def test_names_of_edges_fit_the_type(name: int, dtype: torch.dtype) -> None:
    edges = torch.tensor([0, 0, 1]), torch.tensor([0])
    paths = shortest_path_edges(Neighborhood(*edges, 2, perm=torch.tensor([name])), 1)
    assert paths.dtype == dtype and paths.flatten().tolist() == [-1, -1, name, -1]


def test_five_steps_are_kept_by_default() -> None:
    chain = Neighborhood.from_edge_index(torch.stack([torch.arange(9), torch.arange(1, 10)]))
    assert shortest_path_edges(chain)[9, 0].tolist() == [8, 7, 6, 5, 4]
    with pytest.raises(ValueError, match=r"max_steps: got 255, expected hops in 1\.\.254"):
        shortest_path_edges(chain, 255)
    assert shortest_path_edges(chain, 254).shape == (10, 10, 254)
