import pytest
import torch
import torch_geometric.nn as pyg

from graphtheory import Neighborhood
from graphtheory.nn.conv import GATConv, GATv2Conv


def both(*args, dtype=torch.float64, **options):
    return [c(*args, **options).to(dtype) for c in (GATConv, pyg.GATConv)]


@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("in_channels", [5, (5, 3)])
def test_targets_without_features_equal_pyg(make_graph, assert_same, in_channels, add_self_loops):
    graph = make_graph(0, 7, 4, 20)
    layers = both(in_channels, 4, heads=2, add_self_loops=add_self_loops)
    assert_same(*layers, (graph.features(7, 5), None), graph.edge_index, size=(7, 4))


def test_one_feature_an_edge_may_lack_its_axis(make_graph, assert_same) -> None:
    graph = make_graph(1, 6, 6, 20)
    given = graph.features(6, 5), graph.edge_index
    assert_same(*both(5, 4, edge_dim=1), *given, graph.features(20))
    conv = both(5, 4)[0]  # which ignores features, as PyG's does
    torch.testing.assert_close(conv(*given, graph.features(20, 3)), conv(*given))


def test_weights_are_returned_after_dropout_as_in_pyg(make_graph) -> None:
    graph = make_graph(3, 6, 6, 30)
    conv, x = GATConv(5, 4, heads=2, dropout=0.5).double(), graph.features(6, 5)
    out, ((src, dst), alpha) = conv(x, graph.edge_index, return_attention_weights=True)
    assert (alpha == 0).any()
    sums = torch.zeros(6, 2, 4, dtype=torch.float64)
    sums = sums.index_add(0, dst, alpha[..., None] * conv.lin(x).view(6, 2, 4)[src])
    torch.testing.assert_close(out, sums.flatten(1) + conv.bias)


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
    assert type(result[0]) is type(expected[0]) and result[0].layout is expected[0].layout
    if form == "EdgeIndex":
        result[0].validate()
        assert torch.equal(result[0].as_tensor(), expected[0].as_tensor())
    else:
        torch.testing.assert_close(result[0].to_dense(), expected[0].to_dense())
    torch.testing.assert_close(result[1], expected[1])
    if form in ("csr", "coo"):  # of both, which torch cannot add for a matrix and its values
        grads = [
            torch.autograd.grad(m.values().sin().sum() + w.cos().sum(), k.att_src)[0]
            for k, (m, w) in ((ours, result), (theirs, expected))
        ]
        torch.testing.assert_close(*grads)


@pytest.mark.parametrize("loops", [True, False])
def test_weights_of_a_csc_matrix_and_a_neighborhood(make_graph, sparse_forms, loops) -> None:
    edge_index = make_graph(6, 6, 6, 20).simple()
    forms, x = sparse_forms(edge_index, 6, 6), torch.randn(6, 4)
    conv = GATConv(4, 3, heads=2, add_self_loops=loops)
    wanted = conv(x, forms["csr"], return_attention_weights=True)[1][0]
    adj, alpha = conv(x, forms["csc"], return_attention_weights=True)[1]
    assert adj.layout is torch.sparse_csc
    torch.testing.assert_close(adj.to_dense(), wanted.to_dense())
    torch.testing.assert_close(adj.values(), alpha)
    nb, edge_attr = Neighborhood.from_edge_index(edge_index, 6), torch.randn(edge_index.size(1), 2)
    conv = GATConv(4, 3, edge_dim=2, add_self_loops=loops)
    wanted = conv(x, nb.edge_index(), edge_attr, return_attention_weights=True)
    for form in (nb, nb.to_int32()):
        torch.testing.assert_close(conv(x, form, edge_attr, return_attention_weights=True), wanted)


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


def test_nan_stays_with_those_who_see_it_and_no_edges_have_no_features(make_graph) -> None:
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    x = torch.randn(4, 3)
    x[1, 0] = torch.nan
    bad = GATConv(3, 2)(x, edge_index).isnan().any(1)
    assert bad.tolist() == [False, True, True, False]
    empty = torch.empty(2, 0, dtype=torch.long)
    assert GATConv(8, 32, heads=2)(torch.randn(0, 8), empty).shape == (0, 64)
    out = GATConv(8, 4, add_self_loops=False)(torch.randn(3, 8), empty)
    assert torch.equal(out, torch.zeros(3, 4))
    graph = make_graph(0, 6, 6, 20)
    x, edge_attr = graph.features(6, 5).float(), torch.zeros(20, 0)
    layer = GATv2Conv(5, 4, heads=2, edge_dim=0)
    out = layer(x, graph.edge_index, edge_attr)
    layer.lin_edge = None
    torch.testing.assert_close(layer(x, graph.edge_index), out)


@pytest.mark.parametrize("fill_value", [0.0, "mean", "max", "mul"])
@pytest.mark.parametrize("kind", [(GATConv, pyg.GATConv), (GATv2Conv, pyg.GATv2Conv)])
@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_features_of_replaced_self_loops_reach_no_gradient(kind, fill_value, bad) -> None:
    found, edges = [], torch.tensor([[0, 1, 2, 1], [1, 2, 0, 1]])
    for one in kind:
        torch.manual_seed(0)
        layer = one(4, 2, edge_dim=1, fill_value=fill_value)
        features = torch.tensor([[1.0], [2.0], [0.5], [bad]], requires_grad=True)
        out = layer(torch.randn(3, 4), edges, features)
        leaves = [features, *layer.parameters()]
        found.append([out, *torch.autograd.grad(out.sin().sum(), leaves)])
    torch.testing.assert_close(*found)
