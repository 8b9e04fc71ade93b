from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from graphtheory.vision import models
from graphtheory.vision.models import ClassToken, DistilledToken, MeanToken, vit_pico
from graphtheory.vision.models.vit import depth_rates, vit

# Parameters as published, or counted by the libraries that publish weights.
PUBLISHED = {
    "vit_tiny": 5_717_416, "vit_small": 22_050_664, "vit_base": 86_567_656,
    "deit_tiny": 5_717_416, "deit_small": 22_050_664, "deit_base": 86_567_656,
}  # fmt: skip
DISTILLED = {"deit_tiny": 5_910_800, "deit_small": 22_436_432, "deit_base": 87_338_192}


def size(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_named_models_have_the_published_sizes_and_paths_that_drop_deeper() -> None:
    with torch.device("meta"):
        assert {n: size(getattr(models, n)()) for n in PUBLISHED} == PUBLISHED
        found = {n: size(getattr(models, n)(readout=DistilledToken)) for n in DISTILLED}
    assert found == DISTILLED
    with torch.device("meta"):
        model = models.deit_tiny()
    rates = [block.drop_path.p for block in model.blocks]
    assert rates == depth_rates(0.1, 12) and (rates[0], rates[-1]) == (0.0, 0.1)


@pytest.mark.parametrize("readout", [models.ClassToken, DistilledToken, MeanToken])
def test_images_do_not_see_each_other(readout: type) -> None:
    model = vit_pico(out_channels=3, readout=readout).eval()
    images = torch.randn(3, 3, 28, 36)
    out = model(images)
    torch.testing.assert_close(model(images[1:2]), out[1:2])
    assert out.shape == (3, 3)
    assert model.tokens(images).shape == (3, readout.prefix + 63, 64)


PICO = pytest.mark.parametrize("network", [vit_pico, models.stvit_pico])


@PICO
def test_attention_runs_on_dense_blocks(network: Callable[..., Any], chosen: list[str]) -> None:
    network()(torch.randn(2, 3, 32, 32))
    assert chosen == ["blocks"] * 4


def test_maps_are_of_each_layer_and_each_reads_its_tokens() -> None:
    model, images = vit_pico(image_size=28), torch.randn(2, 3, 28, 28)
    maps = model.attention_maps(images)
    assert [m.weights.shape for m in maps] == [(2 * 50 * 50, 2)] * 4
    nb = maps[0].neighborhood
    total = torch.zeros(100, 2).index_add(0, nb.targets(), maps[-1].weights)
    torch.testing.assert_close(total, torch.ones(100, 2))
    assert model.training
    tokens = torch.randn(2, 5, 4)
    assert torch.equal(ClassToken()(tokens), tokens[:, 0])
    assert torch.equal(MeanToken()(tokens), tokens.mean(1))
    head = DistilledToken.linear(4, 3)
    output, distilled = head.both(tokens)
    torch.testing.assert_close(output, head.output(tokens[:, 0]))
    torch.testing.assert_close(distilled, head.distilled(tokens[:, 1]))
    torch.testing.assert_close(head(tokens), (output + distilled) / 2)
    assert (MeanToken.prefix, ClassToken.prefix, DistilledToken.prefix) == (0, 1, 2)


@PICO
def test_it_learns_and_repeats(
    network: Callable[..., Any], losses: Callable[..., list[float]]
) -> None:
    make = partial(network, out_channels=4, drop_path=0.1)
    first = losses(make)
    assert first == losses(make) and first[-1] < 0.5 * first[0]


def test_options_reach_the_blocks_and_bad_ones_are_named() -> None:
    model = vit(8, 2, 2, image_size=8, patch_size=4, in_channels=1, layer_scale=0.1, dropout=0.2)
    assert model.blocks[1].attention.dropout == 0.2 and model.blocks[0].scale1.gamma[0] == 0.1
    assert model(torch.randn(2, 1, 8, 8)).shape == (2, 1000)
    with pytest.raises(ValueError, match="image_size: got 30, expected a multiple of patch_size=4"):
        vit_pico(image_size=30)


@torch.no_grad()  # torch itself warns of the gradients of what a graph break passes on
def test_what_is_compiled_takes_the_cliques_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = vit_pico().eval(), torch.randn(2, 3, 32, 32)
    expected = model(images)
    monkeypatch.delattr("graphtheory.vision.nn.token_sets.cliques")
    torch.testing.assert_close(torch.compile(model, backend="eager")(images), expected)
