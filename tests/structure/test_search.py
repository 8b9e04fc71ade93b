"""Searches: memory that they share, chunks, and what is counted before a result is computed."""

import threading
import time
from itertools import pairwise

import numpy as np
import pytest
import torch

from graphtheory import Neighborhood, structure
from graphtheory.graph import memory
from graphtheory.structure import _bfs, _loops, _search, hop_ball, shortest_path_distance
from graphtheory.structure._search import for_chunks, rows_of
from graphtheory.structure.distance import columns_of, reachability


def random_graph(seed):
    ends = torch.randint(300, (2, 700), generator=torch.Generator().manual_seed(seed))
    return Neighborhood.from_edge_index(ends, 300)


def answers(graph):
    centers = torch.tensor([5, 5, 299, 0, 5])
    pairs = torch.randint(300, (2, 400), generator=torch.Generator().manual_seed(1))
    ball, distance = hop_ball(graph, 3, targets=centers)
    found = [ball.indptr, ball.indices, distance]
    return [*found, shortest_path_distance(graph, pairs=pairs)]


def test_what_earlier_searches_left_behind_changes_nothing():
    graph = random_graph(0)
    first, table = answers(graph), shortest_path_distance(graph, cutoff=20)
    for _ in range(3):
        assert all(map(torch.equal, answers(graph), first))
    assert all(map(torch.equal, answers(random_graph(0)), first))
    indptr, indices, distance, _ = first
    rows = [table[node] for node in (5, 5, 299, 0, 5)]
    for row, (start, stop) in enumerate(pairwise(indptr)):
        assert indices[start:stop].tolist() == (rows[row] <= 3).nonzero().flatten().tolist()
        assert torch.equal(distance[start:stop], rows[row][indices[start:stop]])


def test_marks_are_cleared_before_their_numbers_come_again(monkeypatch):
    first = answers(random_graph(0))
    monkeypatch.setattr(_search, "_LAST_TURN", 1200)  # a pair takes two, a center one
    graph = random_graph(0)
    for _ in range(4):
        assert all(map(torch.equal, answers(graph), first))


def test_edges_by_source_are_the_transpose_and_shared_where_they_are_the_same():
    graph = random_graph(2)
    indptr, targets = columns_of(graph)
    turned = graph.transpose()
    assert indptr.tolist() == turned.indptr.tolist() and targets.tolist() == turned.indices.tolist()
    both = torch.cat([graph.edge_index(), graph.edge_index().flip(0)], 1).unique(dim=1)
    undirected = Neighborhood.from_edge_index(both, 300)
    assert columns_of(undirected) is rows_of(undirected)


def test_components_are_numbered_along_the_edges():
    for seed in range(20):
        graph = random_graph(seed)
        source, target = graph.edge_index().numpy()
        strong = reachability(graph).strong
        assert (strong[source] <= strong[target]).all() and len(set(strong)) > 2


@pytest.mark.parametrize(("total", "chunk"), [(0, 4), (1, 4), (8, 4), (9, 4), (100, 1)])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_item_is_visited_once(total, chunk, threads, two_threads):
    torch.set_num_threads(threads)
    visits = [0] * total
    used = set()

    def work(start, stop):
        used.add(threading.get_ident())
        assert 0 < stop - start <= chunk
        for i in range(start, stop):
            visits[i] += 1

    for_chunks(work, total, chunk)
    assert visits == [1] * total
    if threads == 1 and total:
        assert used == {threading.get_ident()}


def test_chunks_run_at_the_same_time(two_threads):
    meeting = threading.Barrier(2, timeout=20)  # one thread alone would wait in vain
    for_chunks(lambda start, stop: meeting.wait(), 2, 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_in_a_chunk_is_the_callers(threads, two_threads):
    torch.set_num_threads(threads)
    started = []

    def work(start, stop):
        started.append(start)
        if start == 0:
            raise ArithmeticError("chunk 0")
        time.sleep(0.01)  # longer than it takes to hand out all chunks

    with pytest.raises(ArithmeticError, match="chunk 0"):
        for_chunks(work, 300, 1)
    assert len(started) < 300


NODES = 7
RING = Neighborhood.from_edge_index(
    torch.tensor([[*range(NODES)], [*range(1, NODES), 0]]), num_nodes=NODES
)
PATTERN = torch.tensor([0, 1, -1, 1, 0, -1, 1])


@pytest.mark.parametrize(("call", "needed"), [
    (lambda: structure.shortest_path_distance(RING), NODES * NODES),
    (lambda: structure.shortest_path_distance(RING, sources=torch.tensor([0, 2, 2])), NODES * 3),
    (lambda: structure.shortest_path_edges(RING, 5), NODES * NODES * 5 * 2),
    (lambda: structure.resistance_distance(RING), 4 * 8 * NODES**2),
    (lambda: structure.count_by_distance(RING, PATTERN, 2, max_distance=4),
     4 * NODES * (4 + 1) * (2 + 1)),
    (lambda: structure.hop_ball(RING, 2), 9 * NODES * 3),
], ids=["distances", "columns", "paths", "resistances", "counts", "balls"])  # fmt: skip
def test_what_fits_exactly_is_computed_and_a_byte_less_is_refused(call, needed, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: needed)
    call()
    monkeypatch.setattr(memory, "available_bytes", lambda: needed - 1)
    with pytest.raises(MemoryError, match=rf"\({needed} bytes\), .*GiB are available; "):
        call()


def test_the_queue_of_a_search_has_a_place_more_than_there_are_nodes() -> None:
    nodes = torch.arange(5)
    clique = Neighborhood.from_edge_index(torch.cartesian_prod(nodes, nodes).T, 5)
    scratch, ends = _search.Scratch(5), np.empty(4, np.int64)
    given = (*rows_of(clique), 0, 2, 25)
    _bfs._levels.py_func(*given, scratch.queue, scratch.words, ends)  # looks at every index
    assert ends.tolist() == [0, 1, 5, 5] and sorted(scratch.queue[:5].tolist()) == [0, 1, 2, 3, 4]
    assert not scratch.words.any()
    with pytest.raises(IndexError):
        _bfs._levels.py_func(*given, scratch.queue[:5], scratch.words, ends)


def test_a_search_reads_no_end_of_an_empty_row() -> None:
    edge = Neighborhood.from_edge_index(torch.tensor([[2], [0]]), 3)
    scratch, ends = _search.Scratch(3), np.empty(4, np.int64)
    _bfs._levels.py_func(*rows_of(edge), 0, 2, 1, scratch.queue, scratch.words, ends)
    assert ends.tolist() == [0, 1, 2, 2] and scratch.queue[:2].tolist() == [0, 2]


@pytest.mark.parametrize("number", [0, 1, 2, 63, 64, 65, 300])
def test_different_keys_are_sorted(number: int) -> None:
    keys = np.random.default_rng(number).permutation(7 * number)[:number]
    found = keys.copy()
    _loops._sort(found, np.empty(number + 1, np.int64))
    assert found.tolist() == sorted(keys.tolist())
