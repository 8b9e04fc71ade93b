"""Calls of a known kind run without checks of their shapes; all others are checked."""

from importlib import import_module

import pytest
import torch

from graphtheory import Neighborhood, cliques, ops
from graphtheory.ops.call import known, run


def path(nodes: int = 4) -> Neighborhood:
    ids = torch.arange(nodes - 1)
    return Neighborhood.from_edge_index(torch.stack([ids, ids + 1]), nodes)


def refuse(*args, **options):
    raise AssertionError("checked again")


def test_a_second_call_of_a_kind_is_not_checked_again(monkeypatch) -> None:
    nb, x = path(), torch.randn(4, 2, 3)
    first = ops.attention(x, x, x, nb)
    monkeypatch.setattr(import_module("graphtheory.ops.attention"), "check_attention", refuse)
    assert torch.equal(ops.attention(x, x, x, nb), first)
    with pytest.raises(AssertionError, match="checked again"):
        ops.attention(x, x, x, path())  # other edges
    for other in (x.double(), torch.randn(4, 2, 5), torch.randn(4, 2, 3).requires_grad_()):
        with pytest.raises(AssertionError, match="checked again"):
            ops.attention(other, other, other, nb)


@pytest.mark.parametrize("options", [{"scale": 2.0}, {"dropout": 0.5}, {"backend": "torch_csr"}])
def test_options_are_part_of_the_kind(options) -> None:
    nb, x = path(), torch.randn(4, 2, 3)
    given = {"generator": torch.Generator().manual_seed(0)} if "dropout" in options else {}
    ops.attention(x, x, x, nb)
    again = [
        ops.attention(x, x, x, nb, **options, **given and {"generator": g})
        for g in (torch.Generator().manual_seed(1) for _ in range(2))
    ]
    wanted = ops.attention(
        x, x, x, path(), **options, **given and {"generator": torch.Generator().manual_seed(1)}
    )
    assert all(torch.equal(one, wanted) for one in again)


def test_whole_numbers_are_the_same_kind_and_reach_loops_as_floats(monkeypatch) -> None:
    nb, x, seen = path(), torch.randn(4, 2, 3), []
    attention = import_module("graphtheory.ops.attention")
    monkeypatch.setattr(attention, "run", lambda call, *rest: seen.append(call) or run(call, *rest))
    first, again = (ops.attention(x, x, x, nb, scale=1, dropout=0) for _ in range(2))
    assert torch.equal(first, again)
    assert [(type(c.scale), type(c.dropout)) for c in seen] == [(float, float)] * 2


def test_what_does_not_fit_is_refused_after_calls_that_fit() -> None:
    nb, x = path(), torch.randn(4, 2, 3)
    for _ in range(2):
        ops.attention(x, x, x, nb)
    with pytest.raises(ValueError, match="query: shape"):
        ops.attention(torch.randn(5, 2, 3), x, x, nb)
    with pytest.raises(ValueError, match="dropout: got 1"):
        ops.attention(x, x, x, nb, dropout=1.0)
    with pytest.raises(ValueError, match="backend: got 'cuda'"):
        ops.attention(x, x, x, nb, backend="cuda")
    bias = ops.BucketedBias(torch.zeros(3, dtype=torch.uint8), torch.zeros(2, 2))
    for _ in range(2):
        ops.attention(x, x, x, nb, bias=bias)
    bias.bucket[1] = 2
    with pytest.raises(IndexError, match="bucket"):
        ops.attention(x, x, x, nb, bias=bias)
    nb, x = cliques([2, 2]), torch.randn(4, 1, 3)
    for _ in range(2):
        ops.attention(x, x, x, nb)
    nb.indices.numpy()[0] = 3
    with pytest.raises(ValueError, match="changed in place"):
        ops.attention(x, x, x, nb)


def test_gat_attention_keeps_its_plan(monkeypatch) -> None:
    nb, value, score = path(), torch.randn(4, 2, 3), torch.randn(4, 2)
    first = ops.additive_attention(value, score, score, nb)
    monkeypatch.setattr(import_module("graphtheory.ops.additive"), "check_arguments", refuse)
    assert torch.equal(ops.additive_attention(value, score, score, nb), first)
    with pytest.raises(AssertionError, match="checked again"):
        ops.additive_attention(value, score, None, nb)


def test_features_of_edges_keep_their_plan(monkeypatch) -> None:
    nb, x, row = path(), torch.randn(4, 2, 3), torch.tensor([0, 1, 1])
    by_edge = ops.EdgeFeatures(torch.randn(3, 5), torch.randn(4, 2, 5))
    by_row = ops.EdgeFeatures(torch.randn(2, 5), row=row)
    given = (by_edge, ops.EdgeFeatures(by_edge.features), by_row, (by_edge, by_row))
    first = [ops.attention(x, x, x, nb, edges=edges) for edges in given]
    monkeypatch.setattr(import_module("graphtheory.ops.attention"), "check_attention", refuse)
    again = [ops.attention(x, x, x, nb, edges=edges) for edges in given]
    torch.testing.assert_close(again, first, rtol=0, atol=0)
    row[1] = 2
    with pytest.raises(IndexError, match=r"edges.row: entries 0 to 2"):
        ops.attention(x, x, x, nb, edges=by_row)


def test_a_traced_or_transformed_call_takes_the_general_path(monkeypatch) -> None:
    nb, x = path(), torch.randn(4, 2, 3)
    ops.attention(x, x, x, nb)
    assert known("attention", nb, x)[0] is not None
    grad = torch.func.grad(lambda q: ops.attention(q, x, x, nb).sum())
    monkeypatch.setattr(import_module("graphtheory.ops.attention"), "check_attention", refuse)
    with pytest.raises(AssertionError, match="checked again"):
        grad(x)


def test_many_kinds_do_not_fill_the_memory() -> None:
    nb = path()
    for dim in range(1, 200):
        x = torch.zeros(4, 1, dim)
        ops.attention(x, x, x, nb)
    assert len(nb.plans) <= 64
