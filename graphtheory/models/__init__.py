"""Networks."""

from graphtheory.models.chain import ChainAttention, ChainTransformer
from graphtheory.models.chain_inference import cot_generate, icl_infer
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
from graphtheory.models.icl import DiagonalStart, PromptPrediction, icl_predict
from graphtheory.models.one_hidden import OneHidden
from graphtheory.models.readout import ClassToken, DistilledToken, MeanToken
from graphtheory.models.reduced_vit import ReducedViT
from graphtheory.models.resnet import SmallResNet
from graphtheory.models.sampled_gcn import SampledGCN
from graphtheory.models.scored_vit import ScoredViT
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
    STViTSwin,
    stvit_r_swin_base,
    stvit_r_swin_small,
    stvit_swin_base,
    stvit_swin_small,
    stvit_swin_tiny,
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
from graphtheory.models.vig import (
    ViG,
    pyramid_vig_base,
    pyramid_vig_medium,
    pyramid_vig_small,
    pyramid_vig_tiny,
    vig_base,
    vig_nano,
    vig_small,
    vig_tiny,
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
    "GPT",
    "ChainAttention",
    "ChainTransformer",
    "ClassToken",
    "DiagonalStart",
    "DistilledToken",
    "Dumbbell",
    "GCNEncoder",
    "GraphTransformer",
    "MeanToken",
    "OneHidden",
    "PatternStart",
    "PromptPrediction",
    "ReducedViT",
    "ResNetFeatures",
    "ResidualStack",
    "STViT",
    "STViTRSwin",
    "STViTSwin",
    "SampledGCN",
    "ScoredViT",
    "ShallowAttention",
    "ShallowViT",
    "SmallCNN",
    "SmallResNet",
    "Stack",
    "Swin",
    "ViG",
    "ViT",
    "ViTFeatures",
    "WindowTokens",
    "cot_generate",
    "deit_base",
    "deit_small",
    "deit_tiny",
    "gpt",
    "gpt2_small",
    "icl_infer",
    "icl_predict",
    "image_encoder",
    "pyramid_vig_base",
    "pyramid_vig_medium",
    "pyramid_vig_small",
    "pyramid_vig_tiny",
    "stvit_deit_base",
    "stvit_deit_small",
    "stvit_deit_tiny",
    "stvit_lvvit_small",
    "stvit_micro",
    "stvit_nano",
    "stvit_pico",
    "stvit_r_swin_base",
    "stvit_r_swin_small",
    "stvit_swin_base",
    "stvit_swin_small",
    "stvit_swin_tiny",
    "swin_base",
    "swin_micro",
    "swin_nano",
    "swin_pico",
    "swin_small",
    "swin_tiny",
    "vig_base",
    "vig_nano",
    "vig_small",
    "vig_tiny",
    "vit_base",
    "vit_micro",
    "vit_nano",
    "vit_pico",
    "vit_small",
    "vit_tiny",
]
