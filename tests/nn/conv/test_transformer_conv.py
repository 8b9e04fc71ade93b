import itertools

import pytest
import torch
import torch_geometric.nn as pyg

from graphtheory import Neighborhood
from graphtheory.nn.conv import TransformerConv


def both(*args, **options):
    return [kind(*args, **options).double() for kind in (TransformerConv, pyg.TransformerConv)]


def test_weights_are_returned_before_dropout(make_graph) -> None:
    graph = make_graph(2, 6, 6, 30)
    conv = TransformerConv(4, 4, heads=2, dropout=0.6).double()
    x = graph.features(6, 4)
    _, (_, alpha) = conv(x, graph.edge_index, return_attention_weights=True)
    sums = torch.zeros(6, 2, dtype=torch.float64).index_add(0, graph.edge_index[1], alpha)
    torch.testing.assert_close(sums[graph.edge_index[1]], torch.ones(30, 2, dtype=torch.float64))


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
