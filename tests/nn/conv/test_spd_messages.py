"""The layer's definition by messages beside the layer."""

import pytest
import torch

from graphtheory import Neighborhood
from graphtheory.nn import SPDTransformerConv
from graphtheory.nn.conv import spd_messages

OPTIONS = [
    {},
    {"heads": 2, "num_buckets": 3, "concat": False, "scale": 1.0},
    {"heads": 2, "num_buckets": None, "edge_dim": 3, "root_weight": False},
    {"heads": 3, "num_buckets": 4, "value_encoding": True, "edge_dim": 3, "own_token": True},
    {"heads": 2, "num_buckets": 300},
]


@pytest.fixture(params=OPTIONS, ids=str)
def case(request, make_graph):
    """A layer with random parameters, a graph of two sets of nodes, features of all kinds."""
    graph = make_graph(0, 7, 5, 30)
    conv = SPDTransformerConv((5, 3), 4, **request.param).double()
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.normal_(0, 0.5, generator=graph.generator)
    x = graph.features(7, 5), graph.features(5, 3)
    distance = torch.randint(9, (30,), generator=graph.generator)
    distance[:3] = 254  # pairs with a graph token
    edge_attr = graph.features(30, 3) if conv.edge_dim else None
    return conv, x, graph.edge_index, (distance, edge_attr, graph.features(30, conv.heads))


def by_messages(conv, x, edge_index, distance, edge_attr, attn_bias):
    out, weights = spd_messages.attend(conv, *x, edge_index, distance, edge_attr, attn_bias)
    out = out.flatten(1) if conv.concat else out.mean(1)
    return (out if conv.lin_skip is None else out + conv.lin_skip(x[1])), weights


def by_layer(conv, x, edge_index, distance, edge_attr, attn_bias):
    out, (_, weights) = conv(
        x, edge_index, distance, edge_attr=edge_attr, attn_bias=attn_bias,
        return_attention_weights=True,
    )  # fmt: skip
    plain = conv(x, edge_index, distance, edge_attr=edge_attr, attn_bias=attn_bias)
    torch.testing.assert_close(plain, out)
    return plain, weights


def test_layer_and_messages_agree(case) -> None:
    """Outputs, weights, and gradients of every input and parameter, in float64."""
    conv, x, edge_index, (distance, edge_attr, attn_bias) = case
    leaves = [*x, attn_bias, *conv.parameters()] + ([] if edge_attr is None else [edge_attr])
    for leaf in leaves:
        leaf.requires_grad_()
    results = []
    for run in (by_messages, by_layer):
        out, weights = run(conv, x, edge_index, distance, edge_attr, attn_bias)
        loss = out.square().sum() + weights.pow(3).sum()
        grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        results.append([out, weights, *grads])
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)
    assert all(grad.abs().max() > 0 for grad in results[0][2:])


def test_hops_that_are_not_given(make_graph) -> None:
    graph = make_graph(1, 6, 6, 20)
    conv = SPDTransformerConv(5, 4, num_buckets=3).double()
    torch.nn.init.normal_(conv.bucket_bias.table)
    x = graph.features(6, 5)
    out, _ = spd_messages.attend(conv, x, x, graph.edge_index)
    wanted = conv(x, graph.edge_index)
    torch.testing.assert_close(out.flatten(1) + conv.lin_skip(x), wanted)
    hops = torch.where(graph.edge_index[0] == graph.edge_index[1], 0, 1)
    torch.testing.assert_close(conv(x, graph.edge_index, hops), wanted)
    other, _ = spd_messages.attend(conv, x, x, graph.edge_index, hops + 1)
    assert not torch.allclose(other, out)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"distance": torch.zeros(3)}, ValueError, r"distance: shape \(3,\), expected one entry"),
        ({"distance": [1]}, TypeError, "distance: got list, expected a tensor of hops"),
        ({"attn_bias": torch.zeros(20, 3)}, ValueError, r"attn_bias: shape \(20, 3\), expected"),
        ({"edge_attr": torch.zeros(20, 3)}, ValueError, "edge_attr: got some, but the layer has"),
        ({"x": torch.zeros(3, 5)}, IndexError, "expected a node id in 0..2"),
    ],
    ids=["length", "list", "bias", "features", "nodes"],
)
def test_messages_refuse_what_the_layer_refuses(given, error, message, make_graph) -> None:
    conv, handles = SPDTransformerConv(5, 4, heads=2), []
    arguments = {"x": torch.zeros(6, 5), "edge_index": make_graph(0, 6, 6, 20).edge_index} | given
    for _ in range(2):  # without a hook, then with one, which asks for messages
        with pytest.raises(error, match=message):
            conv(**arguments)
        handles.append(conv.register_message_forward_hook(lambda *_: None))


def test_hops_of_a_neighborhood_reach_the_messages(make_graph) -> None:
    edge_index = make_graph(0, 6, 6, 20).edge_index
    nb = Neighborhood.from_edge_index(edge_index, num_nodes=6)
    nb = nb.replace(distance=torch.arange(20, dtype=torch.uint8))
    conv, x = SPDTransformerConv(5, 4), torch.randn(6, 5)
    torch.nn.init.normal_(conv.bucket_bias.table)
    wanted, seen = conv(x, nb), []
    conv.register_message_forward_hook(lambda *given: seen.append(given))
    torch.testing.assert_close(conv(x, nb), wanted)
    assert len(seen) == 1
    assert not torch.allclose(conv(x, nb.edge_index()), wanted)
