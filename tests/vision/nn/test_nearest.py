import pytest
import torch
from torch import Tensor, nn

from graphtheory.graph import Grid
from graphtheory.vision.nn import NearestNeighbors, grapher
from graphtheory.vision.nn.grapher import position_similarity, resized_similarity

CPU = torch.device("cpu")


def points(count: int, dim: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def test_the_nearest_of_normalized_features_and_every_third_of_them() -> None:
    x = points(20)
    unit = x / x.norm(dim=1, keepdim=True)
    order = torch.cdist(unit.double(), unit.double()).argsort(1)
    assert torch.equal(NearestNeighbors(5)(x), order[:, :5])
    assert torch.equal(NearestNeighbors(5, 3)(x), order[:, :15:3])
    assert NearestNeighbors(5, 3)(x)[:, 0].tolist() == list(
        range(20)
    )  # the node itself is the first
    assert torch.equal(NearestNeighbors(5)(100 * x), order[:, :5])


def test_images_stay_apart_however_many_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    x, sources = points(3 * 7), points(3 * 4, seed=1)
    whole = NearestNeighbors(3)(x, sources, images=3)
    for image in range(3):
        alone = NearestNeighbors(3)(
            x[7 * image : 7 * image + 7], sources[4 * image : 4 * image + 4]
        )
        assert torch.equal(whole[7 * image : 7 * image + 7], alone + 4 * image)
    monkeypatch.setattr(grapher, "_NUMBERS", 30)  # 28 are one image
    assert torch.equal(NearestNeighbors(3)(x, sources, images=3), whole)


def test_fewer_nodes_than_asked_for() -> None:
    assert NearestNeighbors(9, 4)(points(5)).sort(1).values.tolist() == [list(range(5))] * 5
    assert NearestNeighbors(3, 4)(points(7)).shape == (7, 3)  # a dilation of 2 is left
    assert torch.equal(NearestNeighbors(3, 4)(points(7)), NearestNeighbors(3, 2)(points(7)))
    assert NearestNeighbors()(points(1)).tolist() == [[0]]


def test_no_gradient_and_half_precision_chooses_the_same() -> None:
    x = points(30).bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(NearestNeighbors(4)(x), NearestNeighbors(4)(x.detach().double()))


@pytest.mark.parametrize(("height", "width", "reduce"), [(6, 6, 1), (5, 7, 2), (3, 9, 4)])
def test_places_are_cosines_of_encodings_and_of_their_means(
    height: int, width: int, reduce: int
) -> None:
    dim, grid = 16, Grid(1, height, width)
    angle = torch.arange(9.0)[:, None] * 10000 ** -(torch.arange(4) / 4)
    axis = torch.cat([angle.sin(), angle.cos()], 1)
    code = torch.stack(
        [torch.cat([axis[c], axis[r]]) for r in range(height) for c in range(width)]
    )  # [N, dim]
    cells = [
        torch.stack([code[r * width + c] for r in range(top, min(top + reduce, height))
                     for c in range(left, min(left + reduce, width))]).mean(0)
        for top in range(0, height, reduce) for left in range(0, width, reduce)
    ]  # fmt: skip
    wanted = 2 / dim * code @ torch.stack(cells).T
    place = position_similarity(grid, reduce, dim, CPU)
    found = place.rows[:, None, :, None] + place.columns[None, :, None, :]
    torch.testing.assert_close(found.reshape(wanted.shape), wanted)
    if reduce == 1:
        torch.testing.assert_close(wanted.diagonal(), torch.ones(height * width))
    same = torch.ones(grid.num_nodes, 4)  # features say nothing, so places decide
    lists = NearestNeighbors(4)(same, torch.ones(len(cells), 4), place=place)
    chosen = wanted.gather(1, lists)
    torch.testing.assert_close(chosen, wanted.topk(lists.size(1)).values)


@pytest.mark.parametrize(("height", "width", "reduce"), [(6, 6, 2), (4, 8, 4), (5, 3, 2)])
def test_resized_places_are_the_resized_table_of_all_places(
    height: int, width: int, reduce: int
) -> None:
    dim, grid = 16, Grid(1, height, width)
    whole = resized_similarity(grid, 1, dim, CPU)
    rows, columns = position_similarity(grid, 1, dim, CPU)
    sums = rows[:, None, :, None] + columns[None, :, None, :]
    torch.testing.assert_close(whole, sums.reshape(whole.shape))
    many = -(-height // reduce) * -(-width // reduce)
    wanted = nn.functional.interpolate(whole[None, None], (len(whole), many), mode="bicubic")[0, 0]
    place = resized_similarity(grid, reduce, dim, CPU)
    torch.testing.assert_close(place, wanted)
    same = torch.ones(2 * grid.size, 4)  # features say nothing, so places decide
    lists = NearestNeighbors(2)(same, torch.ones(2 * many, 4), images=2, place=place)
    for image in range(2):
        chosen = lists.view(2, grid.size, 2)[image] - image * many
        torch.testing.assert_close(wanted.gather(1, chosen), wanted.topk(2).values)


def test_bad_arguments_are_named() -> None:
    for options, message in (
        ({"k": 0}, "k: got 0, expected a whole number from 1 up"),
        ({"dilation": 1.5}, "dilation: got 1.5, expected a whole number"),
    ):
        with pytest.raises(ValueError, match=message):
            NearestNeighbors(**options)
    with pytest.raises(ValueError, match="images: got 3, expected a divisor of the 7 nodes"):
        NearestNeighbors(2)(points(7), images=3)
    with pytest.raises(ValueError, match="dim: got 6, expected a multiple of 4"):
        position_similarity(Grid(1, 2, 2), 1, 6, CPU)
    with pytest.raises(ValueError, match="dim: got 6, expected a multiple of 4"):
        resized_similarity(Grid(1, 2, 2), 1, 6, CPU)
