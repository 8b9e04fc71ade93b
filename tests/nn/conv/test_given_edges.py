"""Gathered and reduced messages beside indexing and scattering."""

import pytest
import torch
from torch_geometric.utils import scatter

from graphtheory import Neighborhood, ops
from graphtheory.nn import SPDTransformerConv, TransformerConv
from graphtheory.nn.conv import spd_transformer_conv, transformer_conv
from graphtheory.nn.conv.adjacency import read
from graphtheory.nn.conv.given_edges import gather, pay_by_edge


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_messages_keep_the_given_order(flow, make_graph) -> None:
    graph = make_graph(3, 7, 7, 20)
    src, dst = graph.edge_index if flow == "source_to_target" else graph.edge_index.flip(0)
    adj = read(graph.edge_index, 7, 7, flow=flow)
    x, messages = (
        graph.features(7, 2, 3).requires_grad_(),
        graph.features(20, 2, 3).requires_grad_(),
    )
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
    torch.testing.assert_close(gather(x, read(nb, 7, 5)), x[nb.indices])


def test_what_is_smaller_is_computed() -> None:
    assert pay_by_edge(torch.zeros(30, 64), head_dim=16, num_dst=10)
    assert not pay_by_edge(torch.zeros(40, 64), head_dim=16, num_dst=10)


@pytest.mark.parametrize(
    ("module", "conv"),
    [
        (transformer_conv, TransformerConv(5, 4, heads=2, edge_dim=3, dropout=0.5)),
        (spd_transformer_conv, SPDTransformerConv(5, 4, heads=2, edge_dim=3, dropout=0.5)),
    ],
)
def test_either_way_drops_the_same_weights(module, conv, make_graph, monkeypatch) -> None:
    graph, conv = make_graph(3, 7, 7, 20), conv.double()
    x, edge_attr = graph.features(7, 5), graph.features(20, 3).requires_grad_()
    found = []
    for by_edge in (False, True):
        monkeypatch.setattr(module, "pay_by_edge", lambda *given, by_edge=by_edge: by_edge)
        torch.manual_seed(1)
        out = conv(x, graph.edge_index, edge_attr=edge_attr)
        leaves = [edge_attr, *conv.parameters()]
        found.append([out, *torch.autograd.grad(out.cos().sum(), leaves, allow_unused=True)])
    torch.testing.assert_close(*found)
