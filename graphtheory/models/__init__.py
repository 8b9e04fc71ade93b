"""Networks, and constructors of published sizes: `vit_small`, `swin_tiny`, `stvit_deit_small`."""

from importlib import import_module
from typing import Any

from graphtheory.models.dumbbell import Dumbbell, WindowTokens
from graphtheory.models.encoders import (
    GCNEncoder,
    ResNetFeatures,
    SmallCNN,
    ViTFeatures,
    image_encoder,
)
from graphtheory.models.gpt import GPT, gpt, gpt2_small
from graphtheory.models.graph_transformer import GraphTransformer
from graphtheory.models.readout import ClassToken, DistilledToken, MeanToken
from graphtheory.models.reduced_vit import ReducedViT
from graphtheory.models.resnet import SmallResNet
from graphtheory.models.sampled_gcn import SampledGCN
from graphtheory.models.stack import ResidualStack, Stack, StackOptions
from graphtheory.models.stvit import STViT
from graphtheory.models.stvit_swin import STViTRSwin, STViTSwin
from graphtheory.models.swin import Swin
from graphtheory.models.vig import ViG
from graphtheory.models.vit import ViT

# The module of each family of named sizes: `models.vit_tiny` is `models.vit.vit_tiny`.
_MODULES = {
    "vit_": "vit", "deit_": "vit", "swin_": "swin", "vig_": "vig", "pyramid_vig_": "vig",
    "stvit_swin_": "stvit_swin", "stvit_r_swin_": "stvit_swin", "stvit_": "stvit",
}  # fmt: skip
_SIZES = ("pico", "nano", "micro", "tiny", "small", "medium", "base")

__all__ = [
    "GPT", "ClassToken", "DistilledToken", "Dumbbell", "GCNEncoder", "GraphTransformer",
    "MeanToken", "ReducedViT", "ResNetFeatures", "ResidualStack", "STViT", "STViTRSwin",
    "STViTSwin", "SampledGCN", "SmallCNN", "SmallResNet", "Stack", "StackOptions", "Swin", "ViG",
    "ViT", "ViTFeatures", "WindowTokens", "gpt", "gpt2_small", "image_encoder",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """A constructor of a named size, from the module of its family."""
    if name.endswith(_SIZES):
        for family, module in _MODULES.items():  # the longer of two families comes first
            if name.startswith(family):
                return getattr(import_module(f"graphtheory.models.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The exported names and those of named sizes."""
    modules = (import_module(f"graphtheory.models.{name}") for name in {*_MODULES.values()})
    names = {name for module in modules for name in vars(module) if name.endswith(_SIZES)}
    return sorted({*__all__, *(name for name in names if name.startswith(tuple(_MODULES)))})
