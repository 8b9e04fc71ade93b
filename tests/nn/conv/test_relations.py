"""Edges by relation beside a loop over relations."""

import torch

from graphtheory.nn.conv.adjacency import adjacency_of
from graphtheory.nn.conv.relations import relations_of


def test_pairs_and_shares(make_graph) -> None:
    graph = make_graph(2, 7, 5, 25)
    kinds = torch.randint(3, (25,), generator=graph.generator) * 2  # 1 and 3 have none
    adj = adjacency_of(graph.edge_index, 7, 5)
    found = relations_of(adj, kinds, 5)
    src, dst = graph.edge_index
    wanted, shares = [], torch.zeros(25, dtype=torch.float64)
    for r in range(5):
        for i in range(5):
            members = (kinds == r) & (dst == i)
            if members.any():
                wanted.append((r, i, sorted(src[members].tolist())))
                shares[members] = 1 / int(members.sum())
    of_target = torch.empty(len(wanted), dtype=torch.long)
    of_target[found.targets.indices] = found.targets.targets()
    relation = torch.arange(5).repeat_interleave(torch.tensor(found.counts))
    rows = found.sources.indices.split(found.sources.degree().tolist())
    got = [
        (int(r), int(i), sorted(row.tolist()))
        for r, i, row in zip(relation, of_target, rows, strict=True)
    ]
    assert got == wanted
    torch.testing.assert_close(found.share, adj.to_csr_order(shares))
    assert torch.equal(found.by_kind.indices, adj.to_csr_order(kinds * 7 + src))


def test_made_once_for_the_same_tensors(make_graph) -> None:
    graph = make_graph(2, 7, 7, 25)
    kinds = torch.zeros(25, dtype=torch.long)
    adj = adjacency_of(graph.edge_index, 7, 7)
    first = relations_of(adj, kinds, 2)
    assert relations_of(adj, kinds, 2) is first
    assert relations_of(adj, kinds, 3) is not first
    assert relations_of(adjacency_of(graph.edge_index.clone(), 7, 7), kinds, 3) is not first
