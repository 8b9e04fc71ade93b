"""PNAConv beside PyG's."""

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheory.nn.conv.pna_conv import PNAConv

AGGREGATORS = ["sum", "mean", "min", "max", "var", "std"]
SCALERS = ["identity", "amplification", "attenuation", "linear", "inverse_linear"]
DEGREES = torch.tensor([1, 3, 2, 1])


def both(aggregators=AGGREGATORS, scalers=SCALERS, **options):
    args = (6, 4, aggregators, scalers, DEGREES)
    return [kind(*args, **options).double() for kind in (PNAConv, pyg.PNAConv)]


@pytest.mark.parametrize("edge_dim", [None, 2])
@pytest.mark.parametrize(("towers", "divide_input"), [(1, False), (2, False), (2, True)])
@settings(max_examples=8)
@given(data=st.data())
def test_equals_pyg(data, towers, divide_input, edge_dim, draw_graph, assert_same) -> None:
    graph = draw_graph(data)
    x, edges = graph.features(graph.num_src, 6), graph.edge_index
    more = [] if edge_dim is None else [graph.features(edges.size(1), edge_dim)]
    options = {"towers": towers, "divide_input": divide_input, "edge_dim": edge_dim}
    assert_same(*both(post_layers=2, train_norm=True, **options), x, edges, *more)


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("scaler", SCALERS)
def test_each_aggregator_and_scaler(aggregator, scaler, make_graph, assert_same) -> None:
    graph = make_graph(1, 7, 7, 12)  # with nodes without edges
    assert len(graph.edge_index[1].unique()) < 7
    assert_same(*both([aggregator], [scaler]), graph.features(7, 6), graph.edge_index)


def test_flow_and_matrices(make_graph, assert_same) -> None:
    graph = make_graph(0, 6, 6, 20)
    edges, x = graph.simple(), graph.features(6, 6)
    assert_same(*both(flow="target_to_source"), x, edges)
    ours, theirs = both(edge_dim=2)
    ours.load_state_dict(theirs.state_dict())
    edge_attr = graph.features(edges.size(1), 2)
    wanted = theirs(x, edges, edge_attr)
    sparse = pytest.importorskip("torch_sparse")
    matrix = sparse.SparseTensor.from_edge_index(edges, edge_attr, (6, 6)).t()
    torch.testing.assert_close(ours(x, matrix), wanted)


@pytest.mark.parametrize(("options", "message"), [
    ({"pre_layers": 3}, "pre_layers: got 3, expected 1"),
    ({"aggregators": ["mean", "median"]}, "aggregators: got MedianAggregation, expected sums"),
    ({"aggregators": [pyg.VarAggregation(semi_grad=True), "mean"]}, "aggregators: got VarAggr"),
])  # fmt: skip
def test_what_is_not_computed_is_named(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        PNAConv.check_options(both(**options)[1])


@pytest.mark.parametrize(("edge_dim", "rows", "message"), [
    (2, 11, r"edge_attr: shape \(11, 2\), expected one per edge \[12, 2\]"),
    (2, 13, r"edge_attr: shape \(13, 2\), expected one per edge \[12, 2\]"),
    (None, 12, "edge_attr: got some, but the layer has edge_dim=None"),
])  # fmt: skip
def test_features_of_other_edges_are_refused(edge_dim, rows, message, make_graph) -> None:
    graph = make_graph(1, 7, 7, 12)
    ours, _ = both(edge_dim=edge_dim)
    with pytest.raises(ValueError, match=message):
        ours(graph.features(7, 6), graph.edge_index, graph.features(rows, 2))


@pytest.mark.parametrize("aggregator", ["var", "std"])
def test_every_parameter_has_a_gradient(aggregator, make_graph) -> None:
    graph = make_graph(1, 7, 7, 12)
    for layer in both([aggregator], ["identity"]):
        layer(graph.features(7, 6), graph.edge_index).sum().backward()
        assert all(parameter.grad is not None for parameter in layer.parameters())
