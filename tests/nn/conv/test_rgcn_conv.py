"""RGCNConv and FastRGCNConv beside PyG's."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheory import Neighborhood, accelerate
from graphtheory.nn.conv import hetero_conv
from graphtheory.nn.conv.adjacency import adjacency_of
from graphtheory.nn.conv.hetero_conv import relations_of

RELATIONS = 4
FORMS = [(None, None), (3, None), (None, 2)]  # bases, blocks


def both(name, in_channels, bases, blocks, aggr="mean", **options):
    args = (in_channels, 4, RELATIONS, bases, blocks, aggr)
    return [getattr(room, name)(*args, **options).double() for room in (hetero_conv, pyg)]


def kinds_of(graph):
    """A relation of each edge; one relation has none."""
    kinds = torch.randint(RELATIONS - 1, (graph.edge_index.size(1),), generator=graph.generator)
    return torch.where(kinds == 1, RELATIONS - 1, kinds)


@pytest.mark.parametrize(("bases", "blocks"), FORMS)
@pytest.mark.parametrize(
    ("name", "aggr"),
    [*(("RGCNConv", a) for a in ("mean", "sum", "max", "min")), ("FastRGCNConv", "mean"),
     ("FastRGCNConv", "sum")],
)  # fmt: skip
@pytest.mark.parametrize("bipartite", [False, True])
@settings(max_examples=8)
@given(data=st.data())
def test_equals_pyg(data, name, aggr, bases, blocks, bipartite, draw_graph, assert_same) -> None:
    graph = draw_graph(data, bipartite=bipartite)
    x = graph.features(graph.num_src, 6)
    x = (x, graph.features(graph.num_dst, 5)) if bipartite else x
    layers = both(name, (6, 5) if bipartite else 6, bases, blocks, aggr)
    assert_same(*layers, x, graph.edge_index, kinds_of(graph))


@pytest.mark.parametrize("bases", [None, 3])
@pytest.mark.parametrize(("name", "aggr"), [
    ("RGCNConv", "mean"), ("RGCNConv", "sum"), ("RGCNConv", "max"), ("FastRGCNConv", "mean"),
])  # fmt: skip
@pytest.mark.parametrize("case", ["all", "some", "pair"])
@settings(max_examples=8)
@given(data=st.data())
def test_ids_in_the_place_of_features(data, case, name, aggr, bases, draw_graph, assert_same):
    graph = draw_graph(data, bipartite=case == "pair")
    some = torch.randint(20, (graph.num_src,), generator=graph.generator)
    of_targets = torch.randint(7, (graph.num_dst,), generator=graph.generator)
    x = {"all": None, "some": some, "pair": (None, of_targets)}[case]
    channels = {"all": graph.num_src, "some": 20, "pair": (graph.num_src, 7)}[case]
    assert_same(*both(name, channels, bases, None, aggr), x, graph.edge_index, kinds_of(graph))


def test_relations_may_change_while_the_edges_stay(make_graph) -> None:
    graph = make_graph(0, 6, 6, 20)
    ours, theirs = both("RGCNConv", 6, None, None)
    ours.load_state_dict(theirs.state_dict())
    x, edges, kinds = graph.features(6, 6), graph.edge_index, kinds_of(graph)
    other = edges.flip(0)
    for each in (edges, other, edges):
        torch.testing.assert_close(ours(x, each, kinds), theirs(x, each, kinds))
    kinds[:10] = 1
    torch.testing.assert_close(ours(x, edges, kinds), theirs(x, edges, kinds))
    with torch.inference_mode():
        ours(x, edges, kinds.clone())


@pytest.mark.parametrize("name", ["RGCNConv", "FastRGCNConv"])
def test_every_form_of_the_edges(name, make_graph, sparse_forms) -> None:
    graph = make_graph(0, 6, 6, 20)
    ours, theirs = both(name, 6, None, None)
    ours.load_state_dict(theirs.state_dict())
    edges, x = graph.simple(), graph.features(6, 6)
    kinds = kinds_of(graph)[: edges.size(1)]
    wanted = theirs(x, edges, kinds)
    nb = Neighborhood.from_edge_index(edges, 6)
    torch.testing.assert_close(ours(x, nb, kinds[nb.perm]), wanted)
    torch.testing.assert_close(ours(x, edges, kinds.int()), wanted)
    with_values = sparse_forms(edges, 6, 6, kinds)
    if "SparseTensor" in with_values:
        torch.testing.assert_close(ours(x, with_values["SparseTensor"]), wanted)


@pytest.mark.parametrize(("bases", "blocks"), FORMS)
def test_without_edges_there_is_a_gradient_of_zeros(bases, blocks) -> None:
    for layer in both("RGCNConv", 6, bases, blocks, root_weight=False, bias=False):
        none = torch.empty(2, 0, dtype=torch.long), torch.empty(0, dtype=torch.long)
        layer(torch.randn(5, 6).double(), *none).sum().backward()
        assert layer.weight.grad is not None and not layer.weight.grad.any()


def test_the_fast_layer_is_exported_with_the_messages_of_pyg(make_graph) -> None:
    graph = make_graph(0, 6, 6, 20)
    ours, x = both("FastRGCNConv", 6, None, None)[0].eval(), graph.features(6, 6)
    given = x, graph.edge_index, kinds_of(graph)
    nodes, edges = torch.export.Dim("nodes"), torch.export.Dim("edges")
    sizes = {0: nodes}, {1: edges}, {0: edges}
    program = torch.export.export(ours, given, dynamic_shapes=sizes)
    other = make_graph(1, 9, 9, 31)
    given = other.features(9, 6), other.edge_index, kinds_of(other)
    torch.testing.assert_close(program.module()(*given), ours(*given))


def test_what_does_not_fit_is_named(make_graph) -> None:
    graph = make_graph(0, 6, 6, 20)
    ours, x = both("RGCNConv", 6, None, None)[0], graph.features(6, 6)
    with pytest.raises(ValueError, match=r"edge_type: shape \(3,\), expected one per edge \[20\]"):
        ours(x, graph.edge_index, torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="edge_type: shape None, expected one per edge"):
        ours(x, graph.edge_index)
    with pytest.raises(IndexError, match="edge_type"):
        ours(x, graph.edge_index, torch.full((20,), RELATIONS))
    with pytest.raises(ValueError, match="aggr: got 'max', expected 'add', 'sum' or 'mean'"):
        hetero_conv.FastRGCNConv.check_options(both("FastRGCNConv", 6, None, None, "max")[1])
    blocks = both("RGCNConv", 6, None, 2)[0]
    with pytest.raises(ValueError, match="not supported for non-continuous"):
        blocks(None, graph.edge_index, kinds_of(graph))


def test_pairs_and_shares(make_graph) -> None:
    graph = make_graph(2, 7, 5, 25)
    kinds = torch.randint(3, (25,), generator=graph.generator) * 2  # 1 and 3 have none
    adj = adjacency_of(graph.edge_index, 7, 5)
    found = relations_of(adj, kinds, 5)
    src, dst = graph.edge_index
    wanted, shares = [], torch.zeros(25, dtype=torch.float64)
    for r in range(5):
        for i in range(5):
            members = (kinds == r) & (dst == i)
            if members.any():
                wanted.append((r, i, sorted(src[members].tolist())))
                shares[members] = 1 / int(members.sum())
    of_target = torch.empty(len(wanted), dtype=torch.long)
    of_target[found.targets.indices] = found.targets.targets()
    relation = torch.arange(5).repeat_interleave(torch.tensor(found.counts))
    rows = found.sources.indices.split(found.sources.degree().tolist())
    got = [
        (int(r), int(i), sorted(row.tolist()))
        for r, i, row in zip(relation, of_target, rows, strict=True)
    ]
    assert got == wanted
    torch.testing.assert_close(found.share, adj.to_csr_order(shares))
    assert torch.equal(found.by_kind.indices, adj.to_csr_order(kinds * 7 + src))


def test_made_once_for_the_same_tensors(make_graph) -> None:
    graph = make_graph(2, 7, 7, 25)
    kinds = torch.zeros(25, dtype=torch.long)
    adj = adjacency_of(graph.edge_index, 7, 7)
    first = relations_of(adj, kinds, 2)
    assert relations_of(adj, kinds, 2) is first and relations_of(adj, kinds, 3) is not first
    assert relations_of(adjacency_of(graph.edge_index.clone(), 7, 7), kinds, 3) is not first


@pytest.mark.parametrize("name", ["RGCNConv", "FastRGCNConv"])
def test_gradients_of_torch_func_are_pygs(name) -> None:
    theirs, kinds = getattr(pyg, name)(4, 3, 3), torch.arange(12) % 3
    ours, (x, edges) = copy.deepcopy(theirs), (torch.randn(5, 4), torch.randint(5, (2, 12)))
    assert accelerate(ours).swapped
    for transform in (torch.func.grad, torch.func.jacrev):
        found, wanted = (
            transform(lambda z, one=one: one(z, edges, kinds).square().sum())(x)
            for one in (ours, theirs)
        )
        torch.testing.assert_close(found, wanted)


def test_features_may_change_after_their_largest_were_taken() -> None:
    layer = hetero_conv.RGCNConv(4, 4, 2, aggr="max").requires_grad_(False)
    edges = torch.randint(5, (2, 12))
    kinds, leaf = torch.randint(2, (12,)), torch.randn(5, 4, requires_grad=True)
    wanted = torch.autograd.grad(layer(leaf * 1, edges, kinds).sum(), leaf)
    x = leaf * 1
    out = layer(x, edges, kinds)
    x.add_(1)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), leaf), wanted)
