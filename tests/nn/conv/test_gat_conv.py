import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheory import Neighborhood
from graphtheory.nn.conv import GATConv

OPTIONS = [
    {},
    {"heads": 3, "residual": True},
    {"heads": 2, "concat": False, "bias": False},
    {"heads": 2, "add_self_loops": False, "negative_slope": 0.5},
    {"heads": 2, "edge_dim": 4, "residual": True, "concat": False},
    {"edge_dim": 1, "fill_value": 0.5},
    {"heads": 2, "edge_dim": 2, "fill_value": torch.tensor([0.3, -1.0])},
    {"heads": 2, "edge_dim": 2, "fill_value": "add"},
    {"edge_dim": 3, "fill_value": "min"},
    {"edge_dim": 3, "fill_value": "max"},
    {"heads": 2, "edge_dim": 2, "fill_value": "mul"},
    {"heads": 2, "edge_dim": 2, "add_self_loops": False},
]


def both(*args, dtype=torch.float64, **options):
    return [c(*args, **options).to(dtype) for c in (GATConv, pyg.GATConv)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@settings(max_examples=12)
@given(data=st.data())
def test_equals_pyg(data, options, draw_graph, assert_same) -> None:
    graph = draw_graph(data)
    dtype = data.draw(st.sampled_from([torch.float64, torch.float32]), "dtype")
    args = [graph.features(graph.num_src, 5, dtype=dtype), graph.edge_index]
    if "edge_dim" in options:
        args.append(graph.features(graph.edge_index.size(1), options["edge_dim"], dtype=dtype))
    assert_same(*both(5, 6, dtype=dtype, **options), *args)


@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("options", [{"heads": 2, "residual": True}, {"edge_dim": 2}], ids=str)
@settings(max_examples=12)
@given(data=st.data())
def test_equals_pyg_on_two_node_sets(
    data, options, add_self_loops, draw_graph, assert_same
) -> None:
    graph = draw_graph(data, bipartite=True)
    x = (graph.features(graph.num_src, 5), graph.features(graph.num_dst, 3))
    edge_attr = None
    if "edge_dim" in options:
        edge_attr = graph.features(graph.edge_index.size(1), options["edge_dim"])
        options = {**options, "fill_value": 0.5}  # PyG's means need num_dst <= num_src
    layers = both((5, 3), 6, add_self_loops=add_self_loops, **options)
    assert_same(*layers, x, graph.edge_index, edge_attr)


@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("in_channels", [5, (5, 3)])
def test_targets_without_features_equal_pyg(
    make_graph, assert_same, in_channels, add_self_loops
) -> None:
    graph = make_graph(0, 7, 4, 20)
    layers = both(in_channels, 4, heads=2, add_self_loops=add_self_loops)
    assert_same(*layers, (graph.features(7, 5), None), graph.edge_index, size=(7, 4))


def test_other_flow_equals_pyg(make_graph, assert_same) -> None:
    graph = make_graph(0, 6, 6, 20)
    layers = both(5, 4, heads=2, edge_dim=3, flow="target_to_source")
    assert_same(*layers, graph.features(6, 5), graph.edge_index, graph.features(20, 3))


def test_one_feature_an_edge_may_lack_its_axis(make_graph, assert_same) -> None:
    graph = make_graph(1, 6, 6, 20)
    layers = both(5, 4, edge_dim=1)
    assert_same(*layers, graph.features(6, 5), graph.edge_index, graph.features(20))


def test_edge_attr_without_edge_dim_is_ignored_as_in_pyg(make_graph, assert_same) -> None:
    graph = make_graph(1, 6, 6, 20)
    ours, theirs = both(5, 4)
    x, edge_attr = graph.features(6, 5), graph.features(20, 3).requires_grad_(False)
    assert_same(ours, theirs, x, graph.edge_index)
    torch.testing.assert_close(ours(x, graph.edge_index, edge_attr), ours(x, graph.edge_index))


def test_no_nodes_and_no_edges() -> None:
    empty = torch.empty(2, 0, dtype=torch.long)
    assert GATConv(8, 32, heads=2)(torch.randn(0, 8), empty).shape == (0, 64)
    out = GATConv(8, 4, add_self_loops=False)(torch.randn(3, 8), empty)
    assert torch.equal(out, torch.zeros(3, 4))


@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("edge_dim", [None, 2])
def test_attention_weights_equal_pyg(make_graph, edge_dim, add_self_loops) -> None:
    graph = make_graph(2, 6, 6, 30)
    assert (graph.edge_index[0] == graph.edge_index[1]).any()
    ours, theirs = both(5, 4, heads=3, edge_dim=edge_dim, add_self_loops=add_self_loops)
    ours.load_state_dict(theirs.state_dict())
    x = graph.features(6, 5)
    edge_attr = None if edge_dim is None else graph.features(30, edge_dim)
    result = ours(x, graph.edge_index, edge_attr, return_attention_weights=True)
    wanted = theirs(x, graph.edge_index, edge_attr, return_attention_weights=True)
    torch.testing.assert_close(result, wanted)
    out = ours(x, graph.edge_index, edge_attr, return_attention_weights=False)
    torch.testing.assert_close(out, wanted[0])


def test_weights_are_returned_after_dropout_as_in_pyg(make_graph) -> None:
    graph = make_graph(3, 6, 6, 30)
    conv, x = GATConv(5, 4, heads=2, dropout=0.5).double(), graph.features(6, 5)
    out, ((src, dst), alpha) = conv(x, graph.edge_index, return_attention_weights=True)
    assert (alpha == 0).any()
    sums = torch.zeros(6, 2, 4, dtype=torch.float64)
    sums = sums.index_add(0, dst, alpha[..., None] * conv.lin(x).view(6, 2, 4)[src])
    torch.testing.assert_close(out, sums.flatten(1) + conv.bias)


def test_every_form_of_the_graph_gives_the_same(make_graph, sparse_forms) -> None:
    edge_index = make_graph(4, 6, 6, 30).simple()
    conv, x = GATConv(5, 4, heads=2), torch.randn(6, 5)
    wanted = conv(x, edge_index)
    nb = Neighborhood.from_edge_index(edge_index, num_nodes=6)
    forms = {"Neighborhood": nb, "ids of 32 bits": nb.to_int32()}
    for form, adj in {**sparse_forms(edge_index, 6, 6), **forms}.items():
        for size in (None, (6, 6)):
            out = conv(x, adj, size=size)
            torch.testing.assert_close(out, wanted, msg=lambda m, form=form: f"{form}: {m}")


def test_forms_know_the_number_of_targets(make_graph, sparse_forms) -> None:
    edge_index = make_graph(5, 6, 4, 20).simple()
    conv, x = GATConv((5, 3), 4), (torch.randn(6, 5), None)
    wanted = conv(x, edge_index, size=(6, 4))
    nb = Neighborhood.from_edge_index(edge_index, num_src=6, num_dst=4)
    forms = {**sparse_forms(edge_index, 6, 4), "Neighborhood": nb, "ids of 32 bits": nb.to_int32()}
    for form in forms.keys() - {"edge_index", "int32"}:
        torch.testing.assert_close(conv(x, forms[form]), wanted)


@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("form", ["EdgeIndex", "csr", "coo", "SparseTensor"])
def test_weights_of_other_forms_equal_pyg(make_graph, sparse_forms, form, add_self_loops) -> None:
    forms = sparse_forms(make_graph(6, 6, 6, 20).simple(), 6, 6)
    if form not in forms:
        pytest.skip("needs torch-sparse")
    ours, theirs = both(4, 3, dtype=torch.float32, heads=2, add_self_loops=add_self_loops)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(6, 4)
    out, result = ours(x, forms[form], return_attention_weights=True)
    wanted, expected = theirs(x, forms[form], return_attention_weights=True)
    torch.testing.assert_close(out, wanted)
    if form == "SparseTensor":
        assert result.sizes() == expected.sizes() == [6, 6, 2]
        torch.testing.assert_close(result.to_dense(), expected.to_dense())
        return
    assert type(result[0]) is type(expected[0])
    assert result[0].layout is expected[0].layout
    if form == "EdgeIndex":
        result[0].validate()
        assert torch.equal(result[0].as_tensor(), expected[0].as_tensor())
    else:
        torch.testing.assert_close(result[0].to_dense(), expected[0].to_dense())
    torch.testing.assert_close(result[1], expected[1])


def test_weights_of_a_csc_matrix(make_graph, sparse_forms) -> None:
    edge_index = make_graph(6, 6, 6, 20).simple()
    forms, conv, x = sparse_forms(edge_index, 6, 6), GATConv(4, 3, heads=2), torch.randn(6, 4)
    for add_self_loops in (True, False):
        conv.add_self_loops = add_self_loops
        wanted = conv(x, forms["csr"], return_attention_weights=True)[1][0]
        adj, alpha = conv(x, forms["csc"], return_attention_weights=True)[1]
        assert adj.layout is torch.sparse_csc
        torch.testing.assert_close(adj.to_dense(), wanted.to_dense())
        torch.testing.assert_close(adj.values(), alpha)


@pytest.mark.parametrize("loops", [True, False])
def test_weights_of_a_neighborhood(make_graph, loops: bool) -> None:
    edge_index = make_graph(7, 5, 5, 12).edge_index
    nb = Neighborhood.from_edge_index(edge_index, num_nodes=5)
    edge_attr, x = torch.randn(12, 2), torch.randn(5, 4)
    conv = GATConv(4, 3, edge_dim=2, add_self_loops=loops)
    wanted = conv(x, nb.edge_index(), edge_attr, return_attention_weights=True)
    for form in (nb, nb.to_int32()):
        torch.testing.assert_close(conv(x, form, edge_attr, return_attention_weights=True), wanted)


@pytest.mark.parametrize("fill_value", ["mean", 2.0])
def test_features_stored_in_a_sparse_matrix(make_graph, fill_value) -> None:
    """PyG refuses them beside self-loops."""
    sparse = pytest.importorskip("torch_sparse")
    edge_index = make_graph(6, 6, 6, 20).simple()
    edge_attr, x = torch.randn(edge_index.size(1), 3), torch.randn(6, 4)
    adj = sparse.SparseTensor.from_edge_index(edge_index, edge_attr, (6, 6)).t()
    conv = GATConv(4, 3, edge_dim=3, fill_value=fill_value)
    torch.testing.assert_close(conv(x, adj), conv(x, edge_index, edge_attr))


def test_a_weight_stored_in_a_sparse_tensor_is_no_row_of_features(make_graph) -> None:
    sparse = pytest.importorskip("torch_sparse")
    graph = make_graph(6, 6, 6, 20)
    weights = graph.weights(torch.float32)
    adj = sparse.SparseTensor.from_edge_index(graph.edge_index, weights, (6, 6)).t()
    x = torch.randn(6, 4)
    assert GATConv(4, 3)(x, adj).shape == (6, 3)
    with pytest.raises(ValueError, match="edge_attr: got none beside a SparseTensor"):
        GATConv(4, 3, edge_dim=2)(x, adj)


def test_means_of_self_loops_on_more_targets_than_sources(make_graph) -> None:
    """PyG's layer fails there."""
    graph = make_graph(8, 3, 6, 25)
    conv = GATConv((5, 5), 4, edge_dim=2).double()
    x, edge_attr = (graph.features(3, 5), graph.features(6, 5)), graph.features(25, 2)
    keep = graph.edge_index[0] != graph.edge_index[1]
    means = [edge_attr[keep & (graph.edge_index[1] == i)].mean(0) for i in range(3)]
    loops = torch.arange(3).expand(2, 3)
    edges = torch.cat([graph.edge_index[:, keep], loops], 1)
    wanted = GATConv((5, 5), 4, edge_dim=2, add_self_loops=False).double()
    wanted.load_state_dict(conv.state_dict())
    torch.testing.assert_close(
        conv(x, graph.edge_index, edge_attr),
        wanted(x, edges, torch.cat([edge_attr[keep], torch.stack(means).nan_to_num()])),
    )


def test_nan_stays_with_those_who_see_it() -> None:
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    x = torch.randn(4, 3)
    x[1, 0] = torch.nan
    bad = GATConv(3, 2)(x, edge_index).isnan().any(1)
    assert bad.tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("x", "edge_index", "kwargs", "error", "message"),
    [
        (torch.randn(3, 5), [[0], [1]], {}, ValueError, "x: shape .3, 5., expected 4 features"),
        (
            torch.randn(2, 3, 4),
            [[0], [1]],
            {},
            ValueError,
            "x: shape .2, 3, 4., expected .num_node",
        ),
        (torch.randn(3, 4), [[0.0], [1.0]], {}, TypeError, "edge_index: dtype torch.float32"),
        (torch.randn(3, 4), [[0], [3]], {}, IndexError, r"edge_index\[1\]: entry 0 is 3"),
        (torch.randn(3, 4), [[-1], [1]], {}, IndexError, r"edge_index\[0\]: entry 0 is -1"),
        (torch.randn(3, 4), [0, 1], {}, ValueError, "edge_index: shape .2,., expected .2, num"),
        (torch.randn(3, 4), [[0], [1]], {"size": (3, 2)}, ValueError, "size: got .3, 2., expected"),
        (torch.randn(3, 4), [[0], [1]], {"size": (4, 3)}, ValueError, "size: got .4, 3., expected"),
    ],
)
@pytest.mark.parametrize("add_self_loops", [True, False])
def test_errors_name_the_argument(x, edge_index, kwargs, error, message, add_self_loops) -> None:
    conv = GATConv(4, 2, add_self_loops=add_self_loops)
    with pytest.raises(error, match=message):
        conv(x, torch.tensor(edge_index), **kwargs)
