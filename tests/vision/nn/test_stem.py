import pytest
import torch
from torch import nn

from graphtheory.vision.nn import ConvStem
from graphtheory.vision.nn.patch import to_map


def test_nodes_are_the_places_of_the_last_map() -> None:
    stem = ConvStem((4, 8, 6), (2, 2, 1))
    kinds = [type(layer) for layer in stem.layers]
    assert kinds == [nn.Conv2d, nn.BatchNorm2d, nn.GELU] * 2 + [nn.Conv2d, nn.BatchNorm2d]
    images = torch.randn(2, 3, 9, 14)
    x, grid = stem(images)
    assert (grid.height, grid.width) == (3, 4)
    torch.testing.assert_close(to_map(x, grid), stem.layers(images))
    assert isinstance(ConvStem((4,), (2,), activate_last=True).layers[-1], nn.GELU)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="strides: 1 for 2 widths, expected as many"):
        ConvStem((4, 8), (2,))
    with pytest.raises(ValueError, match=r"images: shape \(1, 1, 8, 8\), expected \[1 or more, 3"):
        ConvStem((4,), (2,))(torch.zeros(1, 1, 8, 8))
