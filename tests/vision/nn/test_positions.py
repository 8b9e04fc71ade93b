import pytest
import torch
from torch import nn

from graphtheory.vision.nn import PeriodicPositions, SinusoidalPositions
from graphtheory.vision.nn.positions import init_for_small, init_transformer, sine_positions


def test_sines_turn_and_a_period_begins_again() -> None:
    """The dot product of two places depends on their distance alone; each wave turns as it says."""
    e = SinusoidalPositions(6)(torch.arange(50)).double()
    dots = e @ e.t()
    for gap in (1, 7):
        torch.testing.assert_close(dots.diagonal(gap), dots[0, gap].expand(50 - gap))
    waves = torch.tensor([1.0, 1e4 ** (-1 / 3), 1e4 ** (-2 / 3)], dtype=torch.float64)
    torch.testing.assert_close(dots[0, 1], waves.cos().sum())
    vectors = torch.randn(3, 5)
    found = PeriodicPositions(vectors)(torch.tensor([0, 4, 5, 8]))
    assert torch.equal(found, vectors[[0, 1, 2, 2]])


def test_maps_are_drawn_from_the_generator_and_narrow_ones_of_their_width() -> None:
    def model(seed: int) -> nn.Module:
        made = nn.Sequential(nn.Conv2d(3, 40, 4), nn.LayerNorm(40), nn.Linear(40, 50))
        nn.init.constant_(made[1].bias, 3)
        init_transformer(made, torch.Generator().manual_seed(seed))
        return made

    first, again, other = model(0), model(0), model(1)
    assert torch.equal(first[2].weight, again[2].weight)
    assert not torch.equal(first[2].weight, other[2].weight)
    assert abs(first[0].weight.std() - 0.02) < 0.002 and not first[0].bias.any()
    assert (first[1].bias == 3).all()
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(1, 64, 4), nn.Linear(64, 192))
    init_for_small(layers)
    for layer, width_in, width_out in ((layers[0], 16, 64), (layers[1], 64, 192)):
        expected = (2 / (width_in + width_out)) ** 0.5
        assert float(layer.weight.detach().std()) == pytest.approx(expected, rel=0.05)
        assert not layer.bias.any()


def test_sines_tell_places_apart_and_near_ones_alike() -> None:
    found = sine_positions(64, 3, 7)
    assert found.shape == (21, 64) and torch.pdist(found).min() > 0.5
    assert torch.allclose(found.norm(dim=1), torch.full((21,), 32**0.5))
    likeness = found @ found[10]  # the middle
    assert likeness.argmax() == 10 and likeness[11] > likeness[13]
    assert found[:7, 32:].unique(dim=0).shape == (1, 32)  # one row: only the columns differ
    with pytest.raises(ValueError, match="dim: got 6, expected a multiple of 4"):
        sine_positions(6, 2, 2)
