import pytest
import torch
from torch import Tensor, nn

from graphtheory.graph import Grid
from graphtheory.vision.nn import GraphBlock, Grapher, MaxRelative, NearestNeighbors, grapher
from graphtheory.vision.nn.grapher import coarser, position_similarity

CPU = torch.device("cpu")


def points(count: int, dim: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def test_the_nearest_are_chosen_among_few_nodes_and_in_half_precision_too() -> None:
    x = points(20)
    unit = x / x.norm(dim=1, keepdim=True)
    order = torch.cdist(unit.double(), unit.double()).argsort(1)
    assert torch.equal(NearestNeighbors(5)(x), order[:, :5])
    assert torch.equal(NearestNeighbors(5, 3)(x), order[:, :15:3])
    assert NearestNeighbors(5, 3)(x)[:, 0].tolist() == list(
        range(20)
    )  # the node itself is the first
    assert torch.equal(NearestNeighbors(5)(100 * x), order[:, :5])
    assert NearestNeighbors(9, 4)(points(5)).sort(1).values.tolist() == [list(range(5))] * 5
    assert NearestNeighbors(3, 4)(points(7)).shape == (7, 3)  # a dilation of 2 is left
    assert torch.equal(NearestNeighbors(3, 4)(points(7)), NearestNeighbors(3, 2)(points(7)))
    assert NearestNeighbors()(points(1)).tolist() == [[0]]
    x = points(30).bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(NearestNeighbors(4)(x), NearestNeighbors(4)(x.detach().double()))


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


@pytest.mark.parametrize(("height", "width", "reduce"), [(6, 6, 2), (4, 8, 4), (5, 3, 2)])
def test_places_are_cosines_of_encodings_and_their_table_is_resized(
    height: int, width: int, reduce: int
) -> None:
    dim, grid = 16, Grid(1, height, width)
    angle = torch.arange(9.0)[:, None] * 10000 ** -(torch.arange(4) / 4)
    axis = torch.cat([angle.sin(), angle.cos()], 1)
    code = torch.stack(
        [torch.cat([axis[c], axis[r]]) for r in range(height) for c in range(width)]
    )  # [N, dim]
    whole = position_similarity(grid, 1, dim, CPU)
    torch.testing.assert_close(whole, 2 / dim * code @ code.T)
    torch.testing.assert_close(whole.diagonal(), torch.ones(height * width))
    many = -(-height // reduce) * -(-width // reduce)
    wanted = nn.functional.interpolate(whole[None, None], (len(whole), many), mode="bicubic")[0, 0]
    place = position_similarity(grid, reduce, dim, CPU)
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
    with pytest.raises(ValueError, match="reduce: got 0, expected 1 or more"):
        Grapher(MaxRelative(DIM), NearestNeighbors(2), reduce=0)
    with pytest.raises(ValueError, match="message: of width 6, expected a multiple of 4"):
        Grapher(MaxRelative(6), NearestNeighbors(2), with_place=True)


DIM = 8


def test_the_graph_is_that_of_the_mapped_nodes_and_the_message_runs_on_it() -> None:
    layer, grid = Grapher(MaxRelative(DIM), NearestNeighbors(3, 2)), Grid(2, 3, 4)
    x = torch.randn(24, DIM, requires_grad=True)
    nodes = layer.before(x)
    lists = NearestNeighbors(3, 2)(nodes, images=2)
    wanted = x + layer.after(layer.message(nodes, nodes, lists))
    torch.testing.assert_close(layer(x, grid), wanted)
    found = layer.eval().graph(x, grid)
    assert found.neighborhood.num_src == 24 and found.weights.shape == (72, 1)
    layer(x, grid).sum().backward()
    assert x.grad is not None and all(p.grad is not None for p in layer.parameters())


def test_sources_are_means_of_nodes_with_places() -> None:
    layer, grid = (
        Grapher(MaxRelative(DIM), NearestNeighbors(2), reduce=2, with_place=True),
        Grid(2, 3, 5),
    )
    layer.eval()
    x = torch.randn(30, DIM)
    found = layer.graph(x, grid)
    assert (found.neighborhood.num_dst, found.neighborhood.num_src) == (30, 12)
    maps = x.view(2, 3, 5, DIM)
    sources = coarser(x, grid, 2).view(2, 2, 3, DIM)
    torch.testing.assert_close(sources[:, 0, 1], maps[:, :2, 2:4].mean((1, 2)))
    torch.testing.assert_close(sources[:, 1, 2], maps[:, 2, 4])  # what is left over in the corner
    alone = layer(x[15:], Grid(1, 3, 5))
    torch.testing.assert_close(layer(x, grid)[15:], alone)


@pytest.mark.parametrize("reduce", [1, 2])
def test_a_drawing_is_of_one_image_in_pixels(reduce: int) -> None:
    layer, grid = (
        Grapher(MaxRelative(DIM), NearestNeighbors(3), reduce=reduce).eval(),
        Grid(2, 2, 3),
    )
    x = torch.randn(12, DIM)
    found, alone = layer.graph(x, grid), layer.graph(x[6:], Grid(1, 2, 3))
    drawn = found.drawing(1, height=20, width=60)
    assert all(torch.equal(drawn[n], t) for n, t in alone.drawing(0, 20, 60).items())
    assert drawn["pos"][:6].tolist()[:4] == [[10, 5], [30, 5], [50, 5], [10, 15]]
    k = 3 if reduce == 1 else 2  # two sources are all there are
    assert drawn["edge_index"].shape == (2, 6 * k) and drawn["weight"].shape == (6 * k,)
    if reduce == 2:
        assert drawn["pos"][6:].tolist() == [[20, 10], [50, 10]]
        assert drawn["edge_index"][0].unique().tolist() == [6, 7]
    with pytest.raises(ValueError, match=r"image: got 2, expected 0\.\.1"):
        found.drawing(2, 20, 60)


def test_a_block_leaves_out_branches_of_an_image_with_their_rate() -> None:
    block = GraphBlock(Grapher(MaxRelative(DIM), NearestNeighbors(2), drop_path=0.5)).train()
    x, grid = torch.randn(64 * 4, DIM), Grid(64, 2, 2)
    out = block(x, grid, torch.Generator().manual_seed(0))
    kept = (out == x).view(64, -1).all(1)
    assert 6 <= kept.sum() <= 28  # a quarter of 64, within 4 deviations
    assert isinstance(block.mlp[1], nn.BatchNorm1d) and block.mlp[0].out_features == 4 * DIM
