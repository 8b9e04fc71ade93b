"""ResGatedGraphConv beside PyG's, and GatedGCNConv beside its formula."""

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.utils import scatter

from graphtheory import Neighborhood, accelerate
from graphtheory.nn import GatedGCNConv, ResGatedGraphConv
from graphtheory.nn.conv import gated_conv


def both(*args, **options):
    return [kind(*args, **options).double() for kind in (ResGatedGraphConv, pyg.ResGatedGraphConv)]


@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
@pytest.mark.parametrize("edge_dim", [None, 2])
@pytest.mark.parametrize("bipartite", [False, True])
@settings(max_examples=6)
@given(data=st.data())
def test_equals_pyg(data, aggr, edge_dim, bipartite, draw_graph, assert_same) -> None:
    graph = draw_graph(data, bipartite=bipartite)
    x = graph.features(graph.num_src, 6)
    x = (x, graph.features(graph.num_dst, 5)) if bipartite else x
    more = [] if edge_dim is None else [graph.features(graph.edge_index.size(1), edge_dim)]
    layers = both((6, 5) if bipartite else 6, 4, edge_dim=edge_dim, aggr=aggr)
    assert_same(*layers, x, graph.edge_index, *more)


OPTIONS = {
    "flow": {"flow": "target_to_source"}, "no root": {"root_weight": False, "bias": False},
    "function": {"act": torch.sigmoid}, "tanh": {"act": torch.tanh}, "no edges": {"edge_dim": 0},
}  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options_are_pygs(options, make_graph, assert_same) -> None:
    graph = make_graph(1, 7, 7, 25)
    for dim in (options.get("edge_dim"), 3):
        layers = both(6, 4, **options | {"edge_dim": dim})
        more = [] if dim is None else [graph.features(25, dim)]
        assert_same(*layers, graph.features(7, 6), graph.edge_index, *more)


@pytest.mark.parametrize(
    "options", [{}, {"edge_dim": 3}, {"act": torch.tanh}], ids=["default", "edges", "tanh"]
)
def test_what_runs_on_the_core(options, make_graph, monkeypatch) -> None:
    graph, called = make_graph(0, 6, 6, 20), []
    gated_sum = gated_conv.ops.gated_sum
    monkeypatch.setattr(
        gated_conv.ops, "gated_sum",
        lambda value, nb, **terms: called.append(len(value)) or gated_sum(value, nb, **terms),
    )  # fmt: skip
    more = [graph.features(20, 3)] if "edge_dim" in options else []
    ours, theirs = both(6, 4, **options)
    ours.load_state_dict(theirs.state_dict())
    args = graph.features(6, 6), graph.edge_index, *more
    torch.testing.assert_close(ours(*args), theirs(*args))
    assert called == ([] if "act" in options else [20 if more else 6])  # with edges one a message
    theirs.lin_value.register_forward_hook(lambda lin, args, out: 2 * out)
    ours.lin_value.register_forward_hook(lambda lin, args, out: 2 * out)
    called.clear()
    torch.testing.assert_close(ours(*args), theirs(*args))
    assert called == ([] if "act" in options or more else [6])


def test_a_message_of_its_own_is_called(make_graph) -> None:
    class Half(ResGatedGraphConv):
        def message(self, k_i, q_j, v_j, edge_attr):
            return super().message(k_i, q_j, v_j, edge_attr) / 2

    graph, options = make_graph(0, 6, 6, 20), {"root_weight": False, "bias": False}
    x, layer, half = graph.features(6, 6), both(6, 4, **options)[0], Half(6, 4, **options).double()
    half.load_state_dict(layer.state_dict())
    torch.testing.assert_close(half(x, graph.edge_index), layer(x, graph.edge_index) / 2)


def test_accelerate_keeps_another_gate() -> None:
    report = accelerate(torch.nn.ModuleList([pyg.ResGatedGraphConv(6, 4, act=torch.nn.Tanh())]))
    assert [entry.reason for entry in report.kept] == ["act: got Tanh(), expected a sigmoid"]
    report = accelerate(torch.nn.ModuleList([GatedGCNConv(6, 4, 2)]))
    assert "a subclass of ResGatedGraphConv" in str(report)


def test_features_that_do_not_fit(make_graph) -> None:
    graph = make_graph(0, 6, 6, 20)
    x = graph.features(6, 6)
    with pytest.raises(ValueError, match=r"edge_attr: shape \(5, 3\), expected \[20, edge_dim\]"):
        both(6, 4, edge_dim=3)[0](x, graph.edge_index, graph.features(5, 3))
    layer = GatedGCNConv(6, 4, 3).double()
    with pytest.raises(ValueError, match=r"edge_attr: shape \(20, 2\), expected 3 features"):
        layer(x, graph.edge_index, graph.features(20, 2))
    with pytest.raises(TypeError, match=r"edge_attr: dtype torch\.int64, expected a floating"):
        layer(x, graph.edge_index, torch.ones(20, 3, dtype=torch.int64))


def formula(layer, x, edge_index, edge_attr):
    """GatedGCN as it stands, with one tensor for each part of a message."""
    j, i = edge_index if layer.flow == "source_to_target" else edge_index.flip(0)
    states = layer.lin_edge(edge_attr) + layer.lin_query(x)[j] + layer.lin_key(x)[i]
    gates, messages = states.sigmoid(), layer.lin_value(x)[j]
    out = scatter(gates * messages, i, 0, len(x))
    if layer.normalize:
        out = out / (scatter(gates, i, 0, len(x)) + layer.eps)
    for more in (layer.lin_skip and layer.lin_skip(x), layer.bias):
        out = out if more is None else out + more
    return out, states


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"flow": "target_to_source", "root_weight": False, "bias": False}], ids=str
)
@settings(max_examples=10)
@given(data=st.data())
def test_gated_gcn_is_its_formula(data, options, normalize, draw_graph) -> None:
    graph = draw_graph(data)
    layer = GatedGCNConv(6, 4, 3, normalize=normalize, **options).double()
    given = graph.features(graph.num_src, 6), graph.features(graph.edge_index.size(1), 3)
    leaves = [*(t.requires_grad_() for t in given), *layer.parameters()]
    results = []
    for run in (layer, lambda *args: formula(layer, *args)):
        outs = run(given[0], graph.edge_index, given[1])
        loss = sum((out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum() for out in outs)
        results.append([*outs, *torch.autograd.grad(loss, leaves)])
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)


def test_states_follow_the_rows_of_a_neighborhood(make_graph) -> None:
    graph = make_graph(0, 6, 6, 20)
    nb = Neighborhood.from_edge_index(graph.edge_index, num_nodes=6)
    x, edge_attr, layer = (
        graph.features(6, 6),
        graph.features(20, 3),
        GatedGCNConv(6, 4, 3).double(),
    )
    wanted, states = layer(x, graph.edge_index, edge_attr)
    out, by_row = layer(x, nb, edge_attr[nb.perm])
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(by_row, states[nb.perm])


def test_values_of_a_matrix_are_features_as_in_pyg(make_graph) -> None:
    sparse, graph = pytest.importorskip("torch_sparse"), make_graph(1, 7, 7, 25)
    edges = graph.simple()
    features = graph.features(edges.size(1), 3)
    matrix = sparse.SparseTensor.from_edge_index(edges, features, (7, 7)).t()
    ours, theirs = both(6, 4, edge_dim=3)
    ours.load_state_dict(theirs.state_dict())
    x = graph.features(7, 6)
    torch.testing.assert_close(ours(x, matrix), theirs(x, matrix))
