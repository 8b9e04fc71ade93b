import sys

import pytest
import torch
from torch_geometric import typing as pyg_typing
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from graphtheory import Neighborhood
from graphtheory.data.loaders import NodeSetLoader, PartitionLoader, metis
from graphtheory.data.loaders.source import induced
from graphtheory.patterns import AddSelf, Compose, GraphSAGE, SymmetricNormalize


def cliques(count=4, size=8):
    """Complete graphs in a ring, joined by one edge each."""
    one = torch.ones(size, size).triu(1).nonzero().t()
    edges = torch.cat([one + k * size for k in range(count)], 1)
    ring = torch.stack([torch.arange(count) * size, (torch.arange(count) + 1) % count * size + 1])
    return Data(edge_index=torch.cat([edges, ring], 1), num_nodes=count * size)


@pytest.fixture
def part():
    return torch.randint(6, (40,), generator=torch.Generator().manual_seed(1))


def has_metis():
    try:
        return len(metis(cliques(2, 3), 2)) == 6
    except ImportError:
        return False


needs_metis = pytest.mark.skipif(
    not has_metis(), reason="needs METIS: install pyg-graphtheory[partition]"
)


@needs_metis
def test_metis_finds_what_few_edges_hold_together_and_takes_loops_and_no_edges():
    data = cliques()
    part = metis(data, 4)
    assert all(len(part[k * 8 : k * 8 + 8].unique()) == 1 for k in range(4))
    assert sorted(part.unique().tolist()) == [0, 1, 2, 3]
    assert torch.equal(part, metis(Neighborhood.from_edge_index(data.edge_index, 32), 4))
    data = cliques(2, 3)
    loops = torch.arange(6).expand(2, -1)
    looped = Data(edge_index=torch.cat([data.edge_index, loops], 1), num_nodes=6)
    assert torch.equal(metis(looped, 2), metis(data, 2)) and metis(data, 1).tolist() == [0] * 6
    alone = metis(Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=6), 2)
    assert alone.shape == (6,) and set(alone.tolist()) <= {0, 1}


@pytest.mark.parametrize("count", [0, 7, 1.5])
def test_parts_that_cannot_be(count):
    with pytest.raises(ValueError, match=f"num_parts: got {count}, expected 1 to 6 nodes"):
        metis(cliques(2, 3), count)


def test_without_metis_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(pyg_typing, "WITH_TORCH_SPARSE", False)
    monkeypatch.setattr(pyg_typing, "WITH_METIS", False)
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r"install pyg-graphtheory\[partition\]"):
        metis(cliques(), 2)


def test_induced_edges_are_those_of_pyg(data):
    graph = Neighborhood.from_edge_index(data.edge_index, 40, weight=data.edge_weight)
    nodes = torch.randperm(40, generator=torch.Generator().manual_seed(3))[:25]
    found = induced(graph, nodes)
    edges, weight = subgraph(nodes, data.edge_index, data.edge_weight, num_nodes=40)
    dense = torch.zeros(40, 40, dtype=torch.float64)
    dense.index_put_((edges[1], edges[0]), weight, accumulate=True)
    assert (found.num_dst, found.num_src) == (25, 25)
    torch.testing.assert_close(found.to_dense(), dense[nodes][:, nodes])


@pytest.mark.parametrize("together", [1, 2, 6])
def test_a_batch_is_the_graph_of_its_parts_with_the_seeds_first(data, part, together):
    seeds = torch.arange(0, 40, 3)
    loader = PartitionLoader(data, part, input_nodes=seeds, batch_size=together, shuffle=True)
    visited = []
    for batch in loader:
        size, nodes = batch.batch_size, batch.n_id
        assert torch.equal(nodes[:size], seeds[batch.input_id])
        assert not set(nodes[size:].tolist()) & set(seeds.tolist())
        assert len(part[nodes].unique()) <= together
        assert len(nodes) == int(torch.isin(part, part[nodes]).sum())
        assert torch.equal(batch.x, data.x[nodes]) and torch.equal(batch.y, data.y[nodes])
        whole = Neighborhood.from_edge_index(data.edge_index, 40, weight=data.edge_weight)
        dense = whole.to_dense()[nodes][:, nodes]
        torch.testing.assert_close(batch.neighborhood.to_dense(), dense)
        visited += nodes[:size].tolist()
    assert sorted(visited) == seeds.tolist()  # each once


def test_all_parts_together_are_the_whole_graph(data, part):
    pattern = Compose(AddSelf(), SymmetricNormalize())
    (batch,) = PartitionLoader(data, part, pattern, batch_size=6)
    graph = Neighborhood.from_edge_index(data.edge_index, 40, weight=data.edge_weight)
    dense = pattern(graph).to_dense()[batch.n_id][:, batch.n_id]
    torch.testing.assert_close(batch.neighborhood.to_dense(), dense)
    mask = torch.zeros(40, dtype=torch.bool)
    mask[[4, 30]] = True
    (batch,) = PartitionLoader(data, part, pattern, batch_size=6, input_nodes=mask)
    assert batch.input_id.tolist() == batch.n_id[:2].tolist() and batch.batch_size == 2


def test_parts_without_seeds_are_left_out(data):
    part = torch.arange(40) // 10
    loader = PartitionLoader(data, part, input_nodes=[35, 3])
    assert [batch.n_id.min().item() for batch in loader] == [0, 30]


def test_layers_have_draws_of_their_own_and_epochs_too(data, part, same):
    loader = PartitionLoader(data, part, GraphSAGE(1), num_layers=3, batch_size=3, shuffle=True)
    first, second = list(loader), list(loader)
    assert [len(batch.neighborhoods) for batch in first] == [3, 3]
    indices = [layer.indices for layer in first[0].neighborhoods]
    assert not all(torch.equal(indices[0], other) for other in indices[1:])
    loader.set_epoch(0)
    assert same(list(loader), first) and not same(second, first)
    again = PartitionLoader(
        data, part, GraphSAGE(1), num_layers=3, batch_size=3, shuffle=True, num_workers=1
    )
    assert same(list(again), first)


def test_processes_share_the_parts(data, part):
    ranks = [
        PartitionLoader(data, part, batch_size=1, shuffle=True, rank=r, world_size=2)
        for r in (0, 1)
    ]
    mine, yours = ([batch.n_id.tolist() for batch in loader] for loader in ranks)
    assert len(mine) == len(yours) == 3
    assert sorted(node for nodes in mine + yours for node in nodes) == list(range(40))


@pytest.mark.parametrize(("part", "error", "message"), [
    (torch.zeros(40), TypeError, "part: got torch.float32, expected an int64 tensor"),
    ([0] * 40, TypeError, "part: got list"),
    (torch.zeros(39, dtype=torch.int64), ValueError, r"part: shape \(39,\), expected one"),
    (torch.full((40,), -1), ValueError, "expected one part of 0 or more"),
])  # fmt: skip
def test_parts_of_another_form(data, part, error, message):
    with pytest.raises(error, match=message):
        PartitionLoader(data, part)
    with pytest.raises(TypeError, match="pattern: got int, expected a Pattern or None"):
        PartitionLoader(data, torch.zeros(40, dtype=torch.int64), 3)


def test_the_other_loaders_are_as_before(data):
    batch = next(iter(NodeSetLoader(data, GraphSAGE(2), 1, batch_size=5)))
    assert batch.input_id.tolist() == [0, 1, 2, 3, 4] and batch.batch_size == 5
