"""The laws of score patterns, on every one of the package: sums, weights and gradients."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, bipartite, causal, cliques, ops, patterns
from graphtheory.patterns import AllSources, ScorePattern, TopK, attention_logits
from tests.patterns.laws import kinds_of

# Equal sets, sets of several sizes, causal sets, an empty row and a graph.
ROWS = {
    "cliques": cliques([9, 9]),
    "bipartite": bipartite([4, 4], [7, 7]),
    "unequal": cliques([3, 8, 1]),
    "causal": causal([6, 3]),
    "graph": Neighborhood.from_edge_index(
        torch.tensor([[0, 1, 2, 3, 0, 2, 1], [1, 1, 1, 1, 2, 2, 3]]), num_nodes=5
    ),
}


def drawn(nb: Neighborhood, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(seed))
    nodes = (draw(n, 2, 3) for n in (nb.num_dst, nb.num_src, nb.num_src))
    return *(t.requires_grad_() for t in nodes), draw(nb.num_edges, 2).requires_grad_()


def slow(
    nb: Neighborhood, option: ScorePattern, q: Tensor, k: Tensor, v: Tensor, bias: Tensor
) -> Tensor:
    """The mask on dense logits, then softmax and sum; what is no edge lies at -inf."""
    logits = torch.full((2, nb.num_dst, nb.num_src), -torch.inf)
    place = (slice(None), nb.targets(), nb.indices)
    logits[place] = torch.einsum("nhd,mhd->hnm", q, k)[place] / 3**0.5 + bias.t()
    stays = option.mask(logits.detach())
    some = stays.any(-1, keepdim=True)  # an empty row gives zeros
    weights = torch.where(stays | ~some, logits.clamp(min=-1e4), -torch.inf).softmax(-1) * some
    return torch.einsum("hnm,mhd->nhd", weights, v)


# Besides the default of every kind, which a new score pattern is tried with without a line here.
ALL = [*(kind() for kind in kinds_of(ScorePattern)), TopK(0.3), TopK(2), TopK(99)]


def follows_its_mask(option: ScorePattern, nb: Neighborhood) -> None:
    inputs = drawn(nb)
    fast, expected = option(*inputs[:3], nb, bias=inputs[3]), slow(nb, option, *inputs)
    torch.testing.assert_close(fast, expected)
    grad = torch.randn(fast.shape, generator=torch.Generator().manual_seed(1))
    for ours, theirs in zip(
        torch.autograd.grad(fast, inputs, grad),
        torch.autograd.grad(expected, inputs, grad),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("option", ALL, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_sums_and_gradients_are_those_of_the_mask(name: str, option: ScorePattern) -> None:
    follows_its_mask(option, ROWS[name])


@pytest.mark.parametrize("option", ALL, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_weights_are_those_of_the_sums(name: str, option: ScorePattern) -> None:
    nb = ROWS[name]
    q, k, v, bias = drawn(nb)
    weights, out = option.weights(q, k, nb, bias, 0.7), option(q, k, v, nb, bias=bias, scale=0.7)
    torch.testing.assert_close(ops.aggregate(weights, v, nb), out)


@pytest.mark.parametrize("kind", kinds_of(ScorePattern))
def test_every_kind_is_exported(kind: type[ScorePattern]) -> None:
    assert getattr(patterns, kind.__name__, None) is kind and kind.__name__ in patterns.__all__
    assert kind() == kind() and hash(kind()) == hash(kind())


def test_the_known_kinds_are_found() -> None:
    assert {AllSources, TopK} <= set(kinds_of(ScorePattern))


def test_all_sources_is_attention_itself() -> None:
    nb = ROWS["graph"]
    *nodes, bias = drawn(nb)
    expected = ops.attention(*nodes, nb, bias=bias, backend="torch_csr")
    assert torch.equal(AllSources()(*nodes, nb, bias=bias, backend="torch_csr"), expected)


def test_logits_of_a_bias_by_buckets_are_those_of_its_edges() -> None:
    nb = ROWS["graph"]
    q, k, _, _ = drawn(nb)
    bucket = torch.arange(nb.num_edges, dtype=torch.uint8) % 3
    table = torch.tensor([[1.0, 2.0], [3.0, 4.0], [-torch.inf, 5.0]])
    by_bucket = attention_logits(q, k, nb, ops.BucketedBias(bucket, table), 0.5)
    assert torch.equal(by_bucket, attention_logits(q, k, nb, table[bucket.long()], 0.5))
    assert torch.equal(attention_logits(q, k, nb), 3**-0.5 * ops.edge_dot(q, k, nb))


@dataclass(frozen=True)
class OneMore(TopK):
    """Takes one source more than its mask says."""

    def __call__(self, *args: Any, **options: Any) -> Tensor:
        return TopK(int(self.k) + 1)(*args, **options)


def test_planted_fault_breaks_the_law() -> None:
    with pytest.raises(AssertionError):
        follows_its_mask(OneMore(2), ROWS["cliques"])
