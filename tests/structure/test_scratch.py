"""Searches that share memory find what searches with clean memory find."""

from itertools import pairwise

import torch

from graphtheory import Neighborhood
from graphtheory.structure import _search, hop_ball, shortest_path_distance
from graphtheory.structure._search import rows_of
from graphtheory.structure.distance import columns_of


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
    assert indptr.tolist() == turned.indptr.tolist()
    assert targets.tolist() == turned.indices.tolist()
    both = torch.cat([graph.edge_index(), graph.edge_index().flip(0)], 1).unique(dim=1)
    undirected = Neighborhood.from_edge_index(both, 300)
    assert columns_of(undirected) is rows_of(undirected)
