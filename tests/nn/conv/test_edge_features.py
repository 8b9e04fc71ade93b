"""Features in the order of rows; gathered and reduced messages beside indexing and scattering."""

import pytest
import torch
from torch_geometric.utils import scatter

from graphtheory import Neighborhood, ops
from graphtheory.nn import SPDTransformerConv, TransformerConv
from graphtheory.nn.conv import edge_features
from graphtheory.nn.conv.adjacency import Adjacency, adjacency_of
from graphtheory.nn.conv.edge_features import gather, in_rows, project_per_edge


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_messages_keep_the_given_order(flow, make_graph) -> None:
    graph = make_graph(3, 7, 7, 20)
    src, dst = graph.edge_index if flow == "source_to_target" else graph.edge_index.flip(0)
    adj = adjacency_of(graph.edge_index, 7, 7, flow=flow)
    x, messages = (graph.features(n, 2, 3).requires_grad_() for n in (7, 20))
    factor = graph.features(20, 2, 3)
    torch.testing.assert_close(gather(x, adj), x[src])
    sums = ops.aggregate(None, messages, adj.edges_as_sources(given_order=True))
    torch.testing.assert_close(sums, scatter(messages, dst, 0, 7))
    (gather(x, adj) * factor).sum().backward()
    torch.testing.assert_close(x.grad, scatter(factor, src, 0, 7))
    (sums * factor[:7]).sum().backward()
    torch.testing.assert_close(messages.grad, factor[:7][dst])


def test_rows_are_their_own_order(make_graph) -> None:
    nb = Neighborhood.from_edge_index(make_graph(3, 7, 5, 20).edge_index, num_src=7, num_dst=5)
    x = torch.arange(7.0)[:, None]
    torch.testing.assert_close(gather(x, adjacency_of(nb, 7, 5)), x[nb.indices])


def test_what_is_smaller_is_computed() -> None:
    assert project_per_edge(torch.zeros(30, 64), head_dim=16, num_dst=10)
    assert not project_per_edge(torch.zeros(40, 64), head_dim=16, num_dst=10)


@pytest.mark.parametrize("kind", [TransformerConv, SPDTransformerConv])
def test_either_way_drops_the_same_weights(kind, make_graph, monkeypatch) -> None:
    conv = kind(5, 4, heads=2, edge_dim=3, dropout=0.5)
    graph, conv = make_graph(3, 7, 7, 20), conv.double()
    x, edge_attr = graph.features(7, 5), graph.features(20, 3).requires_grad_()
    found = []
    for by_edge in (False, True):
        monkeypatch.setattr(edge_features, "project_per_edge", lambda *_, on=by_edge: on)
        torch.manual_seed(1)
        out = conv(x, graph.edge_index, edge_attr=edge_attr)
        leaves = [edge_attr, *conv.parameters()]
        found.append([out, *torch.autograd.grad(out.cos().sum(), leaves, allow_unused=True)])
    torch.testing.assert_close(*found)


# Copies of features in the order of rows ----------------------------------------------------------


def unsorted() -> torch.Tensor:
    return torch.tensor([[0, 1, 2, 3, 1], [3, 2, 1, 0, 0]])


def test_layers_share_a_copy_while_one_keeps_it() -> None:
    edge_index, features = unsorted(), torch.randn(5, 3)
    adj = adjacency_of(edge_index, 4, 4)
    first = in_rows(adj, features)
    assert torch.equal(first, features[adj.order])
    assert in_rows(adjacency_of(edge_index, 4, 4), features) is first
    assert in_rows(adj, features.clone()) is not first
    features[0] = 7.0
    changed = in_rows(adj, features)
    assert torch.equal(changed, features[adj.order]) and not torch.equal(changed, first)
    assert in_rows(adj, features) is changed
    _, known = adj.cached("features", dict)[features]
    del changed
    assert known() is None


@pytest.mark.parametrize("layer", [TransformerConv, SPDTransformerConv])
def test_a_stack_of_layers_keeps_one_copy(layer, monkeypatch) -> None:
    made, sort = [], Adjacency.to_csr_order
    monkeypatch.setattr(Adjacency, "to_csr_order", lambda a, t: made.append(t) or sort(a, t))
    edge_index, features = unsorted(), torch.randn(5, 3)
    layers = [layer(4, 4, edge_dim=3) for _ in range(3)]
    for _ in range(2):  # the copy of the first step is gone by the second
        h = torch.randn(4, 4)
        for one in layers:
            h = one(h, edge_index, edge_attr=features)
        h.square().sum().backward()
        del h
    assert len(made) == 2


def test_what_has_a_gradient_is_copied_by_each_layer() -> None:
    edge_index, features = unsorted(), torch.randn(5, 3, requires_grad=True)
    first, second = (TransformerConv(4, 4, edge_dim=3) for _ in range(2))
    x = torch.randn(4, 4)
    one, other = (layer(x, edge_index, features).square().sum() for layer in (first, second))
    one.backward()  # frees what it went through
    other.backward()
    found, features.grad = features.grad, None
    both = (layer(x, edge_index, features).square().sum() for layer in (first, second))
    sum(both).backward()
    torch.testing.assert_close(found, features.grad)


def test_no_copy_of_inference_mode_serves_training() -> None:
    edge_index, features = unsorted(), torch.randn(5, 3)
    adj = adjacency_of(edge_index, 4, 4)
    with torch.inference_mode():
        kept = in_rows(adj, features)
        assert in_rows(adj, features) is not kept
    found = in_rows(adj, features)
    assert not found.is_inference() and kept.is_inference()
