"""Networks."""

from graphtheory.models.dumbbell import Dumbbell
from graphtheory.models.graph_transformer import GraphTransformer
from graphtheory.models.one_hidden import OneHidden
from graphtheory.models.readout import ClassToken, DistilledToken, MeanToken
from graphtheory.models.reduced_vit import ReducedViT
from graphtheory.models.sampled_gcn import SampledGCN
from graphtheory.models.shallow import PatternStart, ShallowAttention
from graphtheory.models.shallow_vit import ShallowViT
from graphtheory.models.stack import ResidualStack, Stack
from graphtheory.models.stvit import (
    STViT,
    stvit_deit_base,
    stvit_deit_small,
    stvit_deit_tiny,
    stvit_lvvit_small,
    stvit_micro,
    stvit_nano,
    stvit_pico,
)
from graphtheory.models.stvit_swin import (
    STViTRSwin,
    stvit_r_swin_base,
    stvit_r_swin_small,
)
from graphtheory.models.swin import (
    Swin,
    swin_base,
    swin_micro,
    swin_nano,
    swin_pico,
    swin_small,
    swin_tiny,
)
from graphtheory.models.vit import (
    ViT,
    deit_base,
    deit_small,
    deit_tiny,
    vit_base,
    vit_micro,
    vit_nano,
    vit_pico,
    vit_small,
    vit_tiny,
)

__all__ = [
    "ClassToken",
    "DistilledToken",
    "Dumbbell",
    "GraphTransformer",
    "MeanToken",
    "OneHidden",
    "PatternStart",
    "ReducedViT",
    "ResidualStack",
    "STViT",
    "STViTRSwin",
    "SampledGCN",
    "ShallowAttention",
    "ShallowViT",
    "Stack",
    "Swin",
    "ViT",
    "deit_base",
    "deit_small",
    "deit_tiny",
    "stvit_deit_base",
    "stvit_deit_small",
    "stvit_deit_tiny",
    "stvit_lvvit_small",
    "stvit_micro",
    "stvit_nano",
    "stvit_pico",
    "stvit_r_swin_base",
    "stvit_r_swin_small",
    "swin_base",
    "swin_micro",
    "swin_nano",
    "swin_pico",
    "swin_small",
    "swin_tiny",
    "vit_base",
    "vit_micro",
    "vit_nano",
    "vit_pico",
    "vit_small",
    "vit_tiny",
]
