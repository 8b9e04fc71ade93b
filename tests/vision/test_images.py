import sys
from types import ModuleType

import numpy as np
import pytest
import torch

from graphtheory.graph import Grid
from graphtheory.vision import images as image_graphs
from graphtheory.vision.images import Beside, InWindow, Nearest, patch_graphs, superpixel_graph
from graphtheory.vision.nn import PatchEmbedding
from graphtheory.vision.nn.patch import ConvStem


def test_a_node_is_what_the_patch_embedding_reads_at_the_middle_of_its_patch() -> None:
    images, embed = torch.rand(2, 3, 8, 12), PatchEmbedding(5, patch_size=4)
    batch = patch_graphs(images, 4, Beside(), y=[3, 1])
    expected = embed(images)[0]
    found = batch.x @ embed.projection.weight.flatten(1).t() + embed.projection.bias
    torch.testing.assert_close(found, expected)
    assert batch.y.tolist() == [3, 1] and batch.num_graphs == 2
    pos = patch_graphs(torch.rand(2, 1, 4, 6), 2, Beside()).pos
    assert pos[:6].tolist() == [[1, 1], [3, 1], [5, 1], [1, 3], [3, 3], [5, 3]]
    assert torch.equal(pos[6:], pos[:6])


@pytest.mark.parametrize(
    ("y", "shape"),
    [
        ([3, 1], [2]), (torch.tensor([3, 1]), [2]), (np.array([3, 1]), [2]),
        ([torch.tensor(3), torch.tensor([1]).squeeze()], [2]), (torch.tensor([[3], [1]]), [2]),
        (torch.rand(2, 5), [2, 5]), ([[0.5, 1.0], [1.0, 2.0]], [2, 2]),
        (torch.rand(2, 3, 4), [2, 3, 4]),
    ],
)  # fmt: skip
def test_labels_are_kept_in_the_shape_that_they_have(y: object, shape: list[int]) -> None:
    batch = patch_graphs(torch.rand(2, 1, 4, 4), 2, Beside(), y=y)
    assert list(batch.y.shape) == shape and list(batch[1].y.shape) == [1, *shape[1:]]
    assert torch.equal(batch.y.flatten(), torch.stack([torch.as_tensor(v) for v in y]).flatten())
    assert batch.y.dtype == torch.as_tensor(y[0]).dtype


@pytest.mark.parametrize(
    ("y", "told"),
    [
        (["cat", "dog"], r"y: got \['cat', 'dog'\], expected one number for each image"),
        ([[1, 2], [3]], r"y: got \[\[1, 2\], \[3\]\], expected one number for each image, or eq"),
        (torch.tensor(3), r"y: got tensor\(3\), expected one number for each image"),
        ([], r"y: got \[\], expected one number"),
        (torch.rand(3, 5), "y: 3 labels, expected one an image: 2"),
        ([None, 1], r"y: got \[None, 1\], expected"),
    ],
)
def test_labels_that_do_not_fit_are_named(y: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        patch_graphs(torch.rand(2, 1, 4, 4), 2, Beside(), y=y)


def test_edges_by_place_or_to_the_nearest_stay_within_their_image() -> None:
    batch = patch_graphs(torch.rand(3, 1, 8, 8), 2, Beside(diagonal=True))
    source, target = batch.edge_index
    assert torch.equal(source // 16, target // 16)
    far = (batch.pos[source] - batch.pos[target]).abs().amax(1)
    assert (far == 2).all() and batch.num_edges == 3 * 84
    within = patch_graphs(torch.rand(1, 1, 8, 8), 2, InWindow(2)).edge_index
    assert sorted(within[0, within[1] == 5].tolist()) == [0, 1, 4, 5]
    images = torch.rand(2, 3, 8, 8)
    x = image_graphs.nodes_of(images, 2)[1]
    source, target = Nearest(3)(x, Grid(1, 4, 4))
    distance = torch.cdist(x, x).fill_diagonal_(torch.inf)
    for node in range(16):
        wanted = distance[node].topk(3, largest=False).indices
        assert sorted(source[target == node].tolist()) == sorted(wanted.tolist())
    assert Nearest(9)(x[:4], Grid(1, 2, 2)).shape == (2, 12)  # no more than there are
    half = x.bfloat16().requires_grad_()
    assert Nearest(3)(half, Grid(1, 4, 4)).shape == (2, 48)


def test_superpixels_are_linked_where_they_touch() -> None:
    pytest.importorskip("skimage", reason="scikit-image is not installed")
    image = torch.zeros(3, 16, 16)
    image[0, :8, 8:], image[1, 8:, :8], image[2, 8:, 8:] = 1, 1, 1
    data = superpixel_graph(image, num_segments=4)
    assert data.x.tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert data.edge_index.tolist() == [[0, 0, 1, 1, 2, 2, 3, 3], [1, 2, 0, 3, 0, 3, 1, 2]]
    assert data.pos[2].tolist() == [3.5, 11.5] and data.seg.shape == (1, 16, 16)
    turned = superpixel_graph(image.permute(1, 2, 0).contiguous().permute(2, 0, 1), num_segments=4)
    assert torch.equal(turned.x, data.x) and torch.equal(turned.edge_index, data.edge_index)


def disk(channels: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
    """A bright disk on a dark ground, [channels, 96, 96]."""
    y, x = torch.meshgrid(torch.arange(96), torch.arange(96), indexing="ij")
    inside = ((y - 47) ** 2 + (x - 40) ** 2 < 800).float()
    return (low + (high - low) * inside).expand(channels, 96, 96)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.2, 0.4), (-1.0, 1.0), (0.0, 255.0)])
@pytest.mark.parametrize("channels", [1, 3])
def test_superpixels_follow_the_shape_in_gray_as_in_color(channels, low, high) -> None:
    pytest.importorskip("skimage", reason="scikit-image is not installed")
    data = superpixel_graph(disk(channels, low, high), 40)
    bright = (data.x - low) / (high - low)  # 0 or 1 of a region on one side of the edge
    assert data.x.size(1) == channels and (bright * (1 - bright)).max() < 0.01
    assert torch.equal(data.seg, superpixel_graph(disk(3, low, high), 40).seg)


def test_gray_images_are_segmented_as_three_equal_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def slic(image: np.ndarray, start_label: int, **options: object) -> np.ndarray:
        seen.append(image)
        return np.arange(16).reshape(4, 4) // 8

    monkeypatch.setattr("graphtheory.vision.images.find_spec", lambda name: True)
    monkeypatch.setitem(sys.modules, "skimage", ModuleType("skimage"))
    module = ModuleType("skimage.segmentation")
    monkeypatch.setattr(module, "slic", slic, raising=False)
    monkeypatch.setitem(sys.modules, "skimage.segmentation", module)
    gray = torch.arange(16.0).view(1, 4, 4) / 16
    for image in (gray, gray.expand(3, 4, 4)):
        data = superpixel_graph(image, 4)
        assert data.x.tolist() == [[3.5 / 16] * len(image), [11.5 / 16] * len(image)]
    assert seen[0].shape == (4, 4, 3) and np.array_equal(*seen)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: patch_graphs(torch.rand(1, 1, 6, 8), 4, Beside()), r"images: shape \(1, 1, 6, 8"),
        (lambda: patch_graphs(torch.rand(1, 8, 8), 4, Beside()), r"images: shape \(1, 8, 8\)"),
        (lambda: patch_graphs(torch.rand(1, 1, 8, 8), 0, Beside()), "patch_size: got 0, expected"),
        (lambda: Nearest(0), "k: got 0, expected 1 or more neighbors"),
        (lambda: patch_graphs(torch.rand(2, 1, 8, 8), 4, Beside(), y=[1]),
         "y: 1 labels, expected one an image: 2"),
        (lambda: superpixel_graph(torch.rand(1, 3, 8, 8)), r"image: shape \(1, 3, 8, 8\), expect"),
        (lambda: superpixel_graph(torch.rand(4, 8, 8)), r"shape \(4, 8, 8\), expected \[1, H, W\]"),
        (lambda: superpixel_graph(torch.rand(8, 8)), r"image: shape \(8, 8\), expected \[1, H"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_superpixels_say_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphtheory.vision.images.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"scikit-image: not installed.*graphtheory\[images\]"):
        superpixel_graph(torch.zeros(3, 8, 8))


@pytest.mark.parametrize("images", [torch.zeros(1, 1, 8, 8).byte(), np.zeros((1, 1, 8, 8)), "cat"])
def test_images_that_are_no_floating_tensors_get_a_hint(images: object) -> None:
    stem = ConvStem((4,), (2,), in_channels=1)
    for call in (lambda: patch_graphs(images, 4, Beside()), lambda: superpixel_graph(images),
                 lambda: stem(images)):  # fmt: skip
        told = r"expected a floating tensor; lab.datasets.image_sets.as_pixels"
        with pytest.raises(TypeError, match=told):
            call()
