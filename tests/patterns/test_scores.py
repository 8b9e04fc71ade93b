"""The laws of score patterns, on every one of the package, and k-nearest attention."""

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, bipartite, causal, cliques, ops
from graphtheory.nn import Attention, attention_maps
from graphtheory.patterns import AllSources, ScorePattern, TopK, attention_logits
from graphtheory.vision.models import DistilledToken, deit_tiny, swin_pico, vit_pico
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
    torch.testing.assert_close(
        torch.autograd.grad(fast, inputs, grad), torch.autograd.grad(expected, inputs, grad)
    )


@pytest.mark.parametrize("option", ALL, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_sums_gradients_and_weights_are_those_of_the_mask(name: str, option: ScorePattern) -> None:
    follows_its_mask(option, ROWS[name])
    nb = ROWS[name]
    q, k, v, bias = drawn(nb)
    weights, out = option.weights(q, k, nb, bias, 0.7), option(q, k, v, nb, bias=bias, scale=0.7)
    torch.testing.assert_close(ops.aggregate(weights, v, nb), out)


def test_the_known_kinds_are_found_and_all_sources_are_attention_itself() -> None:
    assert {AllSources, TopK} <= set(kinds_of(ScorePattern))
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


@pytest.mark.parametrize("name", ROWS)
def test_k_weights_of_a_row_are_above_zero(name: str) -> None:
    nb, option = ROWS[name], TopK(0.4)
    q, k, _, bias = drawn(nb)
    weights = option.weights(q, k, nb, bias)
    stay = torch.zeros(nb.num_dst, 2).index_add(0, nb.targets(), (weights > 0).float())
    assert stay.tolist() == [[option.count(n)] * 2 for n in nb.degree().tolist()]


@pytest.mark.parametrize("option", [TopK(1.0), TopK(9), TopK(10**6)], ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_all_sources_are_dense_attention(name: str, option: TopK) -> None:
    nb = ROWS[name]
    *nodes, bias = drawn(nb)
    dense = ops.attention(*nodes, nb, bias=bias)
    torch.testing.assert_close(option(*nodes, nb, bias=bias), dense)


def test_counts_are_clipped_and_of_equal_logits_the_earlier_stay() -> None:
    assert [TopK(5).count(n) for n in (0, 3, 5, 9)] == [0, 3, 5, 5]
    assert [TopK(0.5).count(n) for n in (0, 1, 2, 197)] == [0, 1, 1, 99]
    assert TopK(0.1).count(30) == 3 and TopK(1.0).count(7) == 7 and TopK(1).count(7) == 1
    assert TopK(0.5).counts(torch.tensor([[4, 1], [4, 7]])).tolist() == [[2, 1], [2, 4]]
    assert TopK(1e-11).counts(torch.tensor([0, 5, 6])).tolist() == [0, 1, 1]
    assert [TopK(1e-11).count(n) for n in (0, 5, 6)] == [0, 1, 1]
    logits = torch.tensor([[1.0, 1.0, 1.0, -torch.inf], [-torch.inf] * 4])
    assert TopK(2).mask(logits).tolist() == [[True, True, False, False], [False] * 4]
    assert TopK(0.5).mask(logits).sum(1).tolist() == [2, 0]  # half of three, and of none


def test_dropout_is_the_generators() -> None:
    for nb in (ROWS["cliques"], ROWS["unequal"]):
        *nodes, _ = drawn(nb)

        def out(seed: int, nb: Neighborhood = nb, nodes: list[Tensor] = nodes) -> Tensor:
            generator = torch.Generator().manual_seed(seed)
            return TopK(0.5)(*nodes, nb, dropout=0.5, generator=generator)

        assert torch.equal(out(1), out(1)) and not torch.equal(out(1), out(2))


def test_the_layer_takes_it_with_its_weights() -> None:
    nb, x = cliques([6, 6]), torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
    layer, full = Attention(8, 2, pattern=TopK(2)), Attention(8, 2, pattern=TopK(1.0))
    full.load_state_dict(layer.state_dict())
    dense = Attention(8, 2)
    dense.load_state_dict(layer.state_dict())
    torch.testing.assert_close(full(x, nb), dense(x, nb))
    assert not torch.allclose(layer(x, nb), dense(x, nb))
    assert (layer.weights(x, nb).view(2, 6, 6, 2) > 0).sum(2).eq(2).all()


def test_vision_networks_take_it_through_their_blocks() -> None:
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for make in (
        partial(vit_pico, out_channels=3),
        partial(swin_pico, out_channels=3, drop_path=0.0, window=5),  # with smaller windows
    ):
        model, dense, full = make(pattern=TopK(0.5)), make(), make(pattern=TopK(1.0))
        dense.load_state_dict(model.state_dict())
        full.load_state_dict(model.state_dict())
        torch.testing.assert_close(full(images), dense(images))
        assert not torch.allclose(model(images), dense(images))
        for nb, weights in attention_maps(model, images):
            stay = sum(TopK(0.5).count(n) for n in nb.degree().tolist())
            assert (weights > 0).sum(0).tolist() == [stay] * weights.size(1)
    options = {"image_size": 32, "out_channels": 2, "readout": DistilledToken}
    assert deit_tiny(pattern=TopK(3), **options)(torch.zeros(1, 3, 32, 32)).shape == (1, 2)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: TopK(0), ValueError, "k: got 0, expected 1 or more sources"),
    (lambda: TopK(1.5), ValueError, "k: got 1.5, expected a share in (0, 1]"),
    (lambda: TopK(float("nan")), ValueError, "k: got nan, expected a share in (0, 1]"),
    (lambda: TopK(True), TypeError, "k: got True, expected a count or a share"),
    (lambda: TopK("8"), TypeError, "k: got '8', expected a count or a share"),
])  # fmt: skip
def test_bad_options_are_named(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()
