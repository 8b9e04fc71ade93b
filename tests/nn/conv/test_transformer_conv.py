import itertools

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheory import Neighborhood
from graphtheory.nn.conv import TransformerConv

OPTIONS = [
    {},
    {"heads": 3},
    {"heads": 2, "concat": False},
    {"heads": 2, "beta": True},
    {"heads": 2, "beta": True, "concat": False, "edge_dim": 4},
    {"heads": 3, "edge_dim": 50, "bias": False},
    {"heads": 3, "edge_dim": 1, "bias": False},
    {"heads": 2, "edge_dim": 4, "root_weight": False},
    {"beta": True, "root_weight": False},
]


def both(*args, dtype=torch.float64, recompute=False, **options):
    ours = TransformerConv(*args, **options)
    ours.recompute = recompute
    return [ours.to(dtype), pyg.TransformerConv(*args, **options).to(dtype)]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@settings(max_examples=12)
@given(data=st.data())
def test_equals_pyg(data, options, recompute, draw_graph, assert_same) -> None:
    graph = draw_graph(data)
    dtype = data.draw(st.sampled_from([torch.float64, torch.float32]), "dtype")
    args = [graph.features(graph.num_src, 5, dtype=dtype), graph.edge_index]
    if "edge_dim" in options:
        args.append(graph.features(graph.edge_index.size(1), options["edge_dim"], dtype=dtype))
    assert_same(*both(5, 6, dtype=dtype, recompute=recompute, **options), *args)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("options", OPTIONS[3:7], ids=str)
@settings(max_examples=12)
@given(data=st.data())
def test_equals_pyg_on_two_node_sets(data, options, recompute, draw_graph, assert_same) -> None:
    graph = draw_graph(data, bipartite=True)
    x = (graph.features(graph.num_src, 5), graph.features(graph.num_dst, 3))
    edge_attr = None
    if "edge_dim" in options:
        edge_attr = graph.features(graph.edge_index.size(1), options["edge_dim"])
    layers = both((5, 3), 6, recompute=recompute, **options)
    assert_same(*layers, x, graph.edge_index, edge_attr)


def test_other_flow_equals_pyg(make_graph, assert_same) -> None:
    graph = make_graph(0, 6, 6, 20)
    layers = both(5, 4, heads=2, edge_dim=3, flow="target_to_source")
    assert_same(*layers, graph.features(6, 5), graph.edge_index, graph.features(20, 3))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_attention_weights_equal_pyg(make_graph, edge_dim, recompute) -> None:
    graph = make_graph(1, 7, 5, 30)
    ours, theirs = both(5, 4, heads=3, edge_dim=edge_dim, recompute=recompute)
    ours.load_state_dict(theirs.state_dict())
    edge_attr = None if edge_dim is None else graph.features(30, edge_dim)
    x = (graph.features(7, 5), graph.features(5, 5))
    out, (edges, alpha) = ours(x, graph.edge_index, edge_attr, return_attention_weights=True)
    wanted = theirs(x, graph.edge_index, edge_attr, return_attention_weights=True)
    assert edges is graph.edge_index
    torch.testing.assert_close((out, alpha), (wanted[0], wanted[1][1]))
    assert isinstance(ours(x, graph.edge_index, edge_attr), torch.Tensor)
    no_weights = ours(x, graph.edge_index, edge_attr, return_attention_weights=False)
    torch.testing.assert_close(no_weights, out)


def test_weights_are_returned_before_dropout(make_graph) -> None:
    graph = make_graph(2, 6, 6, 30)
    conv = TransformerConv(4, 4, heads=2, dropout=0.6).double()
    x = graph.features(6, 4)
    _, (_, alpha) = conv(x, graph.edge_index, return_attention_weights=True)
    sums = torch.zeros(6, 2, dtype=torch.float64).index_add(0, graph.edge_index[1], alpha)
    torch.testing.assert_close(sums[graph.edge_index[1]], torch.ones(30, 2, dtype=torch.float64))


@pytest.mark.parametrize("edge_dim", [None, 2])
def test_dropout_keeps_the_expectation(make_graph, edge_dim) -> None:
    graph = make_graph(3, 5, 5, 15)
    conv = TransformerConv(4, 3, dropout=0.4, edge_dim=edge_dim, root_weight=False)
    args = [graph.features(5, 4, dtype=torch.float32), graph.edge_index]
    if edge_dim:
        args.append(graph.features(15, edge_dim, dtype=torch.float32))
    torch.manual_seed(0)
    with torch.no_grad():
        draws = torch.stack([conv(*args) for _ in range(800)])
        wanted = conv.eval()(*args)
    assert draws.std(0).max() > 0.1
    assert (draws.mean(0) - wanted).abs().max() < 0.15


def test_every_form_of_the_graph_gives_the_same(make_graph, sparse_forms) -> None:
    edge_index = make_graph(4, 6, 4, 30).simple()
    conv = TransformerConv((5, 3), 4, heads=2)
    x = (torch.randn(6, 5), torch.randn(4, 3))
    wanted = conv(x, edge_index)
    nb = Neighborhood.from_edge_index(edge_index, num_src=6, num_dst=4)
    forms = {"Neighborhood": nb, "ids of 32 bits": nb.to_int32()}
    for form, adj in {**sparse_forms(edge_index, 6, 4), **forms}.items():
        torch.testing.assert_close(conv(x, adj), wanted, msg=lambda m, form=form: f"{form}: {m}")


@pytest.mark.parametrize("form", ["csr", "coo", "csc", "SparseTensor"])
def test_weights_of_sparse_matrices(make_graph, sparse_forms, form) -> None:
    edge_index = make_graph(5, 6, 6, 20).simple()
    forms = sparse_forms(edge_index, 6, 6)
    if form not in forms:
        pytest.skip("needs torch-sparse")
    conv, x = TransformerConv(4, 3, heads=2), torch.randn(6, 4)
    _, (_, alpha) = conv(x, edge_index, return_attention_weights=True)
    wanted = torch.zeros(6, 6, 2).index_put((edge_index[1], edge_index[0]), alpha)
    _, result = conv(x, forms[form], return_attention_weights=True)
    if form == "SparseTensor":
        torch.testing.assert_close(result.to_dense(), wanted)
        return
    adj, weights = result
    assert adj is forms[form]
    rows, cols = adj.to_sparse_coo().coalesce().indices()
    if form == "csc":
        order = torch.argsort(cols * 6 + rows)
        rows, cols = rows[order], cols[order]
    torch.testing.assert_close(torch.zeros(6, 6, 2).index_put((rows, cols), weights), wanted)


def test_features_stored_in_a_sparse_matrix(make_graph) -> None:
    sparse = pytest.importorskip("torch_sparse")
    edge_index = make_graph(6, 6, 6, 20).simple()
    edge_attr, x = torch.randn(edge_index.size(1), 3), torch.randn(6, 4)
    adj = sparse.SparseTensor.from_edge_index(edge_index, edge_attr, (6, 6)).t()
    conv = TransformerConv(4, 3, edge_dim=3)
    torch.testing.assert_close(conv(x, adj), conv(x, edge_index, edge_attr))


def test_edge_attr_follows_the_rows_of_a_neighborhood(make_graph) -> None:
    edge_index = make_graph(7, 5, 5, 12).edge_index
    nb = Neighborhood.from_edge_index(edge_index, num_nodes=5)
    edge_attr, x = torch.randn(12, 2), torch.randn(5, 4)
    conv = TransformerConv(4, 3, edge_dim=2)
    wanted = conv(x, edge_index, edge_attr)
    torch.testing.assert_close(conv(x, nb, edge_attr[nb.perm]), wanted)
    _, (edges, alpha) = conv(x, nb, edge_attr[nb.perm], return_attention_weights=True)
    assert torch.equal(edges, nb.edge_index())
    wanted = conv(x, edge_index, edge_attr, return_attention_weights=True)[1][1]
    torch.testing.assert_close(alpha, wanted[nb.perm])


def test_no_tensor_has_an_edge_axis_and_the_features_of_a_head(make_graph) -> None:
    edges, heads, dim = 3000, 2, 32
    graph = make_graph(8, 10, 10, edges)
    conv = TransformerConv(4, dim, heads=heads, edge_dim=2)
    x = graph.features(10, 4, dtype=torch.float32).requires_grad_()
    edge_attr = graph.features(edges, 2, dtype=torch.float32).requires_grad_()
    conv(x, graph.edge_index, edge_attr).sum().backward()  # warm
    with torch.profiler.profile(profile_memory=True) as profile:
        conv(x, graph.edge_index, edge_attr).sum().backward()
    largest = max(e.cpu_memory_usage for e in profile.events() if not e.cpu_children)
    assert 0 < largest < edges * heads * dim * 4 / 2


@pytest.mark.parametrize(
    ("x", "options", "args", "message"),
    [
        (torch.randn(3, 5), {}, (), "x: shape .3, 5., expected 4 features"),
        (torch.randn(4), {}, (), "x: shape .4,., expected .num_nodes, in_channels."),
        ((torch.randn(3, 4), None), {}, (), "x: got .x_src, None."),
        (torch.randn(3, 4), {}, (torch.randn(2, 1),), "edge_attr: got some, .* edge_dim=None"),
        (torch.randn(3, 4), {"edge_dim": 2}, (), "edge_attr: got none, .* edge_dim=2"),
        (torch.randn(3, 4), {"edge_dim": 2}, (torch.randn(3, 2),), "edge_attr: shape .3, 2."),
        (torch.randn(3, 4), {"edge_dim": 2}, (torch.randn(2, 5),), "edge_attr: shape .2, 5."),
    ],
)
def test_errors_name_the_argument(x, options, args, message) -> None:
    conv = TransformerConv(4, 3, **options)
    with pytest.raises(ValueError, match=message):
        conv(x, torch.tensor([[0, 1], [1, 2]]), *args)


@pytest.mark.parametrize("in_channels", [5, -1, (5, 3), (-1, -1)], ids=str)
def test_every_option_beside_edge_features_equals_pyg(make_graph, assert_same, in_channels) -> None:
    two = isinstance(in_channels, tuple)
    graph = make_graph(9, 7, 4 if two else 7, 25)
    x, edge_attr = graph.features(7, 5), graph.features(25, 3)
    x = (x, graph.features(4, 3)) if two else x
    for concat, beta, bias, root_weight in itertools.product([True, False], repeat=4):
        if in_channels in (-1, (-1, -1)) and not root_weight:
            continue  # W_1 would stay without a size
        options = {"concat": concat, "beta": beta, "bias": bias, "root_weight": root_weight}
        layers = both(in_channels, 6, heads=3, edge_dim=3, **options)
        with torch.no_grad():  # channels of -1 are known after the first call
            for layer in layers:
                layer(x, graph.edge_index, edge_attr)
        assert_same(*layers, x, graph.edge_index, edge_attr)


def test_dropout_of_the_weights_is_that_of_the_sums_of_edge_features() -> None:
    """With one edge a node, what is dropped takes the value and the features with it."""
    conv = TransformerConv(4, 3, dropout=0.5, edge_dim=2, root_weight=False)
    edge_index, edge_attr = torch.arange(50).repeat(2, 1), torch.randn(50, 2)
    x = torch.randn(50, 4)
    torch.manual_seed(0)
    dropped, kept = conv(x, edge_index, edge_attr), conv.eval()(x, edge_index, edge_attr)
    gone = dropped.eq(0).all(1)
    assert 10 < gone.sum() < 40
    torch.testing.assert_close(dropped[~gone], 2 * kept[~gone])
