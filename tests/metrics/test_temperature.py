import pytest
import torch
from torch import nn

from graphtheory import cliques
from graphtheory.metrics import Tempered, compare_temperatures, token_similarity
from graphtheory.models import vit_pico
from graphtheory.nn import Attention
from graphtheory.patterns import AllSenders, TopK


def test_temperature_divides_the_logits() -> None:
    nb, draw = cliques([4]), torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 4, 1, 4, generator=draw)
    sharp = (q[:, 0] @ k[:, 0].t() / 2 / 0.5).softmax(1)
    torch.testing.assert_close(Tempered(0.5).weights(q, k, nb, None).view(4, 4), sharp)
    torch.testing.assert_close(Tempered(0.5)(q, k, v, nb)[:, 0], sharp @ v[:, 0])
    layer, x = Attention(4, 1, pattern=Tempered(0.5)), torch.randn(4, 4, generator=draw)
    torch.testing.assert_close(layer.with_weights(x, nb)[1], layer.weights(x, nb))


def test_all_rules_are_measured_and_the_models_own_are_back() -> None:
    model = vit_pico(pattern=TopK(3), dropout=0.5)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    model.blocks[0].attention.pattern = AllSenders()

    def measure(model: nn.Module) -> float:
        assert not model.training and not torch.is_grad_enabled()
        return token_similarity(model.tokens(images))

    rows = compare_temperatures(model, measure, (0.1, 1.0), (TopK(1.0), TopK(1)))
    assert [row["rule"] for row in rows] == [Tempered(0.1), Tempered(1.0), TopK(1.0), TopK(1)]
    sharp, dense, everyone, one = (row["measured"] for row in rows)
    assert dense == pytest.approx(everyone) and len({sharp, dense, one}) == 3
    rules = [block.attention.pattern for block in model.blocks]
    assert rules == [AllSenders(), *[TopK(3)] * 3] and model.training


def test_a_model_without_attention_and_no_temperature_are_named() -> None:
    with pytest.raises(ValueError, match="model: no layer has a score pattern"):
        compare_temperatures(nn.Linear(2, 2), lambda _: 0.0)
    with pytest.raises(ValueError, match="t: got 0, expected a temperature above 0"):
        Tempered(0)
    assert Attention(4, 1, pattern=Tempered(0.5)).pattern == Tempered(0.5)
