import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheory import Neighborhood
from graphtheory.nn.conv import GCNConv

OPTIONS = [
    {},
    {"bias": False, "add_self_loops": False},
    {"improved": True},
    {"normalize": False},
    {"cached": True},
]


def both(*args, dtype=torch.float64, **options):
    return [c(*args, **options).to(dtype) for c in (GCNConv, pyg.GCNConv)]


def simple_loops(edge_index):
    """Where a node has several self-loops PyG takes one of them: which is nobody's promise."""
    loops = edge_index[0] == edge_index[1]
    first = torch.zeros_like(loops)
    for i in edge_index[0][loops].unique():
        first[((edge_index[0] == i) & loops).nonzero()[0]] = True
    return edge_index[:, ~loops | first]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_graph_without_nodes_gives_no_rows(options) -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    assert GCNConv(8, 4, **options)(torch.randn(0, 8), none).shape == (0, 4)
    pair = torch.randn(0, 8), torch.randn(3, 8)
    out = GCNConv(8, 4, add_self_loops=False, bias=False)(pair, none)
    assert torch.equal(out, torch.zeros(3, 4))


FLOWS = ["source_to_target", "target_to_source"]


@pytest.mark.parametrize("flow", FLOWS)
def test_of_several_self_loops_of_a_node_the_last_weight_counts(flow: str) -> None:
    torch.manual_seed(0)
    edges, weight, x = torch.randint(100, (2, 5000)), torch.rand(5000), torch.randn(100, 16)
    ours, theirs = GCNConv(16, 8, flow=flow), pyg.GCNConv(16, 8, flow=flow)
    ours.load_state_dict(theirs.state_dict())
    found = [ours(x, edges, weight) for _ in range(50)]
    torch.testing.assert_close(found[0], theirs(x, edges, weight))
    assert all(torch.equal(one, found[0]) for one in found)
    learned, twin = (weight.clone().requires_grad_() for _ in range(2))
    assert torch.equal(ours(x, edges, learned), found[0])
    ours(x, edges, learned).square().sum().backward()
    theirs(x, edges, twin).square().sum().backward()
    torch.testing.assert_close(learned.grad, twin.grad, rtol=1e-3, atol=1e-3)

    def of_several(weight: torch.Tensor) -> torch.Tensor:  # a gradient that a batch hides
        both = torch.func.vmap(lambda w: ours(x, edges, w).square().sum())(weight.expand(2, -1))
        return both.sum() / 2

    by_transform = torch.func.grad(of_several)(weight)
    torch.testing.assert_close(by_transform, learned.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@settings(max_examples=12)
@given(data=st.data())
def test_equals_pyg(data, options, weighted, draw_graph, assert_same) -> None:
    graph = draw_graph(data)
    graph = graph._replace(edge_index=simple_loops(graph.edge_index))
    dtype = data.draw(st.sampled_from([torch.float64, torch.float32]), "dtype")
    args = [graph.features(graph.num_src, 5, dtype=dtype), graph.edge_index]
    if weighted:
        args.append(graph.weights(dtype))
    assert_same(*both(5, 6, dtype=dtype, **options), *args)


def test_several_self_loops_of_a_node_without_weights_equal_pyg(assert_same) -> None:
    edge_index = torch.tensor([[0, 1, 1, 1, 2], [1, 1, 1, 2, 2]])
    assert_same(*both(5, 6), torch.randn(4, 5, dtype=torch.float64), edge_index)


@pytest.mark.parametrize(("shape", "options", "weighted"), [
    ((2, 6, 5), {}, False),
    ((2, 3, 6, 5), {}, False),
    ((6, 5), {"node_dim": 0}, False),
    ((6, 5), {"flow": "target_to_source"}, True),
])  # fmt: skip
def test_static_graphs_other_axis_and_flow_equal_pyg(
    make_graph, assert_same, shape, options, weighted
) -> None:
    graph = make_graph(0, 6, 6, 20)
    graph = graph._replace(edge_index=simple_loops(graph.edge_index))
    weight = [graph.weights()] if weighted else []
    assert_same(*both(5, 4, **options), graph.features(*shape), graph.edge_index, *weight)


def test_sparse_features_equal_pyg(make_graph) -> None:
    graph = make_graph(1, 6, 6, 20)
    ours, theirs = both(5, 4)
    ours.load_state_dict(theirs.state_dict())
    x = graph.features(6, 5).relu()
    wanted = theirs(x, graph.edge_index)
    torch.testing.assert_close(ours(x.to_sparse(), graph.edge_index), wanted)


@pytest.mark.parametrize("options", [*OPTIONS[:4], {"improved": True, "add_self_loops": False}])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", ["csr", "coo", "csc", "SparseTensor", "EdgeIndex"])
@pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR")  # PyG's layer
def test_other_forms_equal_pyg(make_graph, sparse_forms, form, weighted, options) -> None:
    graph = make_graph(2, 6, 6, 20)
    edge_index = graph.simple()
    weight = graph._replace(edge_index=edge_index).weights(torch.float32) if weighted else None
    forms = sparse_forms(edge_index, 6, 6, weight)
    if form not in forms:
        pytest.skip("needs torch-sparse")
    ours, theirs = both(5, 4, dtype=torch.float32, **options)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(6, 5)
    args = [weight] if form == "EdgeIndex" else []
    like = forms["csr"] if form == "csc" else forms[form]  # PyG does not know CSC
    torch.testing.assert_close(ours(x, forms[form], *args), theirs(x, like, *args))


def test_gradient_reaches_the_values_of_a_sparse_matrix(make_graph) -> None:
    sparse = pytest.importorskip("torch_sparse")
    graph = make_graph(3, 6, 6, 20)
    edge_index = graph.simple()
    ours, theirs = both(5, 4)
    ours.load_state_dict(theirs.state_dict())
    x, grads = graph.features(6, 5), []
    weight = graph._replace(edge_index=edge_index).weights()
    for conv in (ours, theirs):
        value = weight.clone().requires_grad_()
        adj = sparse.SparseTensor.from_edge_index(edge_index, value, (6, 6)).t()
        conv(x, adj).square().sum().backward()
        grads.append(value.grad)
    torch.testing.assert_close(*grads)


def dense(edge_index, weight, num_src, num_dst):
    """The definition for two node sets: entries over the roots of row and column sums."""
    matrix = torch.zeros(num_dst, num_src, dtype=weight.dtype)
    matrix = matrix.index_put((edge_index[1], edge_index[0]), weight, accumulate=True)
    rows, columns = (matrix.sum(axis) for axis in (1, 0))
    roots = [torch.where(d == 0, 0, d.clamp(min=1e-30) ** -0.5) for d in (rows, columns)]
    return roots[0][:, None] * matrix * roots[1]


@pytest.mark.parametrize("form", ["edge_index", "Neighborhood", "csr", "SparseTensor"])
def test_two_node_sets(make_graph, sparse_forms, form) -> None:
    if form == "SparseTensor":
        pytest.importorskip("torch_sparse")
    graph = make_graph(4, 7, 4, 18)
    edge_index = graph.simple()
    weight = graph._replace(edge_index=edge_index).weights(torch.float32)
    conv = GCNConv(5, 3, add_self_loops=False)
    x, x_dst = torch.randn(7, 5), torch.randn(4, 2)
    wanted = dense(edge_index, weight, 7, 4) @ conv.lin(x) + conv.bias
    if form == "Neighborhood":
        nb = Neighborhood.from_edge_index(edge_index, num_src=7, num_dst=4, weight=weight)
        args: tuple = (nb,)
    elif form == "edge_index":
        args = (edge_index, weight)
    else:
        args = (sparse_forms(edge_index, 7, 4, weight)[form],)
    torch.testing.assert_close(conv((x, x_dst), *args), wanted)
    torch.testing.assert_close(conv((x, None), *args, size=(7, 4)), wanted)


def test_two_node_sets_take_self_loops_and_count_both_directions(make_graph) -> None:
    edge_index = make_graph(5, 7, 4, 18).edge_index
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    every = torch.cat([edge_index, torch.arange(4).expand(2, 4)], 1)
    conv, x = GCNConv(5, 3), torch.randn(7, 5)
    wanted = dense(every, torch.ones(every.size(1)), 7, 4) @ conv.lin(x) + conv.bias
    torch.testing.assert_close(conv((x, None), edge_index, size=(7, 4)), wanted)
    edge_index = make_graph(6, 5, 5, 12).edge_index
    both_ways = torch.cat([edge_index, edge_index.flip(0)], 1)
    conv, x = GCNConv(5, 3, add_self_loops=False), torch.randn(5, 5)
    torch.testing.assert_close(conv((x, x), both_ways), conv(x, both_ways))
    with pytest.raises(AssertionError):  # a directed graph tells the two rules apart
        torch.testing.assert_close(conv((x, x), edge_index), conv(x, edge_index))


def test_weights_of_a_neighborhood_are_those_of_its_edges(make_graph) -> None:
    graph = make_graph(7, 9, 3, 14)
    weight = graph.weights(torch.float32)
    nb = Neighborhood.from_edge_index(graph.edge_index, num_src=9, num_dst=3, weight=weight)
    conv, x = GCNConv(5, 2, normalize=False), torch.randn(9, 5)
    torch.testing.assert_close(conv((x, None), nb), nb.to_dense() @ conv.lin(x) + conv.bias)
    replaced = conv((x, None), nb, torch.ones(14))
    wanted = nb.replace(weight=torch.ones(14)).to_dense() @ conv.lin(x) + conv.bias
    torch.testing.assert_close(replaced, wanted)
    graph = make_graph(8, 6, 6, 20)
    edge_index = simple_loops(graph.edge_index)
    weight = torch.rand(edge_index.size(1), requires_grad=True)
    nb = Neighborhood.from_edge_index(edge_index, num_nodes=6, weight=weight)
    conv, x = GCNConv(5, 2), torch.randn(6, 5)
    results = [conv(x, nb), conv(x, edge_index, weight)]
    torch.testing.assert_close(*results)
    grads = [torch.autograd.grad(out.square().sum(), weight)[0] for out in results]
    torch.testing.assert_close(*grads)


def test_cached_edges_are_kept_until_a_reset(make_graph) -> None:
    first, second = (make_graph(seed, 6, 6, 20).edge_index for seed in (9, 10))
    conv, x = GCNConv(5, 2, cached=True), torch.randn(6, 5)
    out = conv(x, first)
    torch.testing.assert_close(conv(x, second), out)
    state = conv.state_dict()
    conv.reset_parameters()
    conv.load_state_dict(state)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(conv(x, second), out)


def test_cached_edges_that_change_or_serve_more_nodes(make_graph) -> None:
    convs = [kind(5, 2, cached=True) for kind in (GCNConv, pyg.GCNConv)]
    edges = make_graph(0, 12, 12, 40).edge_index
    convs[1].load_state_dict(convs[0].state_dict())
    x, more = torch.randn(12, 5), torch.randn(15, 5)
    for conv in convs:
        conv(x, edges)
        conv._cached_edge_index[1].mul_(2)
    torch.testing.assert_close(convs[0](x, edges), convs[1](x, edges))
    torch.testing.assert_close(convs[0](more, edges), convs[1](more, edges))


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_cached_edges_are_shown_as_by_pyg(make_graph, flow, loops, weighted) -> None:
    graph = make_graph(11, 6, 6, 20)
    options = {"cached": True, "add_self_loops": loops, "flow": flow}
    convs = [kind(5, 2, **options).double() for kind in (GCNConv, pyg.GCNConv)]
    edge_index = graph.edge_index.unique(dim=1)[:, ::2]  # several loops of a node: PyG keeps one
    weight = graph.weights()[: edge_index.size(1)] if weighted else None
    for conv in convs:
        assert conv._cached_edge_index is None and conv._cached_adj_t is None
        conv(graph.features(6, 5), edge_index, weight)
        assert conv._cached_adj_t is None
    torch.testing.assert_close(*(conv._cached_edge_index for conv in convs))


@pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR")
@pytest.mark.parametrize("form", ["csr", "coo", "SparseTensor"])
def test_cached_matrices_are_shown_as_by_pyg(make_graph, sparse_forms, form) -> None:
    graph = make_graph(12, 6, 6, 20)
    forms = sparse_forms(graph.simple(), 6, 6)
    if form not in forms:
        pytest.skip("torch_sparse is not installed")
    convs = [kind(5, 2, cached=True) for kind in (GCNConv, pyg.GCNConv)]
    found = []
    for conv in convs:
        conv(torch.randn(6, 5), forms[form])
        of_list, of_matrix = conv._cached_edge_index, conv._cached_adj_t
        assert (of_list is None) == (form == "SparseTensor") == (of_matrix is not None)
        if of_list is not None:
            assert of_list[0].layout == forms[form].layout and of_list[1] is None
        found.append((of_matrix if of_list is None else of_list[0]).to_dense())
    torch.testing.assert_close(*found)


def test_each_kind_of_graph_has_a_cache_that_can_be_cleared(make_graph, sparse_forms) -> None:
    graph, other = (sparse_forms(make_graph(seed, 6, 6, 20).simple(), 6, 6) for seed in (9, 10))
    conv, x = GCNConv(5, 2, cached=True), torch.randn(6, 5)
    out = conv(x, graph["edge_index"])
    torch.testing.assert_close(conv(x, other["csr"]), out)
    fresh = GCNConv(5, 2)
    fresh.load_state_dict(conv.state_dict())
    wanted = fresh(x, other["edge_index"])
    if "SparseTensor" in other:
        torch.testing.assert_close(conv(x, other["SparseTensor"]), wanted)
        torch.testing.assert_close(conv(x, graph["SparseTensor"]), wanted)
    conv._cached_edge_index = None
    torch.testing.assert_close(conv(x, other["edge_index"]), wanted)
    theirs = pyg.GCNConv(5, 2, cached=True)  # what another layer cached is taken
    theirs.load_state_dict(conv.state_dict())
    theirs(x, graph["edge_index"])
    conv._cached_edge_index = theirs._cached_edge_index
    torch.testing.assert_close(conv(x, other["edge_index"]), out)


def test_half_precision_survives_a_hub_and_no_gradient_explodes() -> None:
    """70,000 exceeds the largest half; PyG's layer returns zeros for the hub."""
    n = 70_000
    edge_index = torch.stack([torch.arange(1, n), torch.zeros(n - 1, dtype=torch.long)])
    conv = GCNConv(2, 2).half()
    x = torch.ones(n, 2).half()
    wanted = conv.float()(x.float(), edge_index)
    out = conv.half()(x, edge_index)
    assert out.dtype is torch.float16
    torch.testing.assert_close(out.float(), wanted, rtol=5e-3, atol=5e-3)
    conv = GCNConv(2, 2, add_self_loops=False)
    weight = torch.zeros(2, requires_grad=True)
    conv(torch.randn(3, 2), torch.tensor([[0, 1], [1, 2]]), weight).sum().backward()
    assert torch.equal(weight.grad, torch.zeros(2))


@pytest.mark.parametrize(("x", "options", "kwargs", "error", "message"), [
    (torch.randn(3, 5), {}, {}, ValueError, "x: shape .3, 5., expected 4 features"),
    (torch.randn(3, 4), {}, {"size": (3, 2)}, ValueError, "size: got .3, 2., expected two"),
    ((torch.randn(3, 4), None), {}, {"size": (4, 3)}, ValueError, "size: got .4, 3., expec"),
    (torch.randn(3, 4), {}, {"edge_weight": torch.rand(3)}, ValueError, "edge_weight: shape"),
    ((torch.randn(3, 4), None), {"flow": "target_to_source"}, {}, ValueError,
     "x: got a pair, expected one tensor with flow"),
])  # fmt: skip
def test_errors_name_the_argument(x, options, kwargs, error, message) -> None:
    with pytest.raises(error, match=message):
        GCNConv(4, 3, **options)(x, torch.tensor([[0, 1], [1, 2]]), **kwargs)


def test_weights_beside_a_matrix_and_loops_without_normalization_are_errors(sparse_forms) -> None:
    adj = sparse_forms(torch.tensor([[0, 1], [1, 2]]), 3, 3)["csr"]
    with pytest.raises(ValueError, match="edge_weight: got some beside a sparse matrix"):
        GCNConv(4, 3)(torch.randn(3, 4), adj, torch.ones(2))
    with pytest.raises(ValueError, match="does not support adding self-loops"):
        GCNConv(4, 3, normalize=False, add_self_loops=True)
