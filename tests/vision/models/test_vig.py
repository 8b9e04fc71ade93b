from collections.abc import Callable

import matplotlib.pyplot as plt
import pytest
import torch
from torch import nn

from graphtheory.lab import plot
from graphtheory.lab.metrics import count_macs
from graphtheory.nn import attention_maps
from graphtheory.vision import models
from graphtheory.vision.models import ViG, vig_nano
from graphtheory.vision.models.vig import pyramid_vig, vig
from graphtheory.vision.nn import AttentionMessage, EdgeMessage, SageMessage

# Name -> millions of parameters, and billions of operations, published.
PUBLISHED = {
    "vig_tiny": (7.1, 1.3), "vig_small": (22.7, 4.5), "vig_base": (86.8, 17.7),
    "pyramid_vig_tiny": (10.7, 1.7), "pyramid_vig_small": (27.3, 4.6),
    "pyramid_vig_medium": (51.7, 8.9), "pyramid_vig_base": (82.6, 16.8),
}  # fmt: skip
# Not within the rounding: ours by the released code, which has the published operations.
OTHERS = {"vig_tiny": 7.18, "pyramid_vig_base": 92.98}
TABLES = {"pyramid_vig_medium"}  # fixed tables of places were counted, there alone


def pyramid(**options: object) -> ViG:
    small = {"image_size": 32, "patch_size": 2, "reduce": (2, 1), "head_width": 16}
    return pyramid_vig((8, 16), (1, 2), **{**small, **options})


@pytest.mark.parametrize("name", PUBLISHED)
def test_size_and_cost_are_published(name: str) -> None:
    """Their counter counts an operation for each entry of a norm; it decides two roundings."""
    with torch.device("meta"):
        model, image = getattr(models, name)(), torch.zeros(1, 3, 224, 224)
    entries: list[int] = []
    for part in model.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.register_forward_hook(lambda *call: entries.append(call[2].numel()))
    cost = count_macs(model, image).total + sum(entries)
    size = sum(p.numel() for p in model.parameters())
    if name in TABLES:
        nodes = [(56**2, 4, 2), (28**2, 2, 2), (14**2, 1, 16), (7**2, 1, 2)]
        size += sum(blocks * n * n // r**2 for n, r, blocks in nodes)
    wanted, operations = PUBLISHED[name]
    assert round(cost / 1e9, 1) == operations
    if name in OTHERS:
        assert round(size / 1e6, 2) == OTHERS[name]
    else:
        assert abs(size / 1e6 - wanted) <= 0.051


def test_neighbors_grow_over_the_blocks() -> None:
    with torch.device("meta"):
        flat, steep = models.vig_tiny(), models.pyramid_vig_base()
    near = [block.grapher.nearest for block in flat.stages[0].blocks]
    assert [n.k for n in near] == [int(k) for k in torch.linspace(9, 18, 12)]
    assert [n.dilation for n in near] == [1] * 4 + [2] * 4 + [3] * 4
    blocks = [block.grapher for stage in steep.stages for block in stage.blocks]
    assert {b.nearest.k for b in blocks} == {9}
    assert [b.nearest.dilation for b in blocks] == [min(i // 4 + 1, 5) for i in range(24)]
    assert [b.reduce for b in blocks] == [4, 4, 2, 2, *[1] * 20]


@pytest.mark.parametrize("make", [vig_nano, pyramid])
def test_images_of_any_size_do_not_see_each_other(make: type[ViG]) -> None:
    model = make(out_channels=3).eval()
    nn.init.normal_(model.position.table)
    for size in ((32, 32), (28, 28), (9, 50), (1, 3)):
        images = torch.randn(3, 3, *size)
        out = model(images)
        assert out.shape == (3, 3)
        torch.testing.assert_close(model(images[1:2]), out[1:2], atol=1e-5, rtol=1e-4)
    graph = model.graphs(images)[-1]
    assert graph.neighborhood.edge_index().tolist() == 2 * [[0, 1, 2]]  # a node is its own


@pytest.mark.parametrize("message", [EdgeMessage, SageMessage, AttentionMessage])
def test_other_messages_take_the_place(message: type) -> None:
    model = pyramid(message=message, out_channels=3)
    model(torch.randn(2, 3, 16, 24)).sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []
    found = model.attention_maps(torch.randn(2, 3, 16, 24))
    assert [m.weights.size(1) for m in found] == [4 if message is AttentionMessage else 1] * 3
    kept = attention_maps(model, torch.randn(2, 3, 16, 24))
    assert len(kept) == (3 if message is AttentionMessage else 0)


def test_the_graph_of_each_block_is_returned_and_drawn() -> None:
    model = pyramid().train()
    images = torch.rand(2, 3, 32, 48)
    graphs = model.graphs(images)
    assert model.training and [g.reduce for g in graphs] == [2, 1, 1]
    sizes = [(g.neighborhood.num_dst, g.neighborhood.num_src) for g in graphs]
    assert sizes == [(2 * 16 * 24, 2 * 8 * 12), *[(2 * 8 * 12, 2 * 8 * 12)] * 2]
    assert graphs[1].neighborhood.edge_index().shape == (2, 192 * 9)
    for graph in graphs[:2]:
        drawing = graph.drawing(1, 32, 48)
        figure = plot.image_graph(images[1], **drawing, target=40)
        (lines,) = (c for c in figure.axes[0].collections if len(c.get_paths()) > 1)
        assert len(lines.get_segments()) >= 8  # of 9, one of which may be the node itself
        plt.close(figure)


def test_it_learns_and_repeats(losses: Callable[..., list[float]]) -> None:
    def make() -> ViG:
        return vig(16, 2, image_size=16, patch_size=4, neighbors=3, out_channels=4, drop_path=0.1)

    first = losses(make, 16, 8)
    assert first == losses(make, 16, 8) and first[-1] < 0.5 * first[0]


def test_bad_options_are_named() -> None:
    for make, options, message in (
        (vig_nano, {"patch_size": 6}, "patch_size: got 6, expected a power of 2"),
        (vig_nano, {"image_size": 30}, "image_size: got 30, expected a multiple of patch_size=4"),
        (pyramid, {"reduce": (1,)}, "reduce: 1 stages, expected 2 as many as dims"),
    ):
        with pytest.raises(ValueError, match=message):
            make(**options)
