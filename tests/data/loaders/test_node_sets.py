"""Layers with local ids: the seeds first, the whole graph's aggregation where all is kept."""

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from graphtheory import ops
from graphtheory.data.loaders import AttentionSetLoader, NodeSetLoader
from graphtheory.graph import neighborhood_from
from graphtheory.models import SampledGCN
from graphtheory.patterns import (
    LADIES,
    AddSelf,
    Compose,
    DegreeGroups,
    FastGCN,
    GraphSAGE,
    KHop,
    Sample,
    SymmetricNormalize,
    UniformNodes,
)

SAMPLERS = [
    DegreeGroups(groups=2, share=0.5),
    FastGCN(count=9),
    GraphSAGE(2),
    LADIES(count=9),
    UniformNodes(count=12),
    Sample(1),
]
KEEP_ALL = [
    Compose(),
    DegreeGroups(share=1.0),
    FastGCN(share=1.0, replace=False),
    GraphSAGE(100),
    LADIES(share=1.0, replace=False),
    UniformNodes(share=1.0),
]


def through(layers, x):
    for layer in layers:
        x = ops.aggregate(None, x[:, None], layer)[:, 0]
    return x


def renumbered(n_id, layer):
    """What a reader finds by going through the edges one at a time: global (source, target)."""
    pairs = []
    for row in range(layer.num_dst):
        for edge in range(int(layer.indptr[row]), int(layer.indptr[row + 1])):
            pairs.append((int(n_id[layer.indices[edge]]), int(n_id[row])))
    return pairs


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_numbering_puts_targets_first_and_names_exactly_the_nodes_needed(data, sampler):
    edges = set(zip(*data.edge_index.tolist(), strict=True))
    loader = NodeSetLoader(data, sampler, 3, batch_size=7, shuffle=True, seed=2)
    seen = []
    for batch in loader:
        seeds = batch.n_id[: batch.batch_size].tolist()
        assert seeds == batch.input_id.tolist()  # input_nodes is all nodes
        needed = list(seeds)
        for layer in reversed(batch.neighborhoods):
            assert layer.num_dst == len(needed)
            pairs = renumbered(batch.n_id, layer)
            assert set(pairs) <= edges
            needed += sorted({source for source, _ in pairs} - set(needed))
            assert batch.n_id[: layer.num_src].tolist() == needed
        assert batch.n_id.tolist() == needed and batch.num_nodes == len(needed)
        assert torch.equal(batch.x, data.x[needed]) and torch.equal(batch.y, data.y[needed])
        seen += seeds
    assert sorted(seen) == list(range(40)) != seen


@pytest.mark.parametrize("sampler", KEEP_ALL, ids=repr)
def test_what_keeps_everything_aggregates_like_the_whole_graph(data, sampler):
    whole = neighborhood_from(data)
    expected = through([whole] * 3, data.x)
    for batch in NodeSetLoader(data, sampler, 3, batch_size=11):
        found = through(batch.neighborhoods, batch.x)
        torch.testing.assert_close(found, expected[batch.n_id[: batch.batch_size]])


@pytest.mark.parametrize("sampler", SAMPLERS[:-1], ids=repr)
def test_mean_of_one_layer_is_the_whole_graph(data, sampler):
    whole = neighborhood_from(data).to_dense()
    seeds = torch.tensor([3, 17, 5])
    loader = NodeSetLoader(data, sampler, 1, input_nodes=seeds, batch_size=3)
    draws = torch.zeros(800, 3, 40, dtype=torch.float64)
    for place in range(len(draws)):
        (batch,) = loader
        draws[place][:, batch.n_id] = batch.neighborhoods[0].to_dense()
    error = draws.std(0) / len(draws) ** 0.5
    assert ((draws.mean(0) - whole[seeds]).abs() <= 5 * error + 1e-12).all()


def test_fixed_part_is_of_the_whole_graph(data):
    fixed = Compose(AddSelf(), SymmetricNormalize())
    whole = fixed(neighborhood_from(data)).to_dense()
    for batch in NodeSetLoader(data, Compose(fixed, GraphSAGE(100)), 1, batch_size=9):
        found = batch.neighborhoods[0].to_dense()
        torch.testing.assert_close(found, whole[batch.n_id[: batch.batch_size]][:, batch.n_id])


def test_network_of_three_layers_reads_a_batch(data):
    model = SampledGCN(3, 5, 4, generator=torch.Generator().manual_seed(0)).double()
    expected = model(data.x, neighborhood_from(data))
    for batch in NodeSetLoader(data, Compose(), 3, batch_size=8):
        found = model(batch.x, batch.neighborhoods)
        torch.testing.assert_close(found, expected[batch.n_id[: batch.batch_size]])


def test_batch_moves_with_its_neighborhoods(data):
    batch = next(iter(NodeSetLoader(data, GraphSAGE(2), 2, batch_size=4)))
    moved = batch.to("meta", non_blocking=True)
    assert {layer.device.type for layer in moved.neighborhoods} == {"meta"}


def test_graph_without_edges_has_empty_rows():
    data = Data(x=torch.ones(3, 1), edge_index=torch.empty(2, 0, dtype=torch.int64))
    for sampler in (*KEEP_ALL, GraphSAGE(2), LADIES(2), FastGCN(2)):
        (batch,) = NodeSetLoader(data, sampler, 2, batch_size=3)
        assert [layer.num_edges for layer in batch.neighborhoods] == [0, 0]
        assert batch.n_id.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"pattern": "ladies"}, TypeError, "pattern: got str"),
        ({"num_layers": 0}, ValueError, "num_layers: got 0"),
        ({"data": HeteroData()}, TypeError, "to_homogeneous"),
        ({"data": [1]}, TypeError, "data: got list"),
        ({"data": Data(x=torch.ones(3, 1))}, ValueError, "neither edge_index nor adj_t"),
        (
            {"data": Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=0)},
            ValueError,
            "data: has no nodes",
        ),
    ],
)
def test_refusals_name_what_was_wrong(data, change, error, match):
    given = {"data": data, "pattern": GraphSAGE(2), "num_layers": 2} | change
    with pytest.raises(error, match=match):
        NodeSetLoader(given["data"], given["pattern"], given["num_layers"])


CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")


def citations(one):
    """Papers are the nodes of `one`; a paper's `year` and a citation's are different numbers."""
    hetero = HeteroData()
    hetero["paper"].x, hetero["paper"].year = one.x, torch.arange(40)
    hetero["author"].x = torch.eye(2)
    hetero["author", "knows", "author"].edge_index = torch.tensor([[0, 1], [1, 0]])
    hetero[CITES].edge_index, hetero[CITES].edge_weight = one.edge_index, one.edge_weight
    hetero[CITES].year = torch.arange(90)
    hetero[WRITES].edge_index = torch.tensor([[0, 1], [0, 2]])
    one.year = hetero["paper"].year
    del one.y
    return hetero


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_relation_of_one_node_type_is_a_graph_of_its_own(data, sampler, same):
    hetero = citations(data)
    options = {"batch_size": 9, "shuffle": True, "input_nodes": range(30)}
    found = NodeSetLoader(hetero, sampler, 2, edge_type=CITES, **options)
    assert same(list(found), list(NodeSetLoader(data, sampler, 2, **options)))
    sets = AttentionSetLoader(hetero, KHop(2), edge_type=CITES, **options)
    assert same(list(sets), list(AttentionSetLoader(data, KHop(2), **options)))


@pytest.mark.parametrize(
    ("edge_type", "error", "match"),
    [
        (
            None,
            TypeError,
            r"edge_type: got None beside HeteroData, expected one of \[\('author', 'kn",
        ),
        (WRITES, ValueError, "joins two node types, expected one of"),
        (("paper", "likes", "paper"), ValueError, "is not there, expected one of"),
        ("cites", ValueError, "edge_type: 'cites' is not there"),
    ],
)
def test_a_relation_is_named(data, edge_type, error, match):
    with pytest.raises(error, match=match):
        NodeSetLoader(citations(data), GraphSAGE(2), 1, edge_type=edge_type)


def test_other_data_have_no_relations_and_all_can_be_one(data):
    with pytest.raises(TypeError, match=r"edge_type: got .* beside Data, expected None"):
        NodeSetLoader(data, GraphSAGE(2), 1, edge_type=CITES)
    hetero = citations(data)
    del hetero["paper"].year, hetero[CITES].year
    whole = hetero.to_homogeneous(node_attrs=[], edge_attrs=[])
    (batch,) = NodeSetLoader(whole, GraphSAGE(100), 1, batch_size=42)
    assert batch.neighborhoods[0].num_edges == 94
