import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheory import Neighborhood
from graphtheory.nn.conv import GATv2Conv

OPTIONS = [
    {},
    {"heads": 3, "residual": True},
    {"heads": 2, "concat": False, "bias": False},
    {"heads": 2, "share_weights": True},
    {"heads": 2, "add_self_loops": False, "negative_slope": 0.5},
    {"heads": 2, "edge_dim": 4, "residual": True, "concat": False},
    {"edge_dim": 1, "fill_value": 0.5, "share_weights": True},
    {"heads": 2, "edge_dim": 2, "fill_value": "max"},
    {"heads": 2, "edge_dim": 2, "add_self_loops": False},
]


def both(*args, dtype=torch.float64, **options):
    return [c(*args, **options).to(dtype) for c in (GATv2Conv, pyg.GATv2Conv)]


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


def test_edges_without_features(make_graph) -> None:
    graph = make_graph(0, 6, 6, 20)
    x, edge_attr = graph.features(6, 5).float(), torch.zeros(20, 0)
    layer = GATv2Conv(5, 4, heads=2, edge_dim=0)
    out = layer(x, graph.edge_index, edge_attr)
    layer.lin_edge = None
    torch.testing.assert_close(layer(x, graph.edge_index), out)


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


def test_other_flow_equals_pyg(make_graph, assert_same) -> None:
    graph = make_graph(0, 6, 6, 20)
    layers = both(5, 4, heads=2, edge_dim=3, flow="target_to_source")
    assert_same(*layers, graph.features(6, 5), graph.edge_index, graph.features(20, 3))


@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("edge_dim", [None, 2])
def test_attention_weights_equal_pyg(make_graph, edge_dim, add_self_loops) -> None:
    graph = make_graph(2, 6, 6, 30)
    ours, theirs = both(5, 4, heads=3, edge_dim=edge_dim, add_self_loops=add_self_loops)
    ours.load_state_dict(theirs.state_dict())
    x = graph.features(6, 5)
    edge_attr = None if edge_dim is None else graph.features(30, edge_dim)
    result = ours(x, graph.edge_index, edge_attr, return_attention_weights=True)
    wanted = theirs(x, graph.edge_index, edge_attr, return_attention_weights=True)
    torch.testing.assert_close(result, wanted)
    out = ours(x, graph.edge_index, edge_attr, return_attention_weights=False)
    torch.testing.assert_close(out, wanted[0])


def test_every_form_of_the_graph_gives_the_same(make_graph, sparse_forms) -> None:
    edge_index = make_graph(4, 6, 6, 30).simple()
    conv, x = GATv2Conv(5, 4, heads=2), torch.randn(6, 5)
    wanted = conv(x, edge_index)
    nb = Neighborhood.from_edge_index(edge_index, num_nodes=6)
    forms = {"Neighborhood": nb, "ids of 32 bits": nb.to_int32()}
    for form, adj in {**sparse_forms(edge_index, 6, 6), **forms}.items():
        torch.testing.assert_close(conv(x, adj), wanted, msg=lambda m, form=form: f"{form}: {m}")


@pytest.mark.parametrize("edge_dim", [None, 2])
def test_no_tensor_has_an_edge_axis_and_the_features_of_a_head(make_graph, edge_dim) -> None:
    edges, heads, dim = 20_000, 2, 64
    graph = make_graph(8, 10, 10, edges)
    conv = GATv2Conv(4, dim, heads=heads, edge_dim=edge_dim)
    args = [graph.features(10, 4, dtype=torch.float32).requires_grad_(), graph.edge_index]
    if edge_dim:
        args.append(graph.features(edges, edge_dim, dtype=torch.float32).requires_grad_())
    conv(*args).sum().backward()  # warm
    with torch.profiler.profile(profile_memory=True) as profile:
        conv(*args).sum().backward()
    largest = max(e.cpu_memory_usage for e in profile.events() if not e.cpu_children)
    assert 0 < largest < edges * heads * dim * 4 / 8


@pytest.mark.parametrize(
    ("x", "args", "message"),
    [
        (torch.randn(3, 5), (), "x: shape .3, 5., expected 4 features"),
        ((torch.randn(3, 4), torch.randn(3, 2)), (), "x: shape .3, 2., expected 4 features"),
        ((torch.randn(3, 4), None), (), "x: got .x_src, None."),
        (torch.randn(3, 4), (torch.randn(2, 1),), "edge_attr: got some, .* edge_dim=None"),
    ],
)
def test_errors_name_the_argument(x, args, message) -> None:
    with pytest.raises(ValueError, match=message):
        GATv2Conv(4, 3)(x, torch.tensor([[0, 1], [1, 2]]), *args)
