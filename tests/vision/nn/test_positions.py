import pytest
import torch
from torch import nn

from graphtheory.vision.nn import (
    AveragePool,
    ConditionalPosition,
    LearnedPosition,
    MultiScale,
    NoPosition,
    PeriodicPositions,
    RelativePosition,
    SinusoidalPositions,
)


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


def test_each_tells_the_place_in_its_own_way() -> None:
    x, centers = torch.randn(18, 4), AveragePool(3)
    assert NoPosition(centers, 4)(x, 2) is x and NoPosition(centers, 4).bias(2) is None
    learned = LearnedPosition(centers, 4)
    learned.reset_parameters()
    torch.testing.assert_close(learned(x, 2) - x, torch.cat([learned.table] * 2))
    relative = RelativePosition(centers, 4).bias(2)
    assert relative is not None and relative.table.shape == (25, 2)


def test_conditional_is_a_convolution_of_the_grid_that_is_asked_for() -> None:
    x, position = torch.randn(18, 4), ConditionalPosition(AveragePool(3), 4)
    maps = x.view(2, 3, 3, 4).permute(0, 3, 1, 2)
    wanted = maps + nn.functional.conv2d(
        maps, position.depthwise.weight, position.depthwise.bias, padding=1, groups=4
    )
    torch.testing.assert_close(position(x, 2), wanted.permute(0, 2, 3, 1).reshape(18, 4))
    with pytest.raises(ValueError, match="centers: MultiScale has no grid"):
        RelativePosition(MultiScale([AveragePool(2)]), 4)
