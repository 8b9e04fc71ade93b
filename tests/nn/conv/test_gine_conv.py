"""GINEConv beside PyG's."""

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheory import Neighborhood
from graphtheory.nn.conv import weighted_sums
from graphtheory.nn.conv.edge_features import gather
from graphtheory.nn.conv.weighted_sums import GINEConv


def both(width=6, **options):
    return [
        kind(torch.nn.Linear(width, 3), **options).double() for kind in (GINEConv, pyg.GINEConv)
    ]


@pytest.mark.parametrize("aggr", ["add", "mean", "max", "min"])
@pytest.mark.parametrize("edge_dim", [None, 2])
@pytest.mark.parametrize("bipartite", [False, True])
@settings(max_examples=8)
@given(data=st.data())
def test_equals_pyg(data, aggr, edge_dim, bipartite, draw_graph, assert_same) -> None:
    graph = draw_graph(data, bipartite=bipartite)
    x = graph.features(graph.num_src, 6)
    x = (x, graph.features(graph.num_dst, 6)) if bipartite else x
    edge_attr = graph.features(graph.edge_index.size(1), edge_dim or 6)
    options = {"aggr": aggr, "edge_dim": edge_dim, "train_eps": True}
    assert_same(*both(**options), x, graph.edge_index, edge_attr)


@pytest.mark.parametrize("aggr", ["add", "mean", "max", "min"])
@pytest.mark.parametrize("edge_dim", [None, 2])
def test_sums_and_means_build_no_messages(aggr, edge_dim, make_graph, monkeypatch) -> None:
    graph, built = make_graph(0, 6, 6, 20), []
    monkeypatch.setattr(weighted_sums, "gather", lambda x, adj: built.append(1) or gather(x, adj))
    x, edge_attr = graph.features(6, 6), graph.features(20, edge_dim or 6)
    both(aggr=aggr, edge_dim=edge_dim)[0](x, graph.edge_index, edge_attr)
    assert len(built) == (aggr in ("max", "min"))


def test_features_of_edges_are_mapped_where_they_are_read(make_graph, monkeypatch) -> None:
    graph, given = make_graph(0, 6, 6, 20), []
    relu_sum = weighted_sums.ops.relu_sum
    monkeypatch.setattr(
        weighted_sums.ops, "relu_sum",
        lambda *args, **options: given.append(options["edge_matrix"]) or relu_sum(*args, **options),
    )  # fmt: skip
    x, edge_attr = graph.features(6, 6), graph.features(20, 2)
    ours, theirs = both(edge_dim=2)
    ours.load_state_dict(theirs.state_dict())
    wanted = theirs(x, graph.edge_index, edge_attr)
    torch.testing.assert_close(ours(x, graph.edge_index, edge_attr), wanted)
    seen = ours.lin.register_forward_hook(lambda lin, args, out: 2 * out)
    hooked = ours(x, graph.edge_index, edge_attr)
    seen.remove()
    theirs.lin.register_forward_hook(lambda lin, args, out: 2 * out)
    torch.testing.assert_close(hooked, theirs(x, graph.edge_index, edge_attr))
    lazy = both(edge_dim=-1)[0]
    lazy(x, graph.edge_index, edge_attr)  # which makes its weights
    assert [matrix is None for matrix in given] == [False, True, True]
    lazy(x, graph.edge_index, edge_attr)
    assert given[-1] is not None


def test_a_map_of_edges_that_is_no_single_linear_one(make_graph) -> None:
    graph = make_graph(0, 6, 6, 20)
    x, edge_attr = graph.features(6, 6), graph.features(20, 2)
    ours, theirs = both(edge_dim=2)
    for layer in (ours, theirs):
        layer.lin = torch.nn.Sequential(layer.lin, torch.nn.Tanh())
    ours.load_state_dict(theirs.state_dict())
    wanted = theirs(x, graph.edge_index, edge_attr)
    torch.testing.assert_close(ours(x, graph.edge_index, edge_attr), wanted)


def test_a_message_of_its_own_is_called(make_graph) -> None:
    class Half(GINEConv):
        def message(self, x_j, edge_attr):
            return super().message(x_j, edge_attr) / 2

    graph, network = make_graph(0, 6, 6, 20), torch.nn.Identity()
    x, edge_attr = graph.features(6, 6), graph.features(20, 6)
    out = GINEConv(network)(x, graph.edge_index, edge_attr) - x
    torch.testing.assert_close(Half(network)(x, graph.edge_index, edge_attr) - x, out / 2)
    patched = GINEConv(network)
    patched.message = Half(network).message
    torch.testing.assert_close(patched(x, graph.edge_index, edge_attr) - x, out / 2)


def test_under_autocast(make_graph) -> None:
    graph, (ours, theirs) = make_graph(0, 6, 6, 20), both(edge_dim=2)
    ours.load_state_dict(theirs.state_dict())
    x, edge_attr = graph.features(6, 6).float(), graph.features(20, 2).float()
    with torch.autocast("cpu", torch.bfloat16):
        found, wanted = (one.float()(x, graph.edge_index, edge_attr) for one in (ours, theirs))
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def test_features_follow_the_rows_of_a_neighborhood(make_graph) -> None:
    """Other forms: `tests/integrations/test_pyg_behaviors.py`."""
    graph = make_graph(0, 6, 4, 20)
    nb = Neighborhood.from_edge_index(graph.edge_index, num_src=6, num_dst=4)
    ours, x, edge_attr = both()[0], graph.features(6, 6), graph.features(20, 6)
    for pair, size in (((x, graph.features(4, 6)), {}), ((x, None), {"size": (6, 4)})):
        wanted = ours(pair, graph.edge_index, edge_attr, **size)
        torch.testing.assert_close(ours(pair, nb, edge_attr[nb.perm], **size), wanted)


def test_features_that_do_not_fit_are_pygs_error(make_graph) -> None:
    graph = make_graph(0, 6, 6, 20)
    pair = graph.features(6, 6), graph.features(6, 6)
    other = both(flow="target_to_source")[0]
    with pytest.raises(ValueError, match="flow: got 'target_to_source' with a pair"):
        other(pair, graph.edge_index, graph.features(20, 6))
    with pytest.raises(ValueError, match=r"edge_attr: shape \(5, 6\), expected one per edge"):
        both()[0](graph.features(6, 6), graph.edge_index, graph.features(5, 6))
    with pytest.raises(ValueError, match="feature dimensionalities do not match"):
        both()[0](graph.features(6, 6), graph.edge_index, graph.features(20, 5))
