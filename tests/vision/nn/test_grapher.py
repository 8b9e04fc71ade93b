import pytest
import torch
from torch import Tensor, nn

from graphtheory.graph import Grid
from graphtheory.vision import nn as vision_nn
from graphtheory.vision.nn import AttentionMessage, Grapher, MaxRelative, Message, NearestNeighbors
from graphtheory.vision.nn.grapher import coarser, position_similarity
from graphtheory.vision.nn.messages import GroupedLinear, largest_source

CPU = torch.device("cpu")


def points(count: int, dim: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def test_the_nearest_are_chosen_among_few_nodes_and_in_half_precision_too() -> None:
    x = points(20)
    unit = x / x.norm(dim=1, keepdim=True)
    order = torch.cdist(unit.double(), unit.double()).argsort(1)
    assert torch.equal(NearestNeighbors(5)(x), order[:, :5])
    assert torch.equal(NearestNeighbors(5, 3)(x), order[:, :15:3])
    assert NearestNeighbors(5, 3)(x)[:, 0].tolist() == list(range(20))  # the node itself is first
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
        own = slice(7 * image, 7 * image + 7)
        alone = NearestNeighbors(3)(x[own], sources[4 * image : 4 * image + 4])
        assert torch.equal(whole[own], alone + 4 * image)
    monkeypatch.setattr(vision_nn.grapher, "_NUMBERS", 30)  # 28 are one image
    assert torch.equal(NearestNeighbors(3)(x, sources, images=3), whole)


@pytest.mark.parametrize(("height", "width", "reduce"), [(6, 6, 2), (4, 8, 4), (5, 3, 2)])
def test_places_are_cosines_of_encodings_in_a_resized_table(height, width, reduce) -> None:
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
    two = NearestNeighbors(2)
    for call, message in (
        (lambda: NearestNeighbors(k=0), "k: got 0, expected a whole number from 1 up"),
        (lambda: NearestNeighbors(dilation=1.5), "dilation: got 1.5, expected a whole number"),
        (lambda: two(points(7), images=3), "images: got 3, expected a divisor of the 7 nodes"),
        (lambda: position_similarity(Grid(1, 2, 2), 1, 6, CPU),
         "dim: got 6, expected a multiple of 4"),
        (lambda: Grapher(MaxRelative(DIM), two, reduce=0), "reduce: got 0, expected 1 or more"),
        (lambda: Grapher(MaxRelative(6), two, with_place=True),
         "message: of width 6, expected a multiple of 4"),
        (lambda: GroupedLinear(6, 8), "groups: got 4, expected a divisor of 6 and 8"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()


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
    layer = Grapher(MaxRelative(DIM), NearestNeighbors(2), reduce=2, with_place=True).eval()
    grid = Grid(2, 3, 5)
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
    layer = Grapher(MaxRelative(DIM), NearestNeighbors(3), reduce=reduce).eval()
    grid, x = Grid(2, 2, 3), torch.randn(12, DIM)
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
    grapher = Grapher(MaxRelative(DIM), NearestNeighbors(2), drop_path=0.5)
    block = vision_nn.GraphBlock(grapher).train()
    x, grid = torch.randn(64 * 4, DIM), Grid(64, 2, 2)
    out = block(x, grid, torch.Generator().manual_seed(0))
    kept = (out == x).view(64, -1).all(1)
    assert 6 <= kept.sum() <= 28  # a quarter of 64, within 4 deviations
    assert isinstance(block.mlp[1], nn.BatchNorm1d) and block.mlp[0].out_features == 4 * DIM


DIM, NODES, K = 8, 11, 4
KINDS = (MaxRelative, vision_nn.EdgeMessage, vision_nn.SageMessage, AttentionMessage)
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def given() -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    x, sources = (torch.randn(n, DIM, generator=draw) for n in (NODES, NODES + 3))
    lists = torch.stack([torch.randperm(NODES + 3, generator=draw)[:K] for _ in range(NODES)])
    return x, sources, lists


def made(kind: type[Message]) -> Message:
    message = kind(DIM)
    for part in message.modules():
        if isinstance(part, nn.BatchNorm1d):  # not what a new norm does
            nn.init.uniform_(part.weight, 0.5, 2)
            nn.init.uniform_(part.bias)
    return message


def convolved(mix: nn.Sequential, maps: Tensor, training: bool) -> Tensor:
    """A `mixed` on maps [1, C, N, k], by a grouped convolution and a norm of two axes."""
    linear, norm = mix[0], mix[1]
    maps = nn.functional.conv2d(maps, linear.weight[..., None, None], linear.bias, groups=4)
    mean, var = norm.running_mean.clone(), norm.running_var.clone()
    options = (mean, var, norm.weight, norm.bias, training)
    return nn.functional.gelu(nn.functional.batch_norm(maps, *options))


def definition(message: Message, x: Tensor, sources: Tensor, lists: Tensor) -> Tensor:
    """[1, 2 C, N] of x [N, C]."""
    own = x.T[None, :, :, None]
    near = sources[lists].permute(2, 0, 1)[None]  # [1, C, N, k]
    training = message.training
    if isinstance(message, MaxRelative):
        largest = (near - own).amax(3, keepdim=True)
        pairs = torch.stack([own, largest], 2).flatten(1, 2)
        return convolved(message.mix, pairs, training)[..., 0]
    if isinstance(message, vision_nn.EdgeMessage):
        pairs = torch.cat([own.expand_as(near), near - own], 1)
        return convolved(message.mix, pairs, training).amax(3)
    mapped = convolved(message.map, sources.T[None, :, :, None], training)[0, :, :, 0].T
    largest = mapped[lists].permute(2, 0, 1)[None].amax(3, keepdim=True)
    return convolved(message.mix, torch.cat([own, largest], 1), training)[..., 0]


@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("training", [True, False])
def test_equal_to_the_definition(kind: type[Message], training: bool, given) -> None:
    message = made(kind).train(training)
    x, sources, lists = given
    leaves = [x.requires_grad_(), sources.requires_grad_()]
    wanted = definition(message, x, sources, lists)[0].T
    found = message(x, sources, lists)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    back = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    leaves += list(message.parameters())
    both = (torch.autograd.grad(out, leaves, back) for out in (found, wanted))
    torch.testing.assert_close(*both, atol=1e-4, rtol=1e-4)


@every_kind
def test_weights_tell_who_had_a_part(kind: type[Message], given: tuple[Tensor, ...]) -> None:
    message = made(kind).eval()
    x, sources, lists = given
    weights = message.weights(x, sources, lists).view(NODES, K, -1)
    torch.testing.assert_close(weights.sum(1), torch.ones(NODES, weights.size(2)))
    node = 3
    quiet = weights[node].sum(1).argmin()
    loud = weights[node].sum(1).argmax()
    moved = []
    for place in (quiet, loud):
        other = sources.clone()
        other[lists[node, place]] -= 1e-3  # a little lower: only the largest features change
        moved.append((message(x, other, lists) - message(x, sources, lists))[node].abs().sum())
    assert moved[1] > moved[0]
    assert moved[0] == 0 or weights[node, quiet].sum() > 0


def test_of_equal_sources_the_first_is_largest() -> None:
    values = torch.tensor([[1.0, 2.0], [1.0, 3.0], [0.0, 3.0]])
    assert largest_source(values, torch.tensor([[2, 0, 1]])).tolist() == [[0, 2]]


def test_attention_is_that_of_the_layer(given: tuple[Tensor, ...]) -> None:
    message, (x, sources, lists) = made(AttentionMessage).eval(), given
    attention = message.attention
    w, b = attention.qkv.weight.chunk(3), attention.qkv.bias.chunk(3)
    parts = zip((x, sources, sources), w, b, strict=True)
    q, k, v = ((t @ m.T + c).view(-1, 4, DIM // 4) for t, m, c in parts)
    weights = ((q[:, None] * k[lists]).sum(3) / (DIM // 4) ** 0.5).softmax(1)  # [N, k, heads]
    seen = attention.out((weights[..., None] * v[lists]).sum(1).flatten(1))
    pairs = torch.stack([x, seen], 2).flatten(1)
    torch.testing.assert_close(message(x, sources, lists), message.mix(pairs))
    found = message.weights(x, sources, lists)
    torch.testing.assert_close(found.view(NODES, K, 4), weights)
