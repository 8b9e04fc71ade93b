import pytest
import torch

from graphtheory.vision.models.resnet import ResidualConv, SmallResNet


def test_shapes_of_any_size_and_stages_that_halve() -> None:
    model = SmallResNet(5, in_channels=1).eval()
    for size in (8, 28, 31):
        assert model(torch.randn(2, 1, size, size)).shape == (2, 5)
    model = SmallResNet(5, in_channels=3, depth=2).eval()
    x, shapes = model.stem(torch.randn(1, 3, 32, 32)), []
    for block in model.blocks:
        x = block(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes == [(16, 32, 32)] * 2 + [(32, 16, 16)] * 2 + [(64, 8, 8)] * 2


@pytest.mark.parametrize("stride", [1, 2])
def test_a_block_is_its_way_and_its_branch(stride: int) -> None:
    block = ResidualConv(4, 4 * stride, stride).eval()
    x = torch.randn(2, 4, 6, 6)
    assert block(x).equal((block.way(x) + block.branch(x)).relu())
    assert (stride == 1) == isinstance(block.way, torch.nn.Identity)
