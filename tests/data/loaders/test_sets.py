"""Layers and attention sets with local ids: the seeds first, distances those of the whole graph."""

import networkx as nx
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from graphtheory import ops
from graphtheory.data.loaders import AttentionSetLoader, NodeSetLoader, SharedAnchors
from graphtheory.graph import neighborhood_from
from graphtheory.models import SampledGCN
from graphtheory.nn import SPDTransformerConv
from graphtheory.patterns import (
    LADIES,
    AddSelf,
    AtDistance,
    Compose,
    DegreeGroups,
    FastGCN,
    GraphSAGE,
    KHop,
    Sample,
    SymmetricNormalize,
    UniformNodes,
    on_rows,
)
from graphtheory.patterns.draw import derive
from graphtheory.structure import UNREACHABLE

SAMPLERS = [
    DegreeGroups(groups=2, share=0.5), FastGCN(count=9), GraphSAGE(2), LADIES(count=9),
    UniformNodes(count=12), Sample(1),
]  # fmt: skip
KEEP_ALL = [
    Compose(), DegreeGroups(share=1.0), FastGCN(share=1.0, replace=False), GraphSAGE(100),
    LADIES(share=1.0, replace=False), UniformNodes(share=1.0),
]  # fmt: skip


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


def test_a_layer_is_the_draw_for_the_seeds_and_its_fixed_part_of_the_whole_graph(data):
    """Whose mean is the whole graph, as tests/patterns/test_base.py shows of every pattern."""
    graph, seeds = neighborhood_from(data), torch.tensor([3, 17, 5])
    for sampler in SAMPLERS:
        loader = NodeSetLoader(data, sampler, 1, input_nodes=seeds, batch_size=3, seed=7)
        (batch,) = loader
        drawn = torch.Generator().manual_seed(derive(7, 1, 0, 0))
        expected = on_rows(sampler, graph, seeds, generator=drawn).to_dense()
        assert torch.equal(batch.neighborhoods[0].to_dense(), expected[:, batch.n_id])
    fixed = Compose(AddSelf(), SymmetricNormalize())
    whole = fixed(neighborhood_from(data)).to_dense()
    for batch in NodeSetLoader(data, Compose(fixed, GraphSAGE(100)), 1, batch_size=9):
        found = batch.neighborhoods[0].to_dense()
        torch.testing.assert_close(found, whole[batch.n_id[: batch.batch_size]][:, batch.n_id])


def test_a_batch_is_read_by_a_network_and_moves_with_its_neighborhoods(data):
    model = SampledGCN(3, 5, 4, generator=torch.Generator().manual_seed(0)).double()
    expected = model(data.x, neighborhood_from(data))
    for batch in NodeSetLoader(data, Compose(), 3, batch_size=8):
        found = model(batch.x, batch.neighborhoods)
        torch.testing.assert_close(found, expected[batch.n_id[: batch.batch_size]])
    batch = next(iter(NodeSetLoader(data, GraphSAGE(2), 2, batch_size=4)))
    moved = batch.to("meta", non_blocking=True)
    assert {layer.device.type for layer in moved.neighborhoods} == {"meta"}


def test_rows_may_be_empty():
    data = Data(x=torch.ones(3, 1), edge_index=torch.empty(2, 0, dtype=torch.int64))
    for sampler in (*KEEP_ALL, GraphSAGE(2), LADIES(2), FastGCN(2)):
        (batch,) = NodeSetLoader(data, sampler, 2, batch_size=3)
        assert [layer.num_edges for layer in batch.neighborhoods] == [0, 0]
        assert batch.n_id.tolist() == [0, 1, 2]
    data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0], [1]]))
    (batch,) = AttentionSetLoader(data, KHop(1), input_nodes=[2, 1], batch_size=2)
    assert batch.neighborhood.degree().tolist() == [0, 1] and batch.n_id.tolist() == [2, 1, 0]


@pytest.mark.parametrize(("change", "error", "match"), [
    ({"pattern": "ladies"}, TypeError, "pattern: got str"),
    ({"num_layers": 0}, ValueError, "num_layers: got 0"),
    ({"data": HeteroData()}, TypeError, "to_homogeneous"),
    ({"data": [1]}, TypeError, "data: got list"),
    ({"data": Data(x=torch.ones(3, 1))}, ValueError, "neither edge_index nor adj_t"),
    ({"data": Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=0)}, ValueError,
     "data: has no nodes"),
])  # fmt: skip
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


@pytest.mark.parametrize(("edge_type", "error", "match"), [
    (None, TypeError, r"edge_type: got None beside HeteroData, expected one of \[\('author', 'kn"),
    (WRITES, ValueError, "joins two node types, expected one of"),
    (("paper", "likes", "paper"), ValueError, "is not there, expected one of"),
    ("cites", ValueError, "edge_type: 'cites' is not there"),
])  # fmt: skip
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


BALL = Compose(KHop(2), AddSelf())
SETS = [
    BALL,
    Compose(KHop(3), Sample(4), AddSelf()),
    AtDistance(2),
    Compose(Sample(6, whole_graph=True), AddSelf()),
    GraphSAGE(2),  # knows no distances itself
    Compose(AtDistance(2), KHop(2)),  # counts hops in a graph of its own
    Compose(KHop(2), Sample(3), KHop(1)),
    SharedAnchors(7),
    SharedAnchors(7, with_self=False),
    SharedAnchors(1000),
]


def pairs_of(batch):
    """Global (source, target) of each pair, in order."""
    ids, rows = batch.n_id, batch.neighborhood
    return list(zip(ids[rows.indices].tolist(), ids[rows.targets()].tolist(), strict=True))


def all_hops(data):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(data.num_nodes))
    graph.add_edges_from(data.edge_index.T.tolist())
    return dict(nx.all_pairs_shortest_path_length(graph))


@pytest.mark.parametrize("sets", SETS, ids=repr)
def test_every_distance_is_that_of_the_whole_graph(data, sets):
    hops, found = all_hops(data), 0
    for batch in AttentionSetLoader(data, sets, batch_size=7, shuffle=True, seed=5):
        pairs = pairs_of(batch)
        expected = [hops[source].get(target, UNREACHABLE) for source, target in pairs]
        assert batch.neighborhood.distance.tolist() == expected
        assert batch.neighborhood.num_dst == batch.batch_size
        assert batch.n_id[: batch.batch_size].tolist() == batch.input_id.tolist()
        needed = sorted({source for source, _ in pairs} - set(batch.input_id.tolist()))
        assert batch.n_id[batch.batch_size :].tolist() == needed
        assert torch.equal(batch.x, data.x[batch.n_id])
        found += len(pairs)
    assert found > 40


def test_balls_and_samples_of_a_seed_are_those_of_the_whole_graph(data):
    ball = BALL(neighborhood_from(data))
    expected = set(zip(*ball.edge_index().tolist(), strict=True))
    batches = AttentionSetLoader(data, BALL, batch_size=9, shuffle=True)
    assert {pair for batch in batches for pair in pairs_of(batch)} == expected
    mask = BALL.mask(neighborhood_from(data).to_dense() > 0)
    sampled = Compose(KHop(2), Sample(3), AddSelf())
    for batch in AttentionSetLoader(data, sampled, batch_size=9):
        seeds = batch.n_id[: batch.batch_size]
        size = mask[seeds].sum(1).sub(1).clamp(max=3) + 1
        assert torch.equal(batch.neighborhood.degree(), size)
        assert all(mask[target, source] for source, target in pairs_of(batch))


def test_anchors_are_uniform_and_shared_within_a_batch_only(data):
    drawn = []
    for batch in AttentionSetLoader(data, SharedAnchors(7, with_self=False), batch_size=10):
        heard = {}
        for source, target in pairs_of(batch):
            heard.setdefault(target, []).append(source)
        assert len(heard) == 10 and len({tuple(row) for row in heard.values()}) == 1
        drawn.append(tuple(heard[target]))
    assert all(len(set(anchors)) == 7 for anchors in drawn) and len(set(drawn)) == 4
    count = torch.zeros(40)
    loader = AttentionSetLoader(data, SharedAnchors(8, with_self=False), input_nodes=[0])
    for _ in range(500):
        (batch,) = loader
        count[batch.n_id[batch.neighborhood.indices]] += 1
    assert count.sum() == 4000 and ((count - 100).abs() < 5 * (500 * 0.2 * 0.8) ** 0.5).all()


def test_a_layer_gives_the_seeds_what_it_gives_in_the_whole_graph_each_itself_once(data):
    for batch in AttentionSetLoader(data, SharedAnchors(30), batch_size=10):
        assert all(pairs_of(batch).count((n, n)) == 1 for n in batch.input_id.tolist())
    conv = SPDTransformerConv(3, 4, heads=2, num_buckets=4).double()
    expected = conv(data.x, BALL(neighborhood_from(data)))
    for batch in AttentionSetLoader(data, BALL, batch_size=9, shuffle=True):
        seeds = batch.x[: batch.batch_size]
        found = conv((batch.x, seeds), batch.neighborhood)
        torch.testing.assert_close(found, expected[batch.input_id])


@pytest.mark.parametrize("pattern", ["ball", None])
def test_pattern_is_one(data, pattern):
    with pytest.raises(TypeError, match="pattern: got"):
        AttentionSetLoader(data, pattern)


@pytest.mark.parametrize("count", [0, 2.5])
def test_count_of_anchors_is_a_whole_number(count):
    with pytest.raises(ValueError, match="count: got"):
        SharedAnchors(count)
