from importlib import import_module

import pytest

from graphtheory.vision import models


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("vit_pico", "vit"), ("deit_base", "vit"), ("swin_nano", "swin"), ("vig_tiny", "vig"),
        ("pyramid_vig_medium", "vig"), ("stvit_deit_small", "vit"), ("stvit_micro", "vit"),
        ("stvit_swin_tiny", "stvit_swin"), ("stvit_r_swin_small", "stvit_swin"),
    ],
)  # fmt: skip
def test_networks_of_named_sizes_come_from_their_modules(name: str, module: str) -> None:
    family = import_module(f"graphtheory.vision.models.{module}")
    assert getattr(models, name) is getattr(family, name)


@pytest.mark.parametrize("name", ["vit_huge", "resnet_tiny", "vit_other_tiny"])
def test_unknown_names_are_attribute_errors(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(models, name)


def test_named_sizes_are_listed() -> None:
    listed = dir(models)
    assert {"vit_small", "stvit_deit_small", "pyramid_vig_tiny", "GPT"} <= set(listed)
    assert all(hasattr(models, name) for name in listed)
