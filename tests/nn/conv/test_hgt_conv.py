"""HGTConv and HANConv beside PyG's."""

import pytest
import torch
import torch_geometric.nn as pyg

from graphtheory import Neighborhood
from graphtheory.nn.conv import hetero_conv
from tests.nn.conv.conftest import typed_graph

KINDS = [("a", "to", "a"), ("a", "on", "b"), ("b", "by", "a"), ("a", "by", "a")]
NODES, WIDTHS = {"a": 7, "b": 4, "alone": 2}, {"a": 6, "b": 5, "alone": 3}
METADATA = (list(NODES), KINDS)


@pytest.fixture
def given():
    return typed_graph(NODES, WIDTHS, KINDS)


def both(name="HGTConv", **options):
    ours, theirs = (
        getattr(room, name)(WIDTHS, 6, METADATA, heads=2, **options).double()
        for room in (hetero_conv, pyg)
    )
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.5)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return ours, theirs


def gradients(layer, x, edges):
    x = {t: v.clone().requires_grad_() for t, v in x.items()}
    layer.zero_grad()
    more = {"return_semantic_attention_weights": True} if isinstance(layer, pyg.HANConv) else {}
    out = layer(x, edges, **more)
    out, attention = out if more else (out, {})
    generator = torch.Generator().manual_seed(1)
    sum(
        (o * torch.randn(o.shape, generator=generator, dtype=o.dtype)).sum()
        for o in out.values() if o is not None
    ).backward()  # fmt: skip
    leaves = {**{f"x {t}": v for t, v in x.items()}, **dict(layer.named_parameters())}
    grads = {n: torch.zeros(1) if t.grad is None else t.grad for n, t in leaves.items()}
    return out, attention, grads


@pytest.mark.parametrize("name", ["HGTConv", "HANConv"])
def test_equals_pyg_and_refuses_the_other_flow_by_name(name, given) -> None:
    ours, theirs = both(name)
    found, wanted = gradients(ours, *given), gradients(theirs, *given)
    assert list(found[0]) == list(wanted[0])
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="flow: got 'target_to_source', expected the default"):
        getattr(hetero_conv, name).check_options(both(name, flow="target_to_source")[1])


def test_edges_that_change_are_read_anew(given) -> None:
    ours, theirs = both()
    x, edges = given
    first = hetero_conv.joined(edges, NODES)
    assert hetero_conv.joined(edges, NODES) is first
    for kind in (KINDS[0], KINDS[3]):
        edges = {**edges, kind: edges[kind].flip(1)}
        edges[kind][:, :3] = 0
        torch.testing.assert_close(ours(x, edges), theirs(x, edges))
    assert hetero_conv.joined(edges, NODES) is not first


def test_kinds_in_another_order_missing_or_neighborhoods_give_the_same(given) -> None:
    ours, theirs = both()
    x, edges = given
    edges = {kind: edges[kind] for kind in KINDS[:2]}
    wanted = theirs(x, edges)
    torch.testing.assert_close(ours(x, edges), wanted)
    edges[KINDS[1]] = Neighborhood.from_edge_index(edges[KINDS[1]], num_src=7, num_dst=4)
    torch.testing.assert_close(ours(x, edges), wanted)
    ours, theirs = both()
    x, edges = given
    turned = dict(reversed(edges.items()))
    torch.testing.assert_close(ours(x, turned), theirs(x, edges))


def test_dropout_is_in_training_alone_and_keeps_the_mean(given) -> None:
    ours, theirs = both("HANConv", dropout=0.5)
    (x, edges), kind = given, KINDS[0]
    scores = torch.zeros(7, 2, dtype=torch.float64)
    value = x["a"].view(7, 2, 3)
    torch.testing.assert_close(ours.eval()(x, edges), theirs.eval()(x, edges))
    more = {"x": (value, value), "alpha": (scores, scores)}
    whole = ours.propagate(edges[kind], **more)
    torch.testing.assert_close(whole, theirs.propagate(edges[kind], **more))
    ours.train()
    torch.manual_seed(0)
    drawn = torch.stack([ours.propagate(edges[kind], **more) for _ in range(2000)])
    assert not torch.equal(drawn[0], drawn[1])
    torch.testing.assert_close(drawn.mean(0), whole, rtol=0, atol=0.1)
