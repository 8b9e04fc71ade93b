"""PyG's layers on batches with copies compute what layer-wise neighborhoods say."""

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NodeLoader
from torch_geometric.nn import GCN, GCNConv
from torch_geometric.transforms import GCNNorm
from torch_geometric.utils import trim_to_layer

from graphtheory import ops
from graphtheory.data.loaders import LayerWiseLoader
from graphtheory.data.loaders.layer_wise import unrolled
from graphtheory.graph import neighborhood_from
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
from graphtheory.patterns.base import layers_on_rows
from tests.data.loaders.conftest import forking

SAMPLERS = [
    DegreeGroups(groups=2, share=0.5, p_star=(0.9, 0.4)),
    DegreeGroups(groups=2, share=0.8, symmetric=True),
    FastGCN(count=9),
    FastGCN(count=9, replace=False),
    LADIES(count=9),
    GraphSAGE(2),
    UniformNodes(count=12),
    Compose(SymmetricNormalize(), GraphSAGE(2)),
]
WHOLE_LAYERS = [s for s in SAMPLERS[:-1] if not isinstance(s, (LADIES, GraphSAGE))]
KEEP_ALL = [Compose(), FastGCN(share=1.0, replace=False), LADIES(share=1.0, replace=False)]


def drawn(seed=0):
    return torch.Generator().manual_seed(seed)


def convs(layers, width=3):
    torch.manual_seed(0)
    return [GCNConv(width, width, normalize=False).double() for _ in range(layers)]


def run(layers, batch, *, trim=False):
    """Outputs of the seeds by PyG's layers, as PyG's documentation writes it."""
    x, index, weight = batch.x, batch.edge_index, batch.edge_weight
    for place, conv in enumerate(layers):
        if trim:
            nodes, edges = batch.num_sampled_nodes, batch.num_sampled_edges
            x, index, weight = trim_to_layer(place, nodes, edges, x, index, weight)
        x = conv(x, index, weight).relu()
    return x[: batch.batch_size]


def loaded(data, sampler, layers=2, **options):
    return LayerWiseLoader(data, sampler, layers, **{"batch_size": 7, "shuffle": True} | options)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_batch_is_what_node_loaders_promise(data, sampler):
    data.edge_attr = torch.rand(90, 2)
    seen = []
    for batch in loaded(data, sampler, 3, input_nodes=torch.arange(40) % 2 == 0):
        seeds = batch.n_id[: batch.batch_size]
        assert torch.equal(seeds, batch.input_id)
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert torch.equal(batch.x, data.x[batch.n_id]) and torch.equal(batch.y, data.y[batch.n_id])
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
        assert batch.edge_weight.shape == batch.e_id.shape
        nodes, edges = batch.num_sampled_nodes, batch.num_sampled_edges
        assert (len(nodes), len(edges)) == (4, 3) and nodes[0] == batch.batch_size
        assert (sum(nodes), sum(edges)) == (len(batch.n_id), len(batch.e_id))
        hop = torch.repeat_interleave(torch.arange(4), torch.tensor(nodes))
        of_edge = torch.repeat_interleave(torch.arange(3), torch.tensor(edges))
        assert torch.equal(hop[batch.edge_index[1]], of_edge)
        assert torch.equal(hop[batch.edge_index[0]], of_edge + 1)
        for k in range(1, 4):  # within a hop every node once
            assert batch.n_id[hop == k].unique().numel() == nodes[k]
        seen += seeds.tolist()
    assert sorted(seen) == list(range(0, 40, 2)) != seen


@pytest.mark.parametrize("sampler", WHOLE_LAYERS, ids=repr)
@pytest.mark.parametrize("trim", [False, True])
def test_seeds_hear_what_the_layers_of_the_same_draws_say(data, sampler, trim):
    graph, seeds, layers = neighborhood_from(data), torch.tensor([3, 17, 5, 21]), convs(3)
    nodes, neighborhoods = layers_on_rows(sampler, graph, seeds, 3, generator=drawn())
    x = data.x[nodes]
    for conv, layer in zip(layers, neighborhoods, strict=True):
        x = (ops.aggregate(None, conv.lin(x)[:, None], layer)[:, 0] + conv.bias).relu()
    out, weight = unrolled(sampler, graph, seeds, 3, generator=drawn())
    batch = Data(x=data.x[out.node], edge_index=torch.stack([out.row, out.col]), batch_size=4)
    batch.edge_weight = weight
    batch.num_sampled_nodes, batch.num_sampled_edges = out.num_sampled_nodes, out.num_sampled_edges
    torch.testing.assert_close(run(layers, batch, trim=trim), x)


@pytest.mark.parametrize("sampler", KEEP_ALL, ids=repr)
@pytest.mark.parametrize("trim", [False, True])
def test_a_sampler_that_keeps_all_gives_the_whole_graphs_outputs(data, sampler, trim):
    layers = convs(3)
    x = data.x
    for conv in layers:
        x = conv(x, data.edge_index, data.edge_weight).relu()
    for batch in loaded(data, sampler, 3):
        torch.testing.assert_close(run(layers, batch, trim=trim), x[batch.input_id])


@pytest.mark.parametrize("sampler", [SAMPLERS[0], LADIES(count=60), SAMPLERS[5]], ids=repr)
def test_mean_of_two_layers_is_the_square_of_a_star(data, sampler):
    """Draws of two layers are independent, so that the mean of the product is that of the means.

    Of few columns, drawn with replacement, some paths of two edges come too rarely to tell.
    """
    graph, seeds, x = neighborhood_from(data), torch.arange(8), data.x[:, :1]
    star = sampler.effective(graph).to_dense().double()
    generator, found = drawn(), []
    for _ in range(800):
        out, weight = unrolled(sampler, graph, seeds, 2, generator=generator)
        value = x[out.node]
        for _ in range(2):
            sent = weight[:, None] * value[out.row]
            value = torch.zeros_like(value).index_add(0, out.col, sent)
        found.append(value[:8, 0])
    sample = torch.stack(found)
    error = sample.std(0) / len(found) ** 0.5
    off = (sample.mean(0) - (star @ star @ x)[:8, 0]).abs()
    assert (off <= 4 * error + 1e-9).all() and float(sample.std(0).max()) > 0


def test_weights_of_the_draw_reach_the_batch_and_ids_of_the_whole_graph_do_not(data):
    for batch in loaded(data, DegreeGroups(share=1.0, p_star=0.5)):
        assert torch.equal(batch.edge_weight, 0.5 * data.edge_weight[batch.e_id])
    del data.edge_weight
    for batch in loaded(data, UniformNodes(count=10), transform=lambda b: b.edge_weight):
        assert set(batch.tolist()) <= {4.0}
    data.pair_index = torch.zeros(2, 7, dtype=torch.int64)
    with pytest.raises(ValueError, match="pair_index: by PyG's naming rule"):
        loaded(data, FastGCN(4))


@forking
@pytest.mark.parametrize("workers", [0, 2])
def test_workers_and_a_transform(data, workers):
    def marked(batch):
        batch.total = batch.edge_weight.sum()
        return batch

    for _ in range(2):
        batches = list(loaded(data, FastGCN(9), transform=marked, num_workers=workers))
        assert sorted(torch.cat([b.input_id for b in batches]).tolist()) == list(range(40))
        assert all(torch.equal(b.total, b.edge_weight.sum()) for b in batches)
    torch.manual_seed(3)
    first = [b.e_id.tolist() for b in loaded(data, FastGCN(9), num_workers=workers)]
    assert first != [b.e_id.tolist() for b in loaded(data, FastGCN(9), num_workers=workers)]
    torch.manual_seed(3)
    assert first == [b.e_id.tolist() for b in loaded(data, FastGCN(9), num_workers=workers)]


def test_a_seed_may_come_twice_and_hear_nothing():
    data = Data(x=torch.eye(3), edge_index=torch.tensor([[0], [1]]))
    (batch,) = LayerWiseLoader(data, GraphSAGE(2), 2, input_nodes=torch.tensor([1, 2, 1]),
                               batch_size=3)  # fmt: skip
    assert batch.n_id.tolist() == [1, 2, 1, 0] and batch.edge_index.tolist() == [[3, 3], [0, 2]]
    assert batch.num_sampled_nodes == [3, 1, 0] and batch.num_sampled_edges == [2, 0]


@pytest.mark.parametrize(("change", "error", "match"), [
    ({"data": HeteroData()}, TypeError, "data: got HeteroData, expected Data with edge_index"),
    ({"data": Data(x=torch.ones(2, 1))}, TypeError, "data: got Data, expected Data with edge"),
    ({"sampler": "ladies"}, TypeError, "pattern: got str"),
    ({"layers": 0}, ValueError, "num_layers: got 0"),
    ({"sampler": Compose(AddSelf(), FastGCN(4))}, ValueError,
     r"adds edges, expected (.|\n)*GCNNorm"),
    ({"sampler": Compose(FastGCN(4), KHop(2))}, ValueError, "adds edges"),
    ({"sampler": Sample(4, whole_graph=True)}, ValueError, "adds edges"),
    ({"transform_sampler_output": len}, TypeError, "transform_sampler_output: edges have"),
    ({"input_nodes": torch.zeros(40, dtype=torch.bool)}, ValueError, "input_nodes: empty"),
])  # fmt: skip
def test_refusals_name_what_was_wrong(data, change, error, match):
    with pytest.raises(error, match=match):
        loaded(**{"data": data, "sampler": FastGCN(4)} | change)


def test_it_is_a_node_loader_that_the_models_of_pyg_take(data):
    loader = loaded(data, FastGCN(4))
    assert isinstance(loader, NodeLoader) and len(loader) == 6
    assert loader(torch.tensor([2, 4])).n_id[:2].tolist() == [2, 4]
    with pytest.raises(NotImplementedError, match="seeds are nodes"):
        loader.node_sampler.sample_from_edges(None)
    model = GCN(3, 8, 2, 4, normalize=False).double().eval()
    normed = GCNNorm()(data)
    whole = model(normed.x, normed.edge_index, edge_weight=normed.edge_weight)
    for batch in loaded(normed, Compose()):
        found = model(
            batch.x, batch.edge_index, edge_weight=batch.edge_weight,
            num_sampled_nodes_per_hop=batch.num_sampled_nodes,
            num_sampled_edges_per_hop=batch.num_sampled_edges,
        )  # fmt: skip
        torch.testing.assert_close(found[: batch.batch_size], whole[batch.input_id])


def test_a_seed_gives_the_same_epochs_again_for_any_number_of_workers(data):
    def epochs(workers, **options):
        torch.manual_seed(3)
        loader = LayerWiseLoader(
            data, LADIES(4), 2, batch_size=15, shuffle=True, num_workers=workers, **options
        )
        return [[(b.n_id.tolist(), b.edge_weight.tolist()) for b in loader] for _ in range(2)]

    first, second = epochs(0)
    assert first != second and epochs(1) == epochs(2) == [first, second]
    first, second = epochs(2, persistent_workers=True)
    assert first != second
    batch = next(iter(LayerWiseLoader(data, LADIES(4), 1, input_nodes=[5, 5], batch_size=2)))
    assert batch.n_id[:2].tolist() == [5, 5] and batch.input_id.tolist() == [0, 1]
