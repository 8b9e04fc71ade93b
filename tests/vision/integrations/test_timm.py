"""timm's networks, with random weights, are the oracle of ours."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from graphtheory.vision.integrations.timm import load_timm
from graphtheory.vision.models import DistilledToken, MeanToken, swin_pico
from graphtheory.vision.models.swin import swin
from graphtheory.vision.models.vit import vit
from tests.vision.integrations.conftest import drawn

timm = pytest.importorskip("timm")

VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
SWIN = {"img_size": 32, "patch_size": 2, "embed_dim": 8, "window_size": 4}
our_vit = partial(vit, 16, 2, 2, image_size=32, patch_size=8, out_channels=5)
our_swin = partial(swin, 8, (2, 2), (2, 4), patch_size=2, window=4, out_channels=5)
MODELS = [
    ("vit_tiny_patch16_224", VIT, our_vit),
    ("vit_tiny_patch16_224", VIT | {"init_values": 0.1}, partial(our_vit, layer_scale=0.1)),
    ("deit_tiny_distilled_patch16_224", VIT, partial(our_vit, readout=DistilledToken)),
    ("vit_tiny_patch16_224", VIT | {"class_token": False, "global_pool": "avg", "fc_norm": False},
     partial(our_vit, readout=MeanToken)),
    ("swin_tiny_patch4_window7_224", SWIN | {"depths": (2, 2), "num_heads": (2, 4)}, our_swin),
]  # fmt: skip


def made(name: str, options: dict[str, Any]) -> nn.Module:
    return drawn(timm.create_model(name, num_classes=5, **options))


@pytest.mark.parametrize(("name", "options", "ours"), MODELS)
def test_logits_are_equal(name: str, options: dict[str, Any], ours: Any) -> None:
    theirs, model = made(name, options), ours().eval()
    load_timm(model, theirs.state_dict())
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(model(images), theirs(images), atol=1e-4, rtol=0)


def test_merging_at_the_end_of_a_stage_is_understood() -> None:
    theirs = made(*MODELS[-1][:2])
    models = our_swin(), our_swin()
    load_timm(models[0], theirs.state_dict())
    released = {
        name.replace("layers.1.downsample", "layers.0.downsample").replace("head.fc", "head"): t
        for name, t in theirs.state_dict().items()
    }
    load_timm(models[1], released)
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict())


def test_what_does_not_fit_is_named() -> None:
    state = made(*MODELS[-1][:2]).state_dict()
    state["neck.weight"] = state.pop("norm.weight")
    with pytest.raises(ValueError, match=r"missing: norm.weight; unexpected: neck.weight; other"):
        load_timm(our_swin(), state)
    with pytest.raises(ValueError, match="does not fit Swin"):
        load_timm(swin_pico(), state)
