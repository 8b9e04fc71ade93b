"""HGTConv beside PyG's."""

import pytest
import torch
import torch_geometric.nn as pyg

from graphtheory import Neighborhood
from graphtheory.nn.conv import hgt_conv
from tests.nn.conv.typed_graphs import typed_graph

KINDS = [("a", "to", "a"), ("a", "on", "b"), ("b", "by", "a"), ("a", "by", "a")]
NODES, WIDTHS = {"a": 7, "b": 4, "alone": 2}, {"a": 6, "b": 5, "alone": 3}
METADATA = (list(NODES), KINDS)


@pytest.fixture
def given():
    """Features of node types and edges of each kind."""
    return typed_graph(NODES, WIDTHS, KINDS)


def both(**options):
    ours, theirs = (
        kind(WIDTHS, 6, METADATA, heads=2, **options).double()
        for kind in (hgt_conv.HGTConv, pyg.HGTConv)
    )
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.5)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return ours, theirs


def gradients(layer, x, edges):
    """Outputs by node type, and gradients of inputs and parameters."""
    x = {t: v.clone().requires_grad_() for t, v in x.items()}
    layer.zero_grad()
    out = layer(x, edges)
    generator = torch.Generator().manual_seed(1)
    sum(
        (o * torch.randn(o.shape, generator=generator, dtype=o.dtype)).sum() for o in out.values()
    ).backward()
    leaves = {**{f"x {t}": v for t, v in x.items()}, **dict(layer.named_parameters())}
    return out, {n: torch.zeros(1) if t.grad is None else t.grad for n, t in leaves.items()}


def test_equals_pyg(given) -> None:
    ours, theirs = both()
    for found, wanted in zip(gradients(ours, *given), gradients(theirs, *given), strict=True):
        assert list(found) == list(wanted)
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_edges_that_change_are_read_anew(given) -> None:
    ours, theirs = both()
    x, edges = given
    first = hgt_conv.joined(edges, NODES)
    assert hgt_conv.joined(edges, NODES) is first
    for kind in (KINDS[0], KINDS[3]):
        edges = {**edges, kind: edges[kind].flip(1)}
        edges[kind][:, :3] = 0
        torch.testing.assert_close(ours(x, edges), theirs(x, edges))
    assert hgt_conv.joined(edges, NODES) is not first


def test_some_kinds_are_missing_and_some_are_neighborhoods(given) -> None:
    ours, theirs = both()
    x, edges = given
    edges = {kind: edges[kind] for kind in KINDS[:2]}
    wanted = theirs(x, edges)
    torch.testing.assert_close(ours(x, edges), wanted)
    edges[KINDS[1]] = Neighborhood.from_edge_index(edges[KINDS[1]], num_src=7, num_dst=4)
    torch.testing.assert_close(ours(x, edges), wanted)


def test_kinds_in_another_order_give_the_same(given) -> None:
    ours, theirs = both()
    x, edges = given
    turned = dict(reversed(edges.items()))
    torch.testing.assert_close(ours(x, turned), theirs(x, edges))


def test_other_flow_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="flow: got 'target_to_source', expected the default"):
        hgt_conv.HGTConv.check_options(both(flow="target_to_source")[1])
