import pytest
import torch
from torch import nn

from graphtheory.vision.nn import (
    AveragePool,
    ConditionalPosition,
    LearnedPosition,
    MultiScale,
    NoPosition,
    RelativePosition,
)


def test_each_tells_the_place_in_its_own_way() -> None:
    x, centers = torch.randn(18, 4), AveragePool(3)
    assert NoPosition(centers, 4)(x, 2) is x and NoPosition(centers, 4).bias(2) is None
    learned = LearnedPosition(centers, 4)
    learned.reset_parameters()
    torch.testing.assert_close(learned(x, 2) - x, torch.cat([learned.table] * 2))
    relative = RelativePosition(centers, 4).bias(2)
    assert relative is not None and relative.table.shape == (25, 2)


def test_conditional_is_a_convolution_of_the_grid() -> None:
    x, position = torch.randn(18, 4), ConditionalPosition(AveragePool(3), 4)
    maps = x.view(2, 3, 3, 4).permute(0, 3, 1, 2)
    wanted = maps + nn.functional.conv2d(
        maps, position.depthwise.weight, position.depthwise.bias, padding=1, groups=4
    )
    torch.testing.assert_close(position(x, 2), wanted.permute(0, 2, 3, 1).reshape(18, 4))


def test_a_grid_is_asked_for() -> None:
    with pytest.raises(ValueError, match="centers: MultiScale has no grid"):
        RelativePosition(MultiScale([AveragePool(2)]), 4)
