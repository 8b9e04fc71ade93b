import pickle

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from graphtheory import Neighborhood, cliques
from graphtheory.graph import TOKEN
from graphtheory.nn import SPDTransformerConv
from graphtheory.nn.conv.adjacency import adjacency_of
from graphtheory.nn.conv.spd_transformer_conv import attend
from graphtheory.patterns import AddSelf, Compose, KHop


def definition(conv, x_src, x_dst, edge_index, distance, edge_attr=None, attn_bias=None):
    """Eq. (3.1) and (3.2) node by node, head by head, with nothing but sums; and the weights."""
    heads, dim, rows = conv.heads, conv.out_channels, []
    maps = (conv.lin_query, x_dst), (conv.lin_key, x_src), (conv.lin_value, x_src)
    query, key, value = (linear(x).view(-1, heads, dim) for linear, x in maps)
    scale = dim**-0.5 if conv.scale is None else conv.scale
    if conv.bucket_bias is not None:
        z = conv.bucket_bias.num_buckets
        bucket = distance.clamp(max=z - 1)
        if conv.bucket_bias.own_token:
            bucket = torch.where(distance == TOKEN, z, bucket)
    alpha = torch.zeros(edge_index.size(1), heads, dtype=x_src.dtype)
    for n in range(x_dst.size(0)):
        edges = (edge_index[1] == n).nonzero().flatten()
        sources = edge_index[0, edges]
        per_head = []
        for h in range(heads):
            keys, values = key[sources, h], value[sources, h]
            if edge_attr is not None:
                of_edges = conv.lin_edge(edge_attr[edges]).view(-1, heads, dim)[:, h]
                keys, values = keys + of_edges, values + of_edges
            if conv.value_table is not None:
                values = values + conv.value_table.view(-1, heads, dim)[bucket[edges], h]
            logits = scale * (keys @ query[n, h])
            if conv.bucket_bias is not None:
                logits = logits + conv.bucket_bias.table[bucket[edges], h]
            if attn_bias is not None:
                logits = logits + attn_bias[edges, h]
            alpha[edges, h] = logits.softmax(0)
            per_head.append(logits.softmax(0) @ values)
        rows.append(torch.cat(per_head) if conv.concat else torch.stack(per_head).mean(0))
    out = torch.stack(rows)
    return (out if conv.lin_skip is None else out + conv.lin_skip(x_dst)), alpha


def randomized(conv):
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.normal_(0, 0.5, generator=generator)
    return conv


OPTIONS = [
    {},
    {"heads": 2, "num_buckets": 3},
    {"heads": 2, "concat": False, "scale": 1.0},
    {"heads": 3, "num_buckets": 1, "root_weight": False},
    {"num_buckets": None, "bias": False},
    {"heads": 2, "edge_dim": 3},
    {"heads": 2, "edge_dim": 50, "num_buckets": 4, "value_encoding": True, "scale": 0.7},
    {"heads": 2, "edge_dim": 1, "num_buckets": None, "scale": 1.0, "concat": False},
    {"heads": 2, "num_buckets": 4, "value_encoding": True},
    {"heads": 3, "num_buckets": 4, "value_encoding": True, "edge_dim": 2, "root_weight": False},
    {"heads": 3, "num_buckets": 4, "value_encoding": True, "edge_dim": 3, "own_token": True},
    {"heads": 2, "num_buckets": 300},
]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@settings(max_examples=8)
@given(data=st.data())
def test_layer_and_messages_equal_the_equations(data, options, recompute, draw_graph) -> None:
    """Outputs, weights, and gradients of every input and parameter, in float64."""
    graph = draw_graph(data, bipartite=True)
    conv = randomized(SPDTransformerConv((5, 3), 4, **options).double())
    conv.recompute = recompute
    x, edges, size = (graph.num_src, 5), graph.edge_index, graph.edge_index.size(1)
    x = tuple(graph.features(*shape).requires_grad_() for shape in (x, (graph.num_dst, 3)))
    distance = torch.randint(0, 30, (size,), generator=graph.generator)
    distance[:3] = TOKEN
    edge_attr, attn_bias = None, graph.features(size, conv.heads).requires_grad_()
    leaves = [*x, attn_bias, *conv.parameters()]
    if conv.edge_dim is not None:
        edge_attr = graph.features(size, conv.edge_dim).requires_grad_()
        leaves.append(edge_attr)

    def by_layer():
        more = {"edge_attr": edge_attr, "attn_bias": attn_bias}
        out, (_, weights) = conv(x, edges, distance, return_attention_weights=True, **more)
        plain = conv(x, edges, distance, **more)
        torch.testing.assert_close(plain, out)
        return plain, weights

    def by_messages():
        out, weights = attend(conv, *x, edges, distance, edge_attr, attn_bias)
        return conv._with_root(out, x[1]), weights

    def by_equations():
        return definition(conv, *x, edges, distance, edge_attr, attn_bias)

    results = []
    for run in (by_equations, by_layer, by_messages):
        out, weights = run()
        loss = out.square().sum() + weights.pow(3).sum()
        grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        results.append([out, weights, *grads])
    for found in results[1:]:
        torch.testing.assert_close(found, results[0], rtol=1e-9, atol=1e-9)


def test_without_encoding_it_is_the_transformer_of_pyg(make_graph) -> None:
    graph = make_graph(0, 6, 6, 20)
    plain = pyg.TransformerConv(5, 4, heads=2)
    x = torch.randn(6, 5)
    for num_buckets in (None, 7):  # b = 0 at the start
        conv = SPDTransformerConv(5, 4, heads=2, num_buckets=num_buckets)
        missing = conv.load_state_dict(plain.state_dict(), strict=False)
        assert missing.unexpected_keys == []
        assert missing.missing_keys == ([] if num_buckets is None else ["bucket_bias.table"])
        torch.testing.assert_close(conv(x, graph.edge_index), plain(x, graph.edge_index))
    graph = make_graph(3, 6, 6, 20)
    theirs = pyg.TransformerConv(5, 4, heads=2, edge_dim=3).double()
    x, edge_attr = graph.features(6, 5), graph.features(20, 3)
    conv = SPDTransformerConv(5, 4, heads=2, num_buckets=None, edge_dim=3).double()
    conv.load_state_dict(theirs.state_dict())
    out, (_, alpha) = conv(x, graph.edge_index, edge_attr=edge_attr, return_attention_weights=True)
    wanted, (_, weights) = theirs(x, graph.edge_index, edge_attr, return_attention_weights=True)
    torch.testing.assert_close((out, alpha), (wanted, weights))
    seen = conv.attention_map(x, graph.edge_index, edge_attr=edge_attr)
    targets = graph.edge_index[1].argsort(stable=True)
    torch.testing.assert_close(seen.weights, weights[targets])


def test_a_bias_alone_cannot_tell_nodes_apart_and_vectors_in_the_values_can() -> None:
    """A path and a star of four nodes with equal features, every pair with its distance."""
    path = torch.tensor([[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1], [3, 2, 1, 0]])
    star = torch.tensor([[0, 1, 1, 1], [1, 0, 2, 2], [1, 2, 0, 2], [1, 2, 2, 0]])
    pairs, x = torch.cartesian_prod(torch.arange(4), torch.arange(4)).t(), torch.ones(4, 2)
    for encoded in (False, True):
        conv = SPDTransformerConv(2, 3, heads=2, num_buckets=4, value_encoding=encoded)
        sums = [conv(x, pairs.flip(0).contiguous(), hops.flatten()).sum(0) for hops in (path, star)]
        assert torch.allclose(*sums, atol=1e-5) != encoded


def test_vectors_in_the_values_start_small_and_learn() -> None:
    torch.manual_seed(0)
    plain, torch_state = SPDTransformerConv(4, 3, num_buckets=5), torch.get_rng_state()
    torch.manual_seed(0)
    conv = SPDTransformerConv(4, 3, num_buckets=5, value_encoding=True)
    assert not torch.equal(torch.get_rng_state(), torch_state)
    for name, tensor in plain.state_dict().items():  # what was there before is drawn as before
        assert torch.equal(conv.state_dict()[name], tensor)
    assert 0 < conv.value_table.abs().max() < 0.1
    edge_index, hops = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([1, 1, 2])
    conv(torch.randn(3, 4), edge_index, hops).square().sum().backward()
    assert (conv.value_table.grad.abs().sum(1) > 0).tolist() == [False, True, True, False, False]


@pytest.mark.parametrize("num_buckets", [None, 255])
def test_vectors_in_the_values_need_buckets(num_buckets) -> None:
    with pytest.raises(ValueError, match=f"value_encoding: got num_buckets={num_buckets}"):
        SPDTransformerConv(4, 3, num_buckets=num_buckets, value_encoding=True)


def test_hops_that_are_not_given(make_graph) -> None:
    edge_index = make_graph(1, 6, 6, 20).edge_index
    conv, x = randomized(SPDTransformerConv(5, 4)), torch.randn(6, 5)
    hops = (edge_index[0] != edge_index[1]).long()
    assert 0 < hops.sum() < 20
    torch.testing.assert_close(conv(x, edge_index), conv(x, edge_index, hops))
    graph = make_graph(1, 6, 6, 20)
    conv = SPDTransformerConv(5, 4, num_buckets=3).double()
    torch.nn.init.normal_(conv.bucket_bias.table)
    x = graph.features(6, 5)
    out, _ = attend(conv, x, x, graph.edge_index)
    wanted = conv(x, graph.edge_index)
    torch.testing.assert_close(out.flatten(1) + conv.lin_skip(x), wanted)
    hops = torch.where(graph.edge_index[0] == graph.edge_index[1], 0, 1)
    torch.testing.assert_close(conv(x, graph.edge_index, hops), wanted)
    other, _ = attend(conv, x, x, graph.edge_index, hops + 1)
    assert not torch.allclose(other, out)


def test_distances_of_an_edge_list_are_sorted_once_for_its_edges(make_graph) -> None:
    conv, x = randomized(SPDTransformerConv(5, 4).double()), torch.randn(6, 5).double()
    one, other = (make_graph(seed, 6, 6, 20).edge_index for seed in (1, 2))
    distance = torch.randint(9, (20,), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        conv(x, one, distance)
    adj = adjacency_of(one, 6, 6)
    assert conv._bias(adj, distance).bucket is conv._bias(adj, distance).bucket
    for changed in range(2):
        distance[0] += changed
        for edges in (one, other):
            out = conv(x, edges, distance)
            torch.testing.assert_close(out, definition(conv, x, x, edges, distance)[0])
            out.sum().backward()
    known, later = distance.to(torch.uint8), (distance + 3).to(torch.uint8)
    conv(x, one, known)
    trace = make_fx(lambda hops: conv(x, one, hops))(known)
    torch.testing.assert_close(trace(later), conv(x, one, later))


def test_a_pattern_brings_its_distances(make_graph) -> None:
    edge_index = make_graph(2, 8, 8, 10).edge_index
    graph = Neighborhood.from_edge_index(edge_index, num_nodes=8)
    nb = Compose(KHop(3), AddSelf())(graph)
    assert nb.distance is not None and nb.distance.unique().numel() > 2
    conv, x = (
        randomized(SPDTransformerConv(5, 4, num_buckets=4).double()),
        torch.randn(8, 5).double(),
    )
    wanted, _ = definition(conv, x, x, nb.edge_index(), nb.distance.long())
    torch.testing.assert_close(conv(x, nb), wanted)
    torch.testing.assert_close(conv(x, nb.replace(distance=None), nb.distance), wanted)


def test_weights_lie_in_the_order_of_the_edges(make_graph) -> None:
    edge_index = make_graph(3, 6, 6, 25).edge_index
    distance = torch.randint(0, 9, (25,))
    conv, x = randomized(SPDTransformerConv(5, 4, heads=2)), torch.randn(6, 5)
    out, (edges, alpha) = conv(x, edge_index, distance, return_attention_weights=True)
    assert torch.equal(edges, edge_index)
    value = conv.lin_value(x).view(6, 2, 4)[edges[0]]
    sums = torch.zeros(6, 2, 4).index_add(0, edges[1], alpha[..., None] * value)
    torch.testing.assert_close(out, sums.flatten(1) + conv.lin_skip(x))
    for no in (None, False):
        torch.testing.assert_close(conv(x, edge_index, distance, no), out)
    graph = make_graph(4, 6, 6, 25)
    nb = KHop(2)(Neighborhood.from_edge_index(graph.edge_index, num_nodes=6))
    conv, x = randomized(SPDTransformerConv(5, 4, heads=2)), torch.randn(6, 5)
    _, (edges, alpha) = conv(x, nb, return_attention_weights=True)
    assert torch.equal(edges, nb.edge_index())
    torch.testing.assert_close(conv.attention_map(x, nb).weights, alpha)


def test_a_node_without_neighbors_keeps_its_own_term() -> None:
    edge_index = torch.tensor([[0, 1], [1, 0]])
    conv, x = randomized(SPDTransformerConv(5, 4)), torch.randn(3, 5)
    torch.testing.assert_close(conv(x, edge_index)[2], conv.lin_skip(x)[2])
    bare = SPDTransformerConv(5, 4, root_weight=False)
    assert torch.equal(bare(x, edge_index)[2], torch.zeros(4))


def test_lazy_sizes_representation_reset_and_pickle(make_graph) -> None:
    edge_index = make_graph(7, 6, 6, 20).edge_index
    conv = SPDTransformerConv(-1, 4)
    assert conv(torch.randn(6, 5), edge_index).shape == (6, 4)
    assert conv.lin_key.weight.shape == (4, 5)
    edge_index, x = make_graph(8, 6, 6, 20).edge_index, torch.randn(6, 5)
    conv = randomized(SPDTransformerConv(5, 4, heads=2))
    assert repr(conv) == "SPDTransformerConv(5, 4, heads=2)"
    torch.testing.assert_close(pickle.loads(pickle.dumps(conv))(x, edge_index), conv(x, edge_index))
    before = conv.lin_key.weight.clone()
    conv.reset_parameters()
    assert not torch.equal(conv.lin_key.weight, before)
    assert torch.equal(conv.bucket_bias.table, torch.zeros(20, 2))


def test_distances_follow_the_order_of_each_form(make_graph, sparse_forms) -> None:
    edge_index = make_graph(9, 6, 4, 30).simple()
    conv = randomized(SPDTransformerConv((5, 3), 4, heads=2))
    x = (torch.randn(6, 5), torch.randn(4, 3))
    distance = torch.randint(0, 9, (edge_index.size(1),))
    nb = Neighborhood.from_edge_index(edge_index, num_src=6, num_dst=4)
    wanted = conv(x, edge_index, distance)
    torch.testing.assert_close(conv(x, nb, distance[nb.perm]), wanted)
    by_row = torch.argsort(edge_index[1] * 6 + edge_index[0])
    matrix = sparse_forms(edge_index, 6, 4)["csr"]
    torch.testing.assert_close(conv(x, matrix, distance[by_row]), wanted)


@pytest.mark.parametrize(("given", "error", "message"), [
    ({"distance": torch.zeros(3)}, ValueError, r"distance: shape \(3,\), expected one"),
    ({"distance": [1]}, TypeError, "distance: got list, expected a tensor"),
    ({"attn_bias": torch.zeros(20, 3)}, ValueError, r"attn_bias: shape \(20, 3\), expected"),
    ({"edge_attr": torch.zeros(20, 3)}, ValueError, "edge_attr: got some, but the layer has"),
    ({"distance": torch.rand(20)}, TypeError, "distance: torch.float32"),
    ({"x": torch.zeros(3, 5)}, IndexError, r"edge_index\[0\]: entry .* expected a node id in 0..2"),
    ({"edge_index": torch.rand(2, 20)}, TypeError, "edge_index: dtype torch.float32"),
    ({"edge_index": cliques([5])}, ValueError, r"edge_index: .*5"),
])  # fmt: skip
def test_layer_and_messages_name_what_they_refuse(given, error, message, make_graph) -> None:
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
    assert len(seen) == 1 and not torch.allclose(conv(x, nb.edge_index()), wanted)
