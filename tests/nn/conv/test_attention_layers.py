"""GATConv, GATv2Conv and TransformerConv beside PyG's: one table, every form of the arguments."""

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st

import graphtheory.nn.conv as drop_in
from graphtheory import Neighborhood

GATS, DOT_PRODUCTS = ["GATConv", "GATv2Conv"], ["TransformerConv", "SPDTransformerConv"]
OF_GAT = [
    {},
    {"heads": 3, "residual": True},
    {"heads": 2, "concat": False, "bias": False},
    {"heads": 2, "add_self_loops": False, "negative_slope": 0.5},
    {"heads": 2, "edge_dim": 4, "residual": True, "concat": False},
    {"heads": 2, "edge_dim": 2, "fill_value": "max"},
    {"heads": 2, "edge_dim": 2, "add_self_loops": False},
]
OPTIONS = {
    "GATConv": [
        *OF_GAT,
        {"edge_dim": 1, "fill_value": 0.5},
        {"heads": 2, "edge_dim": 2, "fill_value": torch.tensor([0.3, -1.0])},
        {"heads": 2, "edge_dim": 2, "fill_value": "add"},
        {"edge_dim": 3, "fill_value": "min"},
        {"heads": 2, "edge_dim": 2, "fill_value": "mul"},
    ],
    "GATv2Conv": [
        *OF_GAT,
        {"heads": 2, "share_weights": True},
        {"edge_dim": 1, "fill_value": 0.5, "share_weights": True},
    ],
    "TransformerConv": [
        {},
        {"heads": 3},
        {"heads": 2, "concat": False},
        {"beta": True, "root_weight": False},
        {"heads": 2, "beta": True},
        {"heads": 2, "beta": True, "concat": False, "edge_dim": 4},
        {"heads": 3, "edge_dim": 50, "bias": False},
        {"heads": 3, "edge_dim": 1, "bias": False},
        {"heads": 2, "edge_dim": 4, "root_weight": False},
    ],
}
PAIRS = [
    *((n, {**o, "add_self_loops": loops}) for n in GATS for loops in (True, False)
      for o in ({"heads": 2, "residual": True}, {"edge_dim": 2})),
    *(("TransformerConv", o) for o in OPTIONS["TransformerConv"][4:8]),
]  # fmt: skip


def both(name, *args, dtype=torch.float64, **options):
    """Our layer and PyG's; "recompute" is an attribute of ours."""
    recompute = options.pop("recompute", False)
    ours, theirs = (getattr(room, name)(*args, **options).to(dtype) for room in (drop_in, pyg))
    ours.recompute = recompute
    return ours, theirs


def and_recomputed(cases):
    again = [(n, {**o, "recompute": True}) for n, o in cases if n == "TransformerConv"]
    return pytest.mark.parametrize(("name", "options"), [*cases, *again], ids=str)


@and_recomputed([(name, options) for name in OPTIONS for options in OPTIONS[name]])
@settings(max_examples=12)
@given(data=st.data())
def test_equals_pyg(data, name, options, draw_graph, assert_same) -> None:
    graph = draw_graph(data)
    dtype = data.draw(st.sampled_from([torch.float64, torch.float32]), "dtype")
    args = [graph.features(graph.num_src, 5, dtype=dtype), graph.edge_index]
    if "edge_dim" in options:
        args.append(graph.features(graph.edge_index.size(1), options["edge_dim"], dtype=dtype))
    assert_same(*both(name, 5, 6, dtype=dtype, **options), *args)


@and_recomputed(PAIRS)
@settings(max_examples=12)
@given(data=st.data())
def test_equals_pyg_on_two_node_sets(data, name, options, draw_graph, assert_same) -> None:
    graph = draw_graph(data, bipartite=True)
    x = (graph.features(graph.num_src, 5), graph.features(graph.num_dst, 3))
    edge_attr = None
    if "edge_dim" in options:
        edge_attr = graph.features(graph.edge_index.size(1), options["edge_dim"])
        if name in GATS:
            options = {**options, "fill_value": 0.5}  # PyG's means need num_dst <= num_src
    assert_same(*both(name, (5, 3), 6, **options), x, graph.edge_index, edge_attr)


@pytest.mark.parametrize("name", OPTIONS)
def test_other_flow_equals_pyg(name, make_graph, assert_same) -> None:
    graph = make_graph(0, 6, 6, 20)
    layers = both(name, 5, 4, heads=2, edge_dim=3, flow="target_to_source")
    assert_same(*layers, graph.features(6, 5), graph.edge_index, graph.features(20, 3))


@and_recomputed(
    [*((n, {"add_self_loops": loops}) for n in GATS for loops in (True, False)),
     ("TransformerConv", {})]
)  # fmt: skip
@pytest.mark.parametrize("edge_dim", [None, 2])
@pytest.mark.parametrize("num_dst", [7, 5])
def test_attention_weights_equal_pyg(make_graph, name, options, edge_dim, num_dst) -> None:
    graph = make_graph(2, 7, num_dst, 30)
    assert (graph.edge_index[0] == graph.edge_index[1]).any()
    ours, theirs = both(name, 5, 4, heads=3, edge_dim=edge_dim, **options)
    ours.load_state_dict(theirs.state_dict())
    x = graph.features(7, 5)
    x = x if num_dst == 7 else (x, graph.features(num_dst, 5))
    given = x, graph.edge_index, None if edge_dim is None else graph.features(30, edge_dim)
    result = ours(*given, return_attention_weights=True)
    wanted = theirs(*given, return_attention_weights=True)
    torch.testing.assert_close(result, wanted)
    assert name in GATS or result[1][0] is graph.edge_index
    for no in ({}, {"return_attention_weights": False}):
        torch.testing.assert_close(ours(*given, **no), wanted[0])


@pytest.mark.parametrize("name", [*OPTIONS, "SPDTransformerConv"])
@pytest.mark.parametrize("num_dst", [6, 4])
def test_every_form_of_the_graph_gives_the_same(name, num_dst, make_graph, sparse_forms) -> None:
    edge_index = make_graph(4, 6, num_dst, 30).simple()
    conv, x = getattr(drop_in, name)((5, 3), 4, heads=2), (torch.randn(6, 5), torch.randn(4, 3))
    if num_dst == 6:
        conv, x = getattr(drop_in, name)(5, 4, heads=2), x[0]
    wanted = conv(x, edge_index)
    nb = Neighborhood.from_edge_index(edge_index, num_src=6, num_dst=num_dst)
    forms = {"Neighborhood": nb, "ids of 32 bits": nb.to_int32()}
    sizes = [{}, {"size": (6, num_dst)}] if name == "GATConv" else [{}]
    for form, adj in {**sparse_forms(edge_index, 6, num_dst), **forms}.items():
        for size in sizes:
            out = conv(x, adj, **size)
            torch.testing.assert_close(out, wanted, msg=lambda m, form=form: f"{form}: {m}")


@pytest.mark.parametrize("name", DOT_PRODUCTS)
@pytest.mark.parametrize("edge_dim", [None, 2])
def test_dropout_keeps_the_expectation_and_rests_in_evaluation(make_graph, name, edge_dim) -> None:
    graph = make_graph(3, 5, 5, 15)
    conv = getattr(drop_in, name)(4, 3, dropout=0.4, edge_dim=edge_dim, root_weight=False)
    x, more = graph.features(5, 4, dtype=torch.float32), {}
    if edge_dim:
        more = {"edge_attr": graph.features(15, edge_dim, dtype=torch.float32)}
    torch.manual_seed(0)
    with torch.no_grad():
        draws = torch.stack([conv(x, graph.edge_index, **more) for _ in range(800)])
        wanted = conv.eval()(x, graph.edge_index, **more)
        assert torch.equal(conv(x, graph.edge_index, **more), wanted)
    assert draws.std(0).max() > 0.1 and (draws.mean(0) - wanted).abs().max() < 0.15


LARGE = [("GATv2Conv", None, 20_000, 64, 8), ("GATv2Conv", 2, 20_000, 64, 8),
         ("TransformerConv", 2, 3000, 32, 2)]  # fmt: skip


@pytest.mark.parametrize(("name", "edge_dim", "edges", "dim", "part"), LARGE)
def test_no_tensor_has_an_edge_axis_and_the_features_of_a_head(
    make_graph, name, edge_dim, edges, dim, part
) -> None:
    graph, heads = make_graph(8, 10, 10, edges), 2
    conv = getattr(drop_in, name)(4, dim, heads=heads, edge_dim=edge_dim)
    args = [graph.features(10, 4, dtype=torch.float32).requires_grad_(), graph.edge_index]
    if edge_dim:
        args.append(graph.features(edges, edge_dim, dtype=torch.float32).requires_grad_())
    conv(*args).sum().backward()  # warm
    with torch.profiler.profile(profile_memory=True) as profile:
        conv(*args).sum().backward()
    largest = max(e.cpu_memory_usage for e in profile.events() if not e.cpu_children)
    assert 0 < largest < edges * heads * dim * 4 / part


@pytest.mark.parametrize(
    ("name", "options"),
    [*(("GATConv", {"fill_value": f}) for f in ("mean", 2.0)), ("TransformerConv", {})],
)
def test_features_stored_in_a_sparse_matrix(make_graph, name, options) -> None:
    """PyG refuses them beside self-loops."""
    sparse = pytest.importorskip("torch_sparse")
    edge_index = make_graph(6, 6, 6, 20).simple()
    edge_attr, x = torch.randn(edge_index.size(1), 3), torch.randn(6, 4)
    adj = sparse.SparseTensor.from_edge_index(edge_index, edge_attr, (6, 6)).t()
    conv = getattr(drop_in, name)(4, 3, edge_dim=3, **options)
    torch.testing.assert_close(conv(x, adj), conv(x, edge_index, edge_attr))


X, PAIR, ONE = torch.randn(3, 4), [[0, 1], [1, 2]], [[0], [1]]
TWO_SETS, NO_TARGETS = (X, torch.randn(3, 2)), (X, None)
OF_EDGES, WITH_EDGES = {"edge_attr": torch.randn(2, 5)}, {"edge_dim": 2}
TRANSFORMER = [  # and of the layer with distances, which PyG has not
    ({}, torch.randn(4), {}, "x: shape .4,., expected .num_nodes, in_channels."),
    (WITH_EDGES, X, {}, "edge_attr: got none, .* edge_dim=2"),
    (WITH_EDGES, X, {"edge_attr": torch.randn(3, 2)}, "edge_attr: shape .3, 2."),
    (WITH_EDGES, X, OF_EDGES, "edge_attr: shape .2, 5."),
    (
        WITH_EDGES,
        X,
        {"edge_attr": torch.ones(2, 2).long()},
        "edge_attr: dtype torch.int64, .* float",
    ),
]
ERRORS = [
    *((n, {}, torch.randn(3, 5), ONE, {}, "x: shape .3, 5., expected 4 features") for n in OPTIONS),
    *((n, {}, TWO_SETS, PAIR, {}, "x: shape .3, 2., expected 4 features") for n in GATS),
    *((n, {}, NO_TARGETS, PAIR, {}, "x: got .x_src, None.") for n in OPTIONS if n != "GATConv"),
    *((n, {}, X, PAIR, OF_EDGES, "edge_attr: got some, .* edge_dim=None")
      for n in ("GATv2Conv", *DOT_PRODUCTS)),
    *((n, options, x, PAIR, *more) for n in DOT_PRODUCTS for options, x, *more in TRANSFORMER),
    *(
        ("GATConv", {"add_self_loops": loops}, *case) for loops in (True, False) for case in (
            (torch.randn(2, 3, 4), ONE, {}, "x: shape .2, 3, 4., expected .num_node"),
            (X, [[0.0], [1.0]], {}, "edge_index: dtype torch.float32"),
            (X, [[0], [3]], {}, r"edge_index\[1\]: entry 0 is 3"),
            (X, [[-1], [1]], {}, r"edge_index\[0\]: entry 0 is -1"),
            (X, [0, 1], {}, "edge_index: shape .2,., expected .2, num"),
            (X, ONE, {"size": (3, 2)}, "size: got .3, 2., expected"),
            (X, ONE, {"size": (4, 3)}, "size: got .4, 3., expected"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "x", "edge_index", "given", "message"), ERRORS)
def test_errors_name_the_argument(name, options, x, edge_index, given, message) -> None:
    error = TypeError if "dtype" in message else IndexError if "entry" in message else ValueError
    with pytest.raises(error, match=message):
        getattr(drop_in, name)(4, 3, **options)(x, torch.tensor(edge_index), **given)
