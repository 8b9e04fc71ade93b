"""What a loop is said to cost, which decides how many threads share it, grows with what it does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, cliques, ops
from graphtheory.ops import EdgeFeatures
from graphtheory.ops.backends.cpu import launch, memory

NODES, HEADS, DIM, EDGE_DIM = 32, 4, 64, 32
CPU = {"backend": "numba_csr"}


def graph(nodes: int) -> Neighborhood:
    """Five edges a node."""
    sources = (torch.arange(nodes)[:, None] + torch.arange(5)) % nodes
    targets = torch.arange(nodes).repeat_interleave(5)
    return Neighborhood.from_edge_index(torch.stack([sources.flatten(), targets]), nodes)


def draw(*shape: int) -> Tensor:
    return torch.randn(shape).requires_grad_()


def with_features(x: Tensor, nb: Neighborhood) -> Tensor:
    edges = EdgeFeatures(draw(nb.num_edges, x.size(2)), draw(*x.shape))
    out, sums = ops.attention(x, x, x, nb, edges=edges, **CPU)
    return out + sums


def primitives(x: Tensor, nb: Neighborhood) -> Tensor:
    weights = ops.edge_softmax(ops.edge_dot(x, x, nb, **CPU), nb, **CPU)
    return ops.aggregate(weights, x, nb, **CPU)


def score_with_features(x: Tensor, nb: Neighborhood) -> Tensor:
    features, matrix = draw(nb.num_edges, EDGE_DIM), draw(x.size(1), EDGE_DIM, x.size(2))
    return ops.additive_score(x, x, x[0], nb, edge_features=features, edge_matrix=matrix, **CPU)


CALLS: dict[str, Callable[[Tensor, Neighborhood], Tensor]] = {
    "attention": lambda x, nb: ops.attention(x, x, x, nb, **CPU),
    "attention with features": with_features,
    "primitives": primitives,
    "largest": lambda x, nb: ops.aggregate(draw(nb.num_edges, x.size(1)), x, nb, "max", **CPU),
    "GAT": lambda x, nb: ops.additive_attention(x, x[..., 0], x[..., 0], nb, **CPU),
    "score": lambda x, nb: ops.additive_score(x, x, x[0], nb, **CPU),
    "score with features": score_with_features,
    "ReLU sum": lambda x, nb: ops.relu_sum(x, draw(nb.num_edges, *x.shape[1:]), nb),
    "gated sum": lambda x, nb: ops.gated_sum(x, nb, source=x[:, 0], target=x[:, 1], **CPU),
    "nearest of sets": lambda x, nb: ops.topk_attention(
        x, x, x, cliques([8] * (len(x) // 8)), 3, backend="blocks"
    ),
    "nearest of edges": lambda x, nb: ops.topk_attention(x, x, x, nb, 3, **CPU),
}


def call(name: str, nodes: int, heads: int, dim: int) -> Tensor:
    return CALLS[name](draw(nodes, heads, dim), graph(nodes))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """(loop, multiply-adds) of every loop that is run."""
    found: list[tuple[str, int]] = []
    run = launch.launch

    def launch_and_tell(loop: Callable[..., None], chunks: int, work: int, *args: Any) -> None:
        found.append((loop.__name__, work))
        run(loop, chunks, work, *args)

    monkeypatch.setattr(launch, "launch", launch_and_tell)
    return found


@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_work_doubles_with_edges_and_heads_and_grows_with_features(
    name: str, recomputed: bool, told: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if recomputed:
        monkeypatch.setattr(memory, "KEPT_WEIGHTS_BELOW", 0)

    def works(nodes: int, heads: int, dim: int) -> list[tuple[str, int]]:
        told.clear()
        call(name, nodes, heads, dim).sum().backward()
        return [(loop, work) for loop, work in told if work > 0]  # a merge is said to cost nothing

    once = works(NODES, HEADS, DIM)
    edges, heads, dims = (
        works(2 * NODES, HEADS, DIM), works(NODES, 2 * HEADS, DIM), works(NODES, HEADS, 2 * DIM),
    )  # fmt: skip
    assert once
    for (loop, base), (_, of_edges), (_, of_heads), (_, of_dims) in zip(
        once, edges, heads, dims, strict=True
    ):
        assert base >= graph(NODES).num_edges * HEADS, loop  # each entry costs something
        assert of_edges == 2 * base and of_heads == 2 * base, loop
        assert of_dims == base or 1.2 * base < of_dims <= 2 * base, loop
    assert any(of_dims > base for (_, base), (_, of_dims) in zip(once, dims, strict=True))


def test_products_of_features_of_edges_are_work_of_the_loops(told: list[tuple[str, int]]) -> None:
    call("score", NODES, HEADS, DIM).sum().backward()
    plain, _ = dict(told), told.clear()
    call("score with features", NODES, HEADS, DIM).sum().backward()
    each = graph(NODES).num_edges * HEADS * DIM
    assert plain == {"score_loop": 2 * each, "rows_loop": 4 * each, "columns_loop": each}
    more = {"score_loop": (2 + 32) * each, "rows_loop": (4 + 3 * 32) * each}
    assert dict(told) == plain | more  # terms; terms and the gradients of both their factors
