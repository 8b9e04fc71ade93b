"""Tables of distances in batches, and encodings as columns."""

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import Compose

from graphtheory.data.transforms import AddCentroidDistance, AddDegreeEncoding, AddDistances
from graphtheory.graph import neighborhood_from
from graphtheory.structure import centroid_distance, degree_encoding, shortest_path_distance


def random_data(num_nodes, num_edges, seed, *, undirected=True):
    draw = torch.Generator().manual_seed(seed)
    edges = torch.randint(num_nodes, (2, num_edges), generator=draw)
    if undirected:
        edges = torch.cat([edges, edges.flip(0)], dim=1)
    return Data(x=torch.randn(num_nodes, 3, generator=draw), edge_index=edges)


def test_tables_follow_each_other_in_a_batch(monkeypatch):
    graphs = [AddDistances(4)(random_data(n, n, n, undirected=False)) for n in (5, 1, 12)]
    batch = next(iter(DataLoader(graphs, batch_size=3)))
    tables = [shortest_path_distance(neighborhood_from(g), cutoff=4).flatten() for g in graphs]
    assert torch.equal(batch.distance, torch.cat(tables))
    with pytest.raises(TypeError, match="data: got HeteroData"):
        AddDistances()(HeteroData())
    with pytest.raises(ValueError, match="cutoff: got 0"):
        AddDistances(cutoff=0)(graphs[0])
    monkeypatch.setattr("graphtheory.graph.memory.available_bytes", lambda: 2_000)
    AddDistances()(random_data(40, 60, 8))
    with pytest.raises(MemoryError, match="a table of 60 x 60 nodes"):
        AddDistances()(random_data(60, 60, 8))


def test_columns_join_features_or_get_a_name():
    data = random_data(30, 40, 9, undirected=False)
    graph = neighborhood_from(data)
    x = data.x
    both = Compose([AddDegreeEncoding(None), AddCentroidDistance(None, cutoff=5)])(data)
    degree, hops = degree_encoding(graph), centroid_distance(graph, cutoff=5)
    assert torch.equal(both.x, torch.cat([x, degree, hops[:, None]], dim=1))
    assert torch.equal(data.x, x) and torch.equal(AddDegreeEncoding("deg")(data).deg, degree)
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
    pipe = pipe.add_distances(cutoff=1).add_degree_encoding().add_centroid_distance()
    (data,) = list(pipe)
    assert {"distance", "degree_encoding", "centroid_distance"} <= set(data.keys())
