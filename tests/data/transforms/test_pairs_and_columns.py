"""Distances that survive PyG's loaders, or refuse; encodings as columns."""

import pytest
import torch
from torch.utils.data import Dataset
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import (
    DataLoader,
    GraphSAINTNodeSampler,
    NeighborLoader,
    RandomNodeLoader,
)
from torch_geometric.transforms import Compose, LargestConnectedComponents

from graphtheory.data.transforms import (
    AddCentroidDistance,
    AddDegreeEncoding,
    AddShortestPathDistance,
    pair_neighborhood,
)
from graphtheory.graph import neighborhood_from
from graphtheory.structure import (
    UNREACHABLE,
    centroid_distance,
    degree_encoding,
    shortest_path_distance,
)


@pytest.fixture(autouse=True)
def no_network():
    """Replaces the ban on sockets: worker processes hand tensors over through local ones."""


sampling = pytest.mark.filterwarnings(
    "ignore:Using '.*' without a 'pyg-lib' installation is deprecated:UserWarning"
)


def random_data(num_nodes, num_edges, seed, *, undirected=True):
    draw = torch.Generator().manual_seed(seed)
    edges = torch.randint(num_nodes, (2, num_edges), generator=draw)
    if undirected:
        edges = torch.cat([edges, edges.flip(0)], dim=1)
    return Data(x=torch.randn(num_nodes, 3, generator=draw), edge_index=edges)


def dense(pairs):
    """Distances [target, source], 200 where there is no pair."""
    table = torch.full((pairs.num_dst, pairs.num_src), 200, dtype=torch.uint8)
    table[pairs.targets(), pairs.indices] = pairs.distance
    return table


def table_within(data, radius):
    table = shortest_path_distance(neighborhood_from(data), cutoff=254)
    return table.masked_fill(table > radius, 200)


def test_pairs_are_those_within_the_radius_or_all():
    data = AddShortestPathDistance(radius=2)(random_data(60, 70, 0, undirected=False))
    expected = table_within(data, 2)
    assert torch.equal(dense(pair_neighborhood(data)), expected)
    assert torch.equal(expected[data.spd_index[1], data.spd_index[0]], data.spd_distance)
    assert data.spd_num_pairs == int((expected <= 2).sum()) == data.spd_index.size(1)
    data = AddShortestPathDistance(cutoff=3)(random_data(40, 30, 1, undirected=False))
    table = shortest_path_distance(neighborhood_from(data), cutoff=3)
    assert {0, 1, 2, 3, UNREACHABLE} == set(table.flatten().tolist())
    assert data.spd_num_pairs == 1600
    assert torch.equal(dense(pair_neighborhood(data)), table)


def block_diagonal(tables):
    size = sum(len(table) for table in tables)
    out = torch.full((size, size), 200, dtype=torch.uint8)
    at = 0
    for table in tables:
        out[at : at + len(table), at : at + len(table)] = table
        at += len(table)
    return out


class Transformed(Dataset):
    """Graphs whose transform runs when they are fetched, so in the worker if there is one."""

    def __init__(self, graphs, transform):
        self.graphs, self.transform = graphs, transform

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, i):
        return self.transform(self.graphs[i])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("radius", [None, 2])
def test_batches_of_graphs_are_right(workers, radius, two_threads):
    graphs = [random_data(n, n, seed=n) for n in (5, 1, 12, 7, 30, 2, 9)]
    transform = AddShortestPathDistance(radius, cutoff=4)
    transform(random_data(1500, 3000, 0))  # the parent has used threads before its workers fork
    loader = DataLoader(Transformed(graphs, transform), batch_size=3, num_workers=workers)
    for start, batch in zip((0, 3, 6), loader, strict=True):
        tables = [dense(pair_neighborhood(transform(g))) for g in graphs[start : start + 3]]
        expected = block_diagonal(tables)
        assert torch.equal(dense(pair_neighborhood(batch)), expected)
        sources, targets = batch.spd_index  # as they are, for a layer that takes pairs
        assert torch.equal(expected[targets, sources], batch.spd_distance)
        assert len(batch.spd_distance) == int((expected != 200).sum())
    again = Batch.from_data_list([transform(g) for g in graphs]).to_data_list()
    assert torch.equal(
        dense(pair_neighborhood(again[4])), dense(pair_neighborhood(transform(graphs[4])))
    )


def test_batches_of_parts_of_graphs_are_right():
    parts, tables = [], []
    for seed, nodes in enumerate(([0, 1, 2, 3], [2, 3, 4, 5, 6], [2, 3, 4, 5, 6], [19])):
        data = AddShortestPathDistance(radius=3)(random_data(20, 30, seed % 2))
        kept = torch.tensor(nodes)
        parts.append(data.subgraph(kept))
        tables.append(dense(pair_neighborhood(data))[kept][:, kept])
    batch = Batch.from_data_list(parts)
    assert torch.equal(dense(pair_neighborhood(batch)), block_diagonal(tables))


@sampling
@pytest.mark.parametrize("sizes", [[3, 2], [-1, -1, -1, -1]])
@pytest.mark.parametrize("radius", [None, 1, 3])
def test_sampled_nodes_keep_their_distances_in_the_whole_graph(sizes, radius):
    pytest.importorskip("torch_sparse", reason="NeighborLoader needs torch-sparse or pyg-lib")
    data = AddShortestPathDistance(radius, cutoff=6)(random_data(90, 150, 2))
    whole = dense(pair_neighborhood(data))
    loader = NeighborLoader(data, sizes, batch_size=13, shuffle=True)
    trapped = 0
    for batch in loader:
        expected = whole[batch.n_id][:, batch.n_id]
        assert torch.equal(dense(pair_neighborhood(batch)), expected)
        trapped += int(batch.spd_index.max()) >= batch.num_nodes
    if sizes == [3, 2]:
        assert trapped == len(loader)  # used directly, these ids are out of range, so an error


@sampling
def test_a_sample_of_all_nodes_in_another_order_is_right():
    pytest.importorskip("torch_sparse", reason="NeighborLoader needs torch-sparse or pyg-lib")
    data = AddShortestPathDistance(radius=2)(random_data(50, 80, 3))
    batch = next(iter(NeighborLoader(data, [-1], batch_size=50, shuffle=True)))
    assert batch.num_nodes == 50 and not torch.equal(batch.n_id, torch.arange(50))
    whole = dense(pair_neighborhood(data))
    assert torch.equal(dense(pair_neighborhood(batch)), whole[batch.n_id][:, batch.n_id])


@sampling
@pytest.mark.parametrize("workers", [0, 2])
def test_as_the_loaders_transform_distances_are_those_of_the_sample(workers):
    pytest.importorskip("torch_sparse", reason="NeighborLoader needs torch-sparse or pyg-lib")
    data = random_data(200, 500, 4)
    stale = AddShortestPathDistance(radius=4)(data)
    farther = 0
    for source in (data, stale):  # attributes of the whole graph are replaced
        loader = NeighborLoader(
            source,
            [2, 2],
            batch_size=50,
            transform=AddShortestPathDistance(radius=4),
            num_workers=workers,
        )
        for batch in loader:
            found = dense(pair_neighborhood(batch))
            assert torch.equal(found, table_within(batch, 4))
            whole = dense(pair_neighborhood(stale))[batch.n_id][:, batch.n_id]
            farther += int((found > whole).sum())
    assert farther > 0


@sampling
def test_disjoint_samples_are_refused():
    pytest.importorskip("torch_sparse", reason="NeighborLoader needs torch-sparse or pyg-lib")
    data = AddShortestPathDistance(radius=2)(random_data(40, 80, 5))
    try:
        batch = next(iter(NeighborLoader(data, [2], batch_size=8, disjoint=True)))
    except ValueError as error:  # torch-sparse does not sample disjointly; build what pyg-lib would
        assert "disjoint" in str(error)
        ids = torch.tensor([0, 1, 0, 2])
        batch = Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=4)
        for name in ("spd_index", "spd_distance", "spd_num_pairs"):
            batch[name] = data[name]
        batch.spd_node_index = data.spd_node_index[ids]
    with pytest.raises(ValueError, match=r"spd_node_index: a node occurs twice.*transform="):
        pair_neighborhood(batch)


@sampling
@pytest.mark.parametrize("nodes_or_edges", ["nodes", "edges"])
def test_pairs_that_a_loader_takes_for_nodes_or_edges_are_refused(nodes_or_edges):
    pytest.importorskip("torch_sparse", reason="NeighborLoader needs torch-sparse or pyg-lib")
    ring = torch.arange(12)
    edges = torch.stack([ring, ring.roll(1)])
    if nodes_or_edges == "edges":
        edges = torch.cat([edges, edges], dim=1)  # as many edges as pairs within one hop
    data = Data(x=torch.ones(12, 1), edge_index=edges)
    data = AddShortestPathDistance(radius=int(nodes_or_edges == "edges"))(data)
    assert data.spd_num_pairs == (12 if nodes_or_edges == "nodes" else data.num_edges)
    batch = next(iter(NeighborLoader(data, [1], batch_size=3)))
    with pytest.raises(ValueError, match=r"spd_index: .* are left of .*another radius"):
        pair_neighborhood(batch)


def test_other_ways_to_take_a_part_of_the_graph():
    data = AddShortestPathDistance(radius=3)(random_data(80, 90, 6))
    whole = dense(pair_neighborhood(data))
    some = torch.randperm(80, generator=torch.Generator().manual_seed(0))[:30]
    part = data.subgraph(some)
    assert torch.equal(dense(pair_neighborhood(part)), whole[some][:, some])
    data.number = torch.arange(80)
    for part in (
        *RandomNodeLoader(data, num_parts=3),
        LargestConnectedComponents()(data),
        data.subgraph(torch.arange(80) < 40),
    ):
        assert torch.equal(dense(pair_neighborhood(part)), whole[part.number][:, part.number])


def test_saint_samples_are_right():
    pytest.importorskip("torch_sparse", reason="GraphSAINT needs torch-sparse")
    data = AddShortestPathDistance(radius=3)(random_data(80, 90, 6))
    whole = dense(pair_neighborhood(data))
    data.number = torch.arange(80)
    for part in GraphSAINTNodeSampler(data, batch_size=20, num_steps=2):
        assert torch.equal(dense(pair_neighborhood(part)), whole[part.number][:, part.number])


def test_what_is_missing_or_stale_is_named():
    data = random_data(10, 20, 7)
    with pytest.raises(ValueError, match="no attribute spd_index, apply AddShortestPathDistance"):
        pair_neighborhood(data)
    data = AddShortestPathDistance(radius=1)(data)
    grown = data.clone()
    grown.x = torch.ones(11, 3)
    with pytest.raises(ValueError, match="spd_node_index: 10 entries for 11 nodes"):
        pair_neighborhood(grown)
    with pytest.raises(TypeError, match="data: got HeteroData"):
        AddShortestPathDistance()(HeteroData())
    with pytest.raises(ValueError, match="radius: got 300"):
        AddShortestPathDistance(radius=300)(data)
    with pytest.raises(ValueError, match="cutoff: got 0"):
        AddShortestPathDistance(cutoff=0)(data)


def test_all_pairs_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr("graphtheory.graph.memory.available_bytes", lambda: 40_000)
    AddShortestPathDistance()(random_data(40, 60, 8))
    with pytest.raises(MemoryError, match=r"all pairs of 60 nodes .* give a radius"):
        AddShortestPathDistance()(random_data(60, 60, 8))


def test_columns_join_features_or_get_a_name():
    data = random_data(30, 40, 9, undirected=False)
    graph = neighborhood_from(data)
    x = data.x
    both = Compose([AddDegreeEncoding(None), AddCentroidDistance(None, cutoff=5)])(data)
    degree, hops = degree_encoding(graph), centroid_distance(graph, cutoff=5)
    assert torch.equal(both.x, torch.cat([x, degree, hops[:, None]], dim=1))
    assert torch.equal(data.x, x)
    named = AddDegreeEncoding("deg", direction="out", log=False)(data)
    assert torch.equal(named.deg, degree_encoding(graph, direction="out", log=False))
    bare = AddCentroidDistance(None)(Data(edge_index=data.edge_index, num_nodes=30))
    assert torch.equal(bare.x, centroid_distance(graph).float()[:, None])


def test_columns_are_batched_as_attributes_and_transforms_have_names():
    graphs = [AddDegreeEncoding()(random_data(n, n, n)) for n in (4, 6)]
    batch = next(iter(DataLoader(graphs, batch_size=2)))
    assert torch.equal(batch.degree_encoding, torch.cat([g.degree_encoding for g in graphs]))
    part = graphs[1].subgraph(torch.tensor([5, 2]))
    assert torch.equal(part.degree_encoding, graphs[1].degree_encoding[[5, 2]])
    from torch_geometric.data.datapipes import DatasetAdapter

    pipe = DatasetAdapter([random_data(6, 6, 0)])
    pipe = pipe.add_shortest_path_distance(radius=1).add_degree_encoding().add_centroid_distance()
    (data,) = list(pipe)
    assert {"spd_index", "degree_encoding", "centroid_distance"} <= set(data.keys())
    assert repr(AddShortestPathDistance(2)) == "AddShortestPathDistance(radius=2)"
    assert repr(AddShortestPathDistance(cutoff=5)) == "AddShortestPathDistance(cutoff=5)"
