"""Encoders of nodes and edges, against loops and PyG's transforms."""

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE, Compose

from graphtheory.nn import (
    CategoricalEncoder,
    DegreeEmbedding,
    LaplacianEncoding,
    NodeEncoder,
    WalkEncoding,
    feature_encoder,
)


def test_categories_are_summed() -> None:
    encoder = CategoricalEncoder((3, 4), 5)
    values = torch.tensor([[2, 3], [0, 1], [2, 0]])
    tables = encoder.table.split((3, 4))
    wanted = torch.stack([tables[0][a] + tables[1][b] for a, b in values.tolist()])
    torch.testing.assert_close(encoder(values), wanted)
    torch.testing.assert_close(encoder(values.to(torch.uint8)), wanted)
    single = CategoricalEncoder((3,), 5)
    torch.testing.assert_close(single(values[:, 0]), single.table[values[:, 0]])
    encoder(values).sum().backward()
    assert encoder.table.grad[:, 0].tolist() == [1, 0, 2, 1, 1, 0, 1]
    assert set(encoder.state_dict()) == {"table"}


def test_atom_features_of_ogb_give_what_its_encoder_gives() -> None:
    pytest.importorskip("ogb")
    from graphtheory.lab.datasets.graph_readers import import_ogb  # which asks no network

    theirs = import_ogb("ogb.graphproppred.mol_encoder").AtomEncoder(6)
    sizes = import_ogb("ogb.utils.features").get_atom_feature_dims()
    ours = CategoricalEncoder(sizes, 6)
    with torch.no_grad():
        ours.table.copy_(torch.cat([e.weight for e in theirs.atom_embedding_list]))
    values = torch.stack([torch.randint(size, (20,)) for size in sizes], 1)
    torch.testing.assert_close(ours(values), theirs(values))


def test_a_value_out_of_range_and_what_a_batch_lacks_are_named() -> None:
    encoder = CategoricalEncoder((3, 4), 5)
    with pytest.raises(IndexError, match=r"values: row 1, column 0 is 3, expected .* in 0\.\.2"):
        encoder(torch.tensor([[2, 3], [3, 1]]))
    with pytest.raises(IndexError, match="row 0, column 1 is -1"):
        encoder(torch.tensor([[2, -1]]))
    with pytest.raises(ValueError, match=r"values: shape \(1, 3\), expected \[N, 2\]"):
        encoder(torch.zeros(1, 3, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"values: torch\.float32, expected integer"):
        encoder(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="sizes: got"):
        CategoricalEncoder((3, 0), 5)
    data = Data(x=torch.rand(2, 3), edge_index=torch.tensor([[0], [1]]))
    with pytest.raises(ValueError, match=r"random_walk_pe: .* PyG's transform AddRandomWalkPE"):
        NodeEncoder(3, 8, encodings=[WalkEncoding(3, 8)])(data)
    with pytest.raises(ValueError, match=r"x: shape \(2, 3\), expected \[num_nodes, 4\]"):
        NodeEncoder(4, 8)(data)
    with pytest.raises(ValueError, match="x: the batch has none"):
        NodeEncoder(4, 8)(Data(edge_index=data.edge_index))


def test_feature_encoder_chooses() -> None:
    assert isinstance(feature_encoder(3, 8), torch.nn.Linear)
    assert isinstance(feature_encoder((3,), 8), CategoricalEncoder)


def test_degrees_in_and_out() -> None:
    edges = torch.tensor([[0, 0, 0, 1, 2], [1, 2, 2, 2, 2]])  # a duplicate and a loop; 3 is alone
    embedding = DegreeEmbedding(3, 4)
    into, out = torch.tensor([0, 1, 3, 0]), torch.tensor([3, 1, 1, 0])  # 4 edges into node 2
    wanted = embedding.in_degree.weight[into] + embedding.out_degree.weight[out]
    torch.testing.assert_close(embedding(edges, 4), wanted)


def test_a_degree_below_none_and_features_without_a_unit() -> None:
    with pytest.raises(ValueError, match="max_degree: got -1"):
        DegreeEmbedding(-1, 4)
    encoder = NodeEncoder(3, 4, normalize=True)
    x, edge_index = torch.randn(20, 3), torch.zeros(2, 0, dtype=torch.int64)
    plain, scaled = (encoder(Data(x=values, edge_index=edge_index)) for values in (x, 1e4 * x + 7))
    torch.testing.assert_close(plain, scaled, rtol=1e-3, atol=1e-3)


def test_one_sign_per_graph_and_eigenvector_in_training() -> None:
    encoding = LaplacianEncoding(2, 2)
    torch.nn.init.eye_(encoding.linear.weight)
    torch.nn.init.zeros_(encoding.linear.bias)
    vectors, batch = torch.rand(60, 2) + 0.5, torch.arange(20).repeat_interleave(3)
    generator = torch.Generator().manual_seed(0)
    signs = (encoding(vectors, batch, generator=generator) / vectors).view(20, 3, 2)
    assert torch.equal(signs.abs().round(decimals=5), torch.ones(20, 3, 2))
    assert torch.equal(signs.sign(), signs[:, :1].sign().expand(20, 3, 2)), "one sign a graph"
    assert 0 < (signs > 0).float().mean() < 1
    assert not torch.equal(signs[:, 0, 0].sign(), signs[:, 0, 1].sign()), "one sign a vector"
    again = encoding(vectors, batch, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(again, signs.view(60, 2) * vectors)
    torch.testing.assert_close(encoding.eval()(vectors, batch), vectors)
    with pytest.raises(ValueError, match=r"laplacian_eigenvector_pe: shape \(60, 1\), expected"):
        encoding(vectors[:, :1])


def test_all_encodings_of_a_batch_are_added() -> None:
    ring = torch.stack([torch.arange(5), (torch.arange(5) + 1) % 5])
    ring = torch.cat([ring, ring.flip(0)], 1)
    add = Compose([AddLaplacianEigenvectorPE(2), AddRandomWalkPE(3)])
    graphs = [add(Data(x=torch.rand(5, 3), edge_index=ring)) for _ in range(2)]
    batch = Batch.from_data_list(graphs)
    parts = DegreeEmbedding(4, 8), LaplacianEncoding(2, 8), WalkEncoding(3, 8)
    encoder = NodeEncoder(3, 8, degree=parts[0], encodings=parts[1:]).eval()
    wanted = (
        encoder.features(batch.x) + parts[0](batch.edge_index, 10)
        + parts[1](batch.laplacian_eigenvector_pe) + parts[2](batch.random_walk_pe)
    )  # fmt: skip
    torch.testing.assert_close(encoder(batch), wanted)
