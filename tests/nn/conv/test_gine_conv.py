"""GINEConv beside PyG's."""

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheory import Neighborhood
from graphtheory.nn.conv.gine_conv import GINEConv


def both(width=6, **options):
    """Our layer and PyG's, each with a network of its own."""
    return [
        kind(torch.nn.Linear(width, 3), **options).double() for kind in (GINEConv, pyg.GINEConv)
    ]


@pytest.mark.parametrize("aggr", ["add", "mean", "max", "min"])
@pytest.mark.parametrize("edge_dim", [None, 2])
@pytest.mark.parametrize("bipartite", [False, True])
@settings(max_examples=8)
@given(data=st.data())
def test_equals_pyg(data, aggr, edge_dim, bipartite, draw_graph, assert_same) -> None:
    graph = draw_graph(data, bipartite=bipartite)
    x = graph.features(graph.num_src, 6)
    x = (x, graph.features(graph.num_dst, 6)) if bipartite else x
    edge_attr = graph.features(graph.edge_index.size(1), edge_dim or 6)
    options = {"aggr": aggr, "edge_dim": edge_dim, "train_eps": True}
    assert_same(*both(**options), x, graph.edge_index, edge_attr)


def test_every_form_of_the_edges(make_graph) -> None:
    graph = make_graph(0, 6, 4, 20)
    edges = graph.simple()
    ours, theirs = both()
    ours.load_state_dict(theirs.state_dict())
    x = graph.features(6, 6), graph.features(4, 6)
    edge_attr = graph.features(edges.size(1), 6)
    wanted = theirs(x, edges, edge_attr)
    torch.testing.assert_close(ours(x, edges, edge_attr), wanted)
    nb = Neighborhood.from_edge_index(edges, num_src=6, num_dst=4)
    torch.testing.assert_close(ours(x, nb, edge_attr[nb.perm]), wanted)
    assert ours((x[0], None), edges, edge_attr, size=(6, 4)).shape == (4, 3)
    sparse = pytest.importorskip("torch_sparse")
    matrix = sparse.SparseTensor.from_edge_index(edges, edge_attr, (6, 4)).t()
    torch.testing.assert_close(ours(x, matrix), wanted)


def test_features_that_do_not_fit_are_pygs_error(make_graph) -> None:
    graph = make_graph(0, 6, 6, 20)
    pair = graph.features(6, 6), graph.features(6, 6)
    other = both(flow="target_to_source")[0]
    with pytest.raises(ValueError, match="flow: got 'target_to_source' with a pair"):
        other(pair, graph.edge_index, graph.features(20, 6))
    with pytest.raises(ValueError, match="feature dimensionalities do not match"):
        both()[0](graph.features(6, 6), graph.edge_index, graph.features(20, 5))
