"""Networks, and constructors of published sizes: `vit_small`, `swin_tiny`, `stvit_deit_small`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphtheory.lazy import import_when_used

if TYPE_CHECKING:
    from graphtheory.vision.models.dumbbell import Dumbbell, WindowTokens
    from graphtheory.vision.models.gpt import GPT, gpt, gpt2_small
    from graphtheory.vision.models.reduced_vit import ReducedViT
    from graphtheory.vision.models.resnet import SmallResNet
    from graphtheory.vision.models.stvit import STViT
    from graphtheory.vision.models.stvit_swin import STViTRSwin, STViTSwin
    from graphtheory.vision.models.swin import Swin
    from graphtheory.vision.models.vig import ViG
    from graphtheory.vision.models.vit import ClassToken, DistilledToken, MeanToken, ViT

# The module of each family of named sizes: `models.vit_tiny` is `models.vit.vit_tiny`.
_MODULES = {
    "vit_": "vit", "deit_": "vit", "swin_": "swin", "vig_": "vig", "pyramid_vig_": "vig",
    "stvit_swin_": "stvit_swin", "stvit_r_swin_": "stvit_swin", "stvit_": "stvit",
}  # fmt: skip
_SIZES = ("pico", "nano", "micro", "tiny", "small", "medium", "base")

__all__ = [
    "GPT", "ClassToken", "DistilledToken", "Dumbbell", "MeanToken", "ReducedViT", "STViT",
    "STViTRSwin", "STViTSwin", "SmallResNet", "Swin", "ViG", "ViT", "WindowTokens", "gpt",
    "gpt2_small",
]  # fmt: skip

import_when_used(__name__)


def __getattr__(name: str) -> Any:
    """A constructor of a named size, from the module of its family."""
    if name.endswith(_SIZES):
        for family, module in _MODULES.items():  # the longer of two families comes first
            if name.startswith(family):
                return getattr(import_module(f"graphtheory.vision.models.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The exported names and those of named sizes."""
    modules = (import_module(f"graphtheory.vision.models.{name}") for name in {*_MODULES.values()})
    names = {name for module in modules for name in vars(module) if name.endswith(_SIZES)}
    return sorted({*__all__, *(name for name in names if name.startswith(tuple(_MODULES)))})
