import pytest
import torch

from graphtheory.vision.models import gpt, gpt2_small
from graphtheory.vision.nn import PeriodicPositions, SinusoidalPositions
from graphtheory.vision.nn.token_sets import token_causal


def test_it_has_the_published_size_and_parts_can_be_left_out() -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in gpt2_small().parameters()) == 124_439_808
    model = gpt(8, 1, 2, in_channels=8, norm=False, mlp_ratio=0)
    names = {name.split(".")[0] for name, _ in model.named_parameters()}
    assert names == {"embed", "position", "blocks", "head"}
    maps = model.attention_maps(torch.randn(2, 5, 8))
    assert maps[0].neighborhood is token_causal((5, 5), torch.device("cpu"))


@pytest.mark.parametrize(
    "position", [None, SinusoidalPositions(8), PeriodicPositions(torch.eye(3, 8))]
)
def test_a_token_hears_those_before_it_alone(position: torch.nn.Module | None) -> None:
    model = gpt(8, 2, 2, vocabulary=11, length=9, position=position)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    ids = torch.randint(11, (2, 9))
    later = ids.clone()
    later[:, 5:] = (ids[:, 5:] + 1) % 11
    out, other = model(ids), model(later)
    torch.testing.assert_close(out[:, :5], other[:, :5])
    assert (out[:, 5:] - other[:, 5:]).abs().amin(0).max() > 1e-3
    swapped = ids[:, [1, 0, *range(2, 9)]]  # tells places apart
    assert (model(swapped)[:, 2] - out[:, 2]).abs().max() > 1e-3


def test_padding_is_nobody_and_a_mask_may_hold_any_numbers() -> None:
    model = gpt(8, 2, 2, in_channels=3, out_channels=2, length=9)
    rows = [torch.randn(n, 3) for n in (9, 4, 1)]
    alone = [model(row[None])[0] for row in rows]
    for left in (False, True):
        inputs, mask = torch.full((3, 9, 3), torch.nan), torch.zeros(3, 9, dtype=torch.int64)
        for i, row in enumerate(rows):
            where = slice(9 - len(row), 9) if left else slice(len(row))
            inputs[i, where], mask[i, where] = row, 1
        out = model(inputs, mask)
        torch.testing.assert_close(out[mask.bool()], torch.cat(alone))
        assert not out[~mask.bool()].any()
    model, inputs = gpt(8, 1, 2, in_channels=3, length=9), torch.randn(2, 3, 3)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    torch.testing.assert_close(model(inputs, 2.5 * mask), model(inputs, mask.bool()))
    maps = model.attention_maps(inputs, 7 * mask)
    assert maps[0].neighborhood.num_dst == 5


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="vocabulary: got vocabulary=None"):
        gpt(8, 1, 2)
    model = gpt(8, 1, 2, vocabulary=5, length=4)
    with pytest.raises(IndexError, match="longer than the 4 learned places"):
        model(torch.zeros(1, 5, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"inputs: torch\.float32 of shape"):
        model(torch.zeros(1, 4))
    with pytest.raises(ValueError, match="mask: shape"):
        model(torch.zeros(1, 4, dtype=torch.int64), torch.ones(1, 3))
    for shape in ((0, 4), (2, 0)):
        with pytest.raises(ValueError, match=r"inputs: shape .* expected a sequence and a token"):
            model(torch.zeros(shape, dtype=torch.int64))
    for name in ("vocabulary", "in_channels"):
        with pytest.raises(ValueError, match=f"{name}: got 0, expected at least 1"):
            gpt(8, 1, 2, **{name: 0})
