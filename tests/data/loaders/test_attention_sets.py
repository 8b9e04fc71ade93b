"""What a seed attends to, and that every distance is the one in the whole graph."""

import networkx as nx
import pytest
import torch
from torch_geometric.data import Data

from graphtheory.data.loaders import AttentionSetLoader, SharedAnchors
from graphtheory.graph import neighborhood_from
from graphtheory.nn import SPDTransformerConv
from graphtheory.patterns import AddSelf, AtDistance, Compose, GraphSAGE, KHop, Sample
from graphtheory.structure import UNREACHABLE

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


def test_ball_of_a_seed_is_that_of_the_whole_graph(data):
    ball = BALL(neighborhood_from(data))
    expected = set(zip(*ball.edge_index().tolist(), strict=True))
    batches = AttentionSetLoader(data, BALL, batch_size=9, shuffle=True)
    assert {pair for batch in batches for pair in pairs_of(batch)} == expected


def test_sample_has_the_rows_that_the_pattern_says(data):
    mask = BALL.mask(neighborhood_from(data).to_dense() > 0)
    sampled = Compose(KHop(2), Sample(3), AddSelf())
    for batch in AttentionSetLoader(data, sampled, batch_size=9):
        seeds = batch.n_id[: batch.batch_size]
        size = mask[seeds].sum(1).sub(1).clamp(max=3) + 1
        assert torch.equal(batch.neighborhood.degree(), size)
        assert all(mask[target, source] for source, target in pairs_of(batch))


def test_anchors_are_shared_within_a_batch_only(data):
    drawn = []
    for batch in AttentionSetLoader(data, SharedAnchors(7, with_self=False), batch_size=10):
        heard = {}
        for source, target in pairs_of(batch):
            heard.setdefault(target, []).append(source)
        assert len(heard) == 10 and len({tuple(row) for row in heard.values()}) == 1
        drawn.append(tuple(heard[target]))
    assert all(len(set(anchors)) == 7 for anchors in drawn) and len(set(drawn)) == 4


def test_anchors_are_uniform(data):
    count = torch.zeros(40)
    loader = AttentionSetLoader(data, SharedAnchors(8, with_self=False), input_nodes=[0])
    for _ in range(500):
        (batch,) = loader
        count[batch.n_id[batch.neighborhood.indices]] += 1
    assert count.sum() == 4000
    assert ((count - 100).abs() < 5 * (500 * 0.2 * 0.8) ** 0.5).all()


def test_seed_attends_to_itself_once(data):
    for batch in AttentionSetLoader(data, SharedAnchors(30), batch_size=10):
        assert all(pairs_of(batch).count((n, n)) == 1 for n in batch.input_id.tolist())


def test_layer_gives_the_seeds_what_it_gives_them_in_the_whole_graph(data):
    conv = SPDTransformerConv(3, 4, heads=2, num_buckets=4).double()
    expected = conv(data.x, BALL(neighborhood_from(data)))
    for batch in AttentionSetLoader(data, BALL, batch_size=9, shuffle=True):
        seeds = batch.x[: batch.batch_size]
        found = conv((batch.x, seeds), batch.neighborhood)
        torch.testing.assert_close(found, expected[batch.input_id])


def test_row_may_be_empty():
    data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0], [1]]))
    (batch,) = AttentionSetLoader(data, KHop(1), input_nodes=[2, 1], batch_size=2)
    assert batch.neighborhood.degree().tolist() == [0, 1]
    assert batch.n_id.tolist() == [2, 1, 0]


@pytest.mark.parametrize("pattern", ["ball", None])
def test_pattern_is_one(data, pattern):
    with pytest.raises(TypeError, match="pattern: got"):
        AttentionSetLoader(data, pattern)


@pytest.mark.parametrize("count", [0, 2.5])
def test_count_of_anchors_is_a_whole_number(count):
    with pytest.raises(ValueError, match="count: got"):
        SharedAnchors(count)
