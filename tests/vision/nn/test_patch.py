import pytest
import torch
from torch import nn

from graphtheory.graph import Grid
from graphtheory.vision.nn import ConvStem, PatchEmbedding, PositionEmbedding
from graphtheory.vision.nn.patch import PatchConv2d, PatchTokens, from_map, to_map


def test_a_node_is_a_linear_map_of_its_patch_and_padding_is_zeros() -> None:
    embed, images = PatchEmbedding(5, patch_size=3, in_channels=2), torch.randn(2, 2, 6, 9)
    x, grid = embed(images)
    assert grid == Grid(2, 2, 3) and embed.dim == 5
    patch = images[1, :, 3:6, 6:9]  # row 1, column 2
    weight = embed.projection.weight.flatten(1)
    torch.testing.assert_close(x[6 + 5], weight @ patch.flatten() + embed.projection.bias)
    convolution, images = PatchConv2d(2, 5, 3), torch.randn(2, 2, 6, 9)
    for laid in (images, images.to(memory_format=torch.channels_last)):
        torch.testing.assert_close(convolution.by_product(laid), convolution(images))
    embed, images = PatchEmbedding(5, patch_size=4, pad=True), torch.randn(1, 3, 6, 9)
    whole = torch.zeros(1, 3, 8, 12)
    whole[:, :, :6, :9] = images
    x, grid = embed(images)
    assert (grid.height, grid.width) == (2, 3)
    torch.testing.assert_close(x, embed(whole)[0])


def test_maps_and_nodes_are_one_another_and_places_of_the_last_map() -> None:
    maps = torch.randn(2, 5, 3, 4)
    x, grid = from_map(maps)
    assert torch.equal(to_map(x, grid), maps)
    assert torch.equal(x[1 * 12 + 2 * 4 + 3], maps[1, :, 2, 3])
    stem = ConvStem((4, 8, 6), (2, 2, 1))
    kinds = [type(layer) for layer in stem.layers]
    assert kinds == [nn.Conv2d, nn.BatchNorm2d, nn.GELU] * 2 + [nn.Conv2d, nn.BatchNorm2d]
    images = torch.randn(2, 3, 9, 14)
    x, grid = stem(images)
    assert (grid.height, grid.width) == (3, 4)
    torch.testing.assert_close(to_map(x, grid), stem.layers(images))
    assert isinstance(ConvStem((4,), (2,), activate_last=True).layers[-1], nn.GELU)


def test_positions_of_another_grid_are_interpolated_and_those_of_tokens_kept() -> None:
    position = PositionEmbedding(1, 4, 4, prefix=2)
    rows = torch.arange(4.0)[:, None].expand(4, 4)
    with torch.no_grad():
        position.table.copy_(torch.cat([torch.tensor([7.0, 9.0]), rows.flatten()])[:, None])
    assert position(Grid(3, 4, 4)) is position.table
    other = position(Grid(1, 8, 2))
    assert other[:2].flatten().tolist() == [7, 9]
    grid = other[2:].view(8, 2)
    torch.testing.assert_close(grid[:, 0], grid[:, 1])  # rows stay rows
    assert (grid[:, 0].diff() > 0).all()


def test_tokens_come_before_the_patches_of_each_image() -> None:
    patch = PatchEmbedding(5, patch_size=4)
    tokens = PatchTokens(patch, PositionEmbedding(5, 2, 2, prefix=1))
    torch.nn.init.normal_(tokens.prefix)
    torch.nn.init.normal_(tokens.position.table)
    images = torch.randn(3, 3, 8, 8)
    x, grid = tokens(images)
    assert x.shape == (3 * 5, 5) and grid == Grid(3, 2, 2)
    table = tokens.position.table
    torch.testing.assert_close(x[10], tokens.prefix[0] + table[0])
    torch.testing.assert_close(x[11:], patch(images)[0][8:] + table[1:])


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(1, 3, 6, 8), "images: 6 x 8 pixels, expected multiples of patch_size=4; pad"),
        (torch.zeros(1, 1, 8, 8), r"images: shape \(1, 1, 8, 8\), expected \[1 or more, 3"),
        (torch.zeros(0, 3, 8, 8), r"images: shape \(0, 3, 8, 8\), expected \[1 or more, 3"),
        (torch.zeros(3, 8, 8), r"images: shape \(3, 8, 8\), expected \[1 or more, 3"),
    ],
)
def test_images_that_do_not_fit_are_named(images: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PatchEmbedding(5, patch_size=4)(images)


def test_other_grids_types_bytes_and_arrays_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"x: shape \(5, 2\), expected \[4, dim\] for Grid"):
        to_map(torch.zeros(5, 2), Grid(1, 2, 2))
    embed = PatchEmbedding(8, patch_size=4)
    with pytest.raises(
        TypeError, match=r"got torch.uint8, expected a floating tensor; lab\.datasets\.image_sets"
    ):
        embed(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(TypeError, match="got list, expected a floating tensor"):
        embed([0.0])  # type: ignore[arg-type]
    embed, images = PatchEmbedding(8, patch_size=4), torch.randn(1, 3, 8, 8, dtype=torch.float64)
    with pytest.raises(TypeError, match=r"images: torch.float64, expected torch.float32 as the w"):
        embed(images)
    with torch.autocast("cpu", torch.bfloat16):
        assert embed(images.bfloat16())[0].dtype == torch.bfloat16
    assert embed.double()(images)[0].dtype == torch.float64


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="strides: 1 for 2 widths, expected as many"):
        ConvStem((4, 8), (2,))
    with pytest.raises(ValueError, match=r"images: shape \(1, 1, 8, 8\), expected \[1 or more, 3"):
        ConvStem((4,), (2,))(torch.zeros(1, 1, 8, 8))
