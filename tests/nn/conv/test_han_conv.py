"""HANConv beside PyG's."""

import pytest
import torch
import torch_geometric.nn as pyg

from graphtheory.nn.conv.han_conv import HANConv
from tests.nn.conv.typed_graphs import typed_graph

KINDS = [("a", "to", "a"), ("a", "on", "b"), ("b", "by", "a")]
NODES, WIDTHS = {"a": 7, "b": 4}, {"a": 6, "b": 5}


def inputs():
    return typed_graph(NODES, WIDTHS, KINDS)


def both(**options):
    args = (WIDTHS, 6, (list(NODES), KINDS))
    ours, theirs = (kind(*args, heads=2, **options).double() for kind in (HANConv, pyg.HANConv))
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return ours, theirs


def gradients(layer, x, edges):
    x = {t: v.clone().requires_grad_() for t, v in x.items()}
    out, attention = layer(x, edges, return_semantic_attention_weights=True)
    sum((o * o).sum() for o in out.values()).backward()
    return out, attention, [t.grad for t in [*x.values(), *layer.parameters()]]


def test_equals_pyg() -> None:
    ours, theirs = both()
    found, wanted = gradients(ours, *inputs()), gradients(theirs, *inputs())
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_dropout_is_in_training_alone_and_keeps_the_mean() -> None:
    ours, theirs = both(dropout=0.5)
    (x, edges), kind = inputs(), KINDS[0]
    scores = torch.zeros(7, 2, dtype=torch.float64)
    value = x["a"].view(7, 2, 3)
    torch.testing.assert_close(ours.eval()(x, edges), theirs.eval()(x, edges))
    given = {"x": (value, value), "alpha": (scores, scores)}
    whole = ours.propagate(edges[kind], **given)
    torch.testing.assert_close(whole, theirs.propagate(edges[kind], **given))
    ours.train()
    torch.manual_seed(0)
    drawn = torch.stack([ours.propagate(edges[kind], **given) for _ in range(2000)])
    assert not torch.equal(drawn[0], drawn[1])
    torch.testing.assert_close(drawn.mean(0), whole, rtol=0, atol=0.1)


def test_other_flow_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="flow: got 'target_to_source', expected the default"):
        HANConv.check_options(both(flow="target_to_source")[1])
