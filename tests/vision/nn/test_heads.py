from functools import partial

import pytest
import torch
from torch import nn

from graphtheory.graph import Grid
from graphtheory.vision import nn as vision_nn
from graphtheory.vision.nn import ConvStem, MLPHead, PatchEmbedding, TransformerHead, token_sets
from graphtheory.vision.nn.patch import PatchConv2d, PatchTokens, from_map, to_map
from graphtheory.vision.nn.positions import init_for_small, init_transformer, sine_positions
from graphtheory.vision.nn.token_sets import token_bipartite, token_cliques, token_windows

# The paper does not state head size and FFN: these have the printed numbers. Its text says 7 maps
# of the large feed-forward head, which have 6.3 M; the 7.4 M of its table are those of 8.
of_paper = partial(TransformerHead, 512, depth=5, head_dim=64)


@pytest.mark.parametrize(
    ("head", "printed"),
    [
        (of_paper(width=128, heads=8, hidden_channels=432), 1.9),
        (of_paper(width=256, heads=16, hidden_channels=864), 7.6),
        (MLPHead(512, 640, 512, 5), 1.9), (MLPHead(512, 1024, 512, 8), 7.4),
    ],
)  # fmt: skip
def test_the_sizes_of_the_paper_have_the_printed_parameters(head, printed: float) -> None:
    assert round(sum(p.numel() for p in head.parameters()) / 1e6, 1) == printed


def test_it_is_torchs_encoder_with_the_norm_first() -> None:
    head = TransformerHead(8, 3, width=8, depth=2, heads=2, hidden_channels=12)
    options = {"layer_norm_eps": 1e-6, "batch_first": True, "norm_first": True}
    layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", **options)
    theirs = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8), enable_nested_tensor=False)
    names = {
        "blocks.": "layers.", "attention.qkv.": "self_attn.in_proj_",
        "attention.out.": "self_attn.out_proj.", "mlp.fc1.": "linear1.", "mlp.fc2.": "linear2.",
    }  # fmt: skip
    state = {}
    for name, tensor in head.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        state[name] = tensor
    theirs.load_state_dict({k: v for k, v in state.items() if not k.startswith(("inward", "out."))})
    x = torch.randn(7, 8)
    torch.testing.assert_close(head(x), head.out(theirs(head.inward(x)[None])[0]))


def test_the_attention_of_a_pass_is_that_of_the_pass() -> None:
    head, x = TransformerHead(6, width=8, depth=3, heads=2, head_dim=3), torch.randn(5, 6)
    out, attention = head.with_attention(x)
    torch.testing.assert_close(out, head(x))
    assert [tuple(a.shape) for a in attention] == [(2, 5, 5)] * 3
    torch.testing.assert_close(torch.stack(attention).sum(3), torch.ones(3, 2, 5))
    layer = head.blocks[0].attention
    seen = head.blocks[0].norm1(head.inward(x))
    query, key, value = layer.qkv(seen).view(5, 3, 2, 3).permute(1, 2, 0, 3)
    torch.testing.assert_close(attention[0], (query @ key.mT / 3**0.5).softmax(2))
    branch = layer.out((attention[0] @ value).transpose(0, 1).flatten(1))
    torch.testing.assert_close(layer.with_weights(seen, token_cliques(1, 5, CPU))[0], branch)


def test_a_sample_attends_to_the_batch_and_its_order_does_not_matter() -> None:
    head, x = TransformerHead(6, width=8, depth=2, heads=2), torch.randn(5, 6)
    order = torch.randperm(5)
    torch.testing.assert_close(head(x[order]), head(x)[order])
    assert not torch.allclose(head(x)[:3], head(x[:3]))
    assert [tuple(a.shape) for a in head.with_attention(x[:0])[1]] == [(2, 0, 0)] * 2
    alone, (weights, _) = head.with_attention(x[:1])
    assert alone.shape == (1, 8) and (weights == 1).all()


def test_depth_one_of_the_mlp_is_linear_and_lightly_takes_it() -> None:
    head = MLPHead(6, out_channels=4, depth=1)
    assert [type(layer) for layer in head.layers] == [nn.Linear]
    assert sum(isinstance(m, nn.BatchNorm1d) for m in MLPHead(6, 5, 4, 3).modules()) == 2
    heads = pytest.importorskip("lightly.models.modules.heads", reason="lightly is not installed")
    loss = pytest.importorskip("lightly.loss").NTXentLoss(0.2)
    views = torch.randn(2, 8, 16)
    for head in (heads.SimCLRProjectionHead(16, 32, 8), TransformerHead(16, 8, width=32, heads=4)):
        found = loss(head(views[0]), head(views[1]))
        found.backward()
        assert found.isfinite() and all(p.grad is not None for p in head.parameters())


def test_bad_sizes_are_named() -> None:
    for call, message in (
        (lambda: TransformerHead(4, width=8, heads=3), "heads: got 3, expected a divisor of dim=8"),
        (lambda: TransformerHead(4, depth=0), "depth: got 0, expected 1 or more"),
        (lambda: MLPHead(4, depth=0), "depth: got 0, expected 1 or more"),
        (lambda: TransformerHead(4)(torch.zeros(2, 3, 4)),
         r"x: shape \(2, 3, 4\), expected \[batch, in_channels\]"),
        (lambda: ConvStem((4, 8), (2,)), "strides: 1 for 2 widths, expected as many"),
        (lambda: ConvStem((4,), (2,))(torch.zeros(1, 1, 8, 8)),
         r"images: shape \(1, 1, 8, 8\), expected \[1 or more, 3"),
        (lambda: to_map(torch.zeros(5, 2), Grid(1, 2, 2)),
         r"x: shape \(5, 2\), expected \[4, dim\] for Grid"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()


def test_sines_turn_and_a_period_begins_again() -> None:
    """The dot product of two places depends on their distance alone; each wave turns as it says."""
    e = vision_nn.SinusoidalPositions(6)(torch.arange(50)).double()
    dots = e @ e.t()
    for gap in (1, 7):
        torch.testing.assert_close(dots.diagonal(gap), dots[0, gap].expand(50 - gap))
    waves = torch.tensor([1.0, 1e4 ** (-1 / 3), 1e4 ** (-2 / 3)], dtype=torch.float64)
    torch.testing.assert_close(dots[0, 1], waves.cos().sum())
    vectors = torch.randn(3, 5)
    found = vision_nn.PeriodicPositions(vectors)(torch.tensor([0, 4, 5, 8]))
    assert torch.equal(found, vectors[[0, 1, 2, 2]])


def test_maps_are_drawn_from_the_generator_and_narrow_ones_of_their_width() -> None:
    def model(seed: int) -> nn.Module:
        made = nn.Sequential(nn.Conv2d(3, 40, 4), nn.LayerNorm(40), nn.Linear(40, 50))
        nn.init.constant_(made[1].bias, 3)
        init_transformer(made, torch.Generator().manual_seed(seed))
        return made

    first, again, other = model(0), model(0), model(1)
    assert torch.equal(first[2].weight, again[2].weight)
    assert not torch.equal(first[2].weight, other[2].weight)
    assert abs(first[0].weight.std() - 0.02) < 0.002 and not first[0].bias.any()
    assert (first[1].bias == 3).all()
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(1, 64, 4), nn.Linear(64, 192))
    init_for_small(layers)
    for layer, width_in, width_out in ((layers[0], 16, 64), (layers[1], 64, 192)):
        expected = (2 / (width_in + width_out)) ** 0.5
        assert float(layer.weight.detach().std()) == pytest.approx(expected, rel=0.05)
        assert not layer.bias.any()


def test_sines_tell_places_apart_and_near_ones_alike() -> None:
    found = sine_positions(64, 3, 7)
    assert found.shape == (21, 64) and torch.pdist(found).min() > 0.5
    assert torch.allclose(found.norm(dim=1), torch.full((21,), 32**0.5))
    likeness = found @ found[10]  # the middle
    assert likeness.argmax() == 10 and likeness[11] > likeness[13]
    assert found[:7, 32:].unique(dim=0).shape == (1, 32)  # one row: only the columns differ
    with pytest.raises(ValueError, match="dim: got 6, expected a multiple of 4"):
        sine_positions(6, 2, 2)


CPU = torch.device("cpu")


def test_a_size_is_built_once_and_serves_training() -> None:
    assert token_cliques(2, 5, CPU) is token_cliques(2, 5, CPU)
    assert token_cliques(2, 5, CPU).blocks == (2, 5, 5)
    assert token_bipartite(2, 3, 5, CPU) is token_bipartite(2, 3, 5, CPU)
    assert token_bipartite(2, 3, 5, CPU).blocks == (2, 3, 5)
    assert token_sets.token_causal((2, 5), CPU) is token_sets.token_causal((2, 5), CPU)
    assert token_sets.token_causal((2, 5), CPU).num_edges == 3 + 15
    assert token_windows(Grid(1, 4, 4), 2, 1, CPU) is token_windows(Grid(1, 4, 4), 2, 1, CPU)
    assert token_windows(Grid(1, 4, 4), 2, 0, CPU) is not token_windows(Grid(1, 4, 4), 2, 1, CPU)
    with torch.inference_mode():
        nb, cut = token_cliques(3, 7, CPU), token_windows(Grid(3, 5, 5), 2, 1, CPU)
    assert not any(t.is_inference() for t in (nb.indices, *cut[1:]))


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
    position = vision_nn.PositionEmbedding(1, 4, 4, prefix=2)
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
    tokens = PatchTokens(patch, vision_nn.PositionEmbedding(5, 2, 2, prefix=1))
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


def test_other_types_bytes_and_arrays_are_refused_in_words() -> None:
    embed = PatchEmbedding(8, patch_size=4)
    told = r"got torch.uint8, expected a floating tensor; lab\.datasets\.image_sets"
    with pytest.raises(TypeError, match=told):
        embed(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(TypeError, match="got list, expected a floating tensor"):
        embed([0.0])  # type: ignore[arg-type]
    embed, images = PatchEmbedding(8, patch_size=4), torch.randn(1, 3, 8, 8, dtype=torch.float64)
    with pytest.raises(TypeError, match=r"images: torch.float64, expected torch.float32 as the w"):
        embed(images)
    with torch.autocast("cpu", torch.bfloat16):
        assert embed(images.bfloat16())[0].dtype == torch.bfloat16
    assert embed.double()(images)[0].dtype == torch.float64
