"""Gathered and reduced messages beside indexing and scattering."""

import pytest
import torch
from torch_geometric.utils import scatter

from graphtheory import Neighborhood, ops
from graphtheory.nn.conv.adjacency import read
from graphtheory.nn.conv.given_edges import gather


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
