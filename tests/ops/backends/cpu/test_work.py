"""What a loop is said to cost, which decides how many threads share it, grows with what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, cliques, ops
from graphtheory.ops import EdgeFeatures
from graphtheory.ops.backends.cpu import regimes, run

NODES, HEADS, DIM = 32, 4, 64
Made = Callable[[int, int, int], Any]


def graph(nodes: int) -> Neighborhood:
    """Five edges a node."""
    sources = (torch.arange(nodes)[:, None] + torch.arange(5)) % nodes
    targets = torch.arange(nodes).repeat_interleave(5)
    return Neighborhood.from_edge_index(torch.stack([sources.flatten(), targets]), nodes)


def draw(*shape: int) -> Tensor:
    return torch.randn(shape).requires_grad_()


def attention(nodes: int, heads: int, dim: int) -> Tensor:
    x, nb = draw(nodes, heads, dim), graph(nodes)
    return ops.attention(x, x, x, nb, backend="numba_csr")


def attention_with_features(nodes: int, heads: int, dim: int) -> Tensor:
    x, nb = draw(nodes, heads, dim), graph(nodes)
    edges = EdgeFeatures(draw(nb.num_edges, dim), draw(nodes, heads, dim))
    out, sums = ops.attention(x, x, x, nb, edges=edges, backend="numba_csr")
    return out + sums


def primitives(nodes: int, heads: int, dim: int) -> Tensor:
    x, nb = draw(nodes, heads, dim), graph(nodes)
    logits = ops.edge_dot(x, x, nb, backend="numba_csr")
    weights = ops.edge_softmax(logits, nb, backend="numba_csr")
    return ops.aggregate(weights, x, nb, backend="numba_csr")


def largest(nodes: int, heads: int, dim: int) -> Tensor:
    nb = graph(nodes)
    weights, value = draw(nb.num_edges, heads), draw(nodes, heads, dim)
    return ops.aggregate(weights, value, nb, "max", backend="numba_csr")


def additive_attention(nodes: int, heads: int, dim: int) -> Tensor:
    value, sent = draw(nodes, heads, dim), draw(nodes, heads)
    return ops.additive_attention(value, sent, sent, graph(nodes), backend="numba_csr")


def additive_score(nodes: int, heads: int, dim: int) -> Tensor:
    x, att = draw(nodes, heads, dim), draw(heads, dim)
    return ops.additive_score(x, x, att, graph(nodes), backend="numba_csr")


def additive_score_with_features(nodes: int, heads: int, dim: int) -> Tensor:
    x, att, nb = draw(nodes, heads, dim), draw(heads, dim), graph(nodes)
    edges = {"edge_features": draw(nb.num_edges, 32), "edge_matrix": draw(heads, 32, dim)}
    return ops.additive_score(x, x, att, nb, backend="numba_csr", **edges)


def relu_sum(nodes: int, heads: int, dim: int) -> Tensor:
    nb = graph(nodes)
    return ops.relu_sum(draw(nodes, heads, dim), draw(nb.num_edges, heads, dim), nb)


def nearest_of_sets(nodes: int, heads: int, dim: int) -> Tensor:
    x = draw(nodes, heads, dim)
    return ops.topk_attention(x, x, x, cliques([8] * (nodes // 8)), 3, backend="blocks")


def nearest_of_edges(nodes: int, heads: int, dim: int) -> Tensor:
    x = draw(nodes, heads, dim)
    return ops.topk_attention(x, x, x, graph(nodes), 3, backend="numba_csr")


CALLS = [
    attention, attention_with_features, primitives, largest, additive_attention, additive_score,
    additive_score_with_features, relu_sum, nearest_of_sets, nearest_of_edges,
]  # fmt: skip


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """(loop, multiply-adds) of every loop that is run."""
    found: list[tuple[str, int]] = []
    launch = run.launch

    def launch_and_tell(loop: Callable[..., None], chunks: int, work: int, *args: Any) -> None:
        found.append((loop.__name__, work))
        launch(loop, chunks, work, *args)

    monkeypatch.setattr(run, "launch", launch_and_tell)
    return found


@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_work_doubles_with_edges_and_heads_and_grows_with_features(
    call: Made, recomputed: bool, told: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if recomputed:
        monkeypatch.setattr(regimes, "KEPT_WEIGHTS_BELOW", 0)

    def works(nodes: int, heads: int, dim: int) -> list[tuple[str, int]]:
        told.clear()
        call(nodes, heads, dim).sum().backward()
        return [(name, work) for name, work in told if work > 0]  # a merge is said to cost nothing

    once = works(NODES, HEADS, DIM)
    edges, heads, dims = (
        works(2 * NODES, HEADS, DIM), works(NODES, 2 * HEADS, DIM), works(NODES, HEADS, 2 * DIM),
    )  # fmt: skip
    assert once
    for (name, base), (_, of_edges), (_, of_heads), (_, of_dims) in zip(
        once, edges, heads, dims, strict=True
    ):
        assert base >= graph(NODES).num_edges * HEADS, name  # each entry costs something
        assert of_edges == 2 * base and of_heads == 2 * base, name
        assert of_dims == base or 1.2 * base < of_dims <= 2 * base, name
    assert any(of_dims > base for (_, base), (_, of_dims) in zip(once, dims, strict=True))


def test_products_of_features_of_edges_are_work_of_the_loops(told: list[tuple[str, int]]) -> None:
    additive_score(NODES, HEADS, DIM).sum().backward()
    plain, _ = dict(told), told.clear()
    additive_score_with_features(NODES, HEADS, DIM).sum().backward()
    each = graph(NODES).num_edges * HEADS * DIM
    assert plain == {"score_loop": 2 * each, "rows_loop": 4 * each, "columns_loop": each}
    more = {"score_loop": (2 + 32) * each, "rows_loop": (4 + 3 * 32) * each}
    assert dict(told) == plain | more  # terms; terms and the gradients of both their factors
