"""k-nearest attention: counts and shares, equal logits, in layers and networks."""

import re
from functools import partial

import pytest
import torch
from torch import Tensor

from graphtheory import Neighborhood, cliques, ops
from graphtheory.nn import Attention, attention_maps
from graphtheory.patterns import TopK
from graphtheory.vision.models import DistilledToken, deit_tiny, swin_pico, vit_pico
from tests.patterns.test_scores import ROWS, drawn


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


def test_counts_are_clipped_and_shares_are_rounded_up() -> None:
    assert [TopK(5).count(n) for n in (0, 3, 5, 9)] == [0, 3, 5, 5]
    assert [TopK(0.5).count(n) for n in (0, 1, 2, 197)] == [0, 1, 1, 99]
    assert TopK(0.1).count(30) == 3 and TopK(1.0).count(7) == 7 and TopK(1).count(7) == 1
    assert TopK(0.5).counts(torch.tensor([[4, 1], [4, 7]])).tolist() == [[2, 1], [2, 4]]


def test_of_equal_logits_the_earlier_stay_and_none_at_minus_infinity() -> None:
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


def test_deit_takes_it() -> None:
    options = {"image_size": 32, "out_channels": 2, "readout": DistilledToken}
    assert deit_tiny(pattern=TopK(3), **options)(torch.zeros(1, 3, 32, 32)).shape == (1, 2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: TopK(0), ValueError, "k: got 0, expected 1 or more sources"),
        (lambda: TopK(1.5), ValueError, "k: got 1.5, expected a share in (0, 1]"),
        (lambda: TopK(float("nan")), ValueError, "k: got nan, expected a share in (0, 1]"),
        (lambda: TopK(True), TypeError, "k: got True, expected a count or a share"),
        (lambda: TopK("8"), TypeError, "k: got '8', expected a count or a share"),
    ],
)  # fmt: skip
def test_bad_options_are_named(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()
