import pytest
import torch
from torch import nn

from graphtheory.graph import Grid
from graphtheory.vision.nn import GraphBlock, Grapher, MaxRelative, NearestNeighbors
from graphtheory.vision.nn.grapher import coarser

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


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="reduce: got 0, expected 1 or more"):
        Grapher(MaxRelative(DIM), NearestNeighbors(2), reduce=0)
    with pytest.raises(ValueError, match="message: of width 6, expected a multiple of 4"):
        Grapher(MaxRelative(6), NearestNeighbors(2), with_place=True)
