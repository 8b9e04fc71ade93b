"""Backbones of images and graphs whose features are learned without labels, and heads on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from graphtheory.graph import Neighborhood
from graphtheory.nn.conv import GCNConv
from graphtheory.vision.models.resnet import SmallResNet
from graphtheory.vision.models.vit import MeanToken, vit_nano
from graphtheory.vision.nn import MLPHead, TransformerHead

if TYPE_CHECKING:
    from graphtheory.papers.fusion.recipe import ContrastiveRecipe

ENCODERS = ("cnn", "resnet18", "resnet20", "resnet50", "vit")
"""Names of the backbones of images."""
_RESNETS: dict[int, dict[str, Any]] = {
    18: {"depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512], "layer_type": "basic"},
    50: {
        "depths": [3, 4, 6, 3],
        "hidden_sizes": [256, 512, 1024, 2048],
        "layer_type": "bottleneck",
    },
}


class SmallCNN(nn.Sequential):
    """Four 3 x 3 convolutions with batch norm and ReLU, the second and fourth halve; then the mean.

    Shapes: images [B, C, H, W] -> [B, out_channels].

    Source:
        Li and Pimentel-Alarcon (2024) name a 4-layer CNN for MNIST; widths and strides are ours.
    """

    def __init__(self, in_channels: int = 1, out_channels: int = 128) -> None:
        widths = [in_channels, out_channels // 4, out_channels // 2, out_channels // 2]
        layers: list[nn.Module] = []
        for i, (before, width) in enumerate(zip(widths, [*widths[1:], out_channels], strict=True)):
            convolution = nn.Conv2d(before, width, 3, stride=1 + i % 2, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.out_channels = out_channels


class ResNetFeatures(nn.Module):
    """Hugging Face's ResNet with the stem for small images: 3 x 3, stride 1, no pooling.

    Shapes: images [B, C, H, W] -> [B, 512], of depth 50 [B, 2048].
    """

    def __init__(self, depth: int = 18, in_channels: int = 3) -> None:
        super().__init__()
        if depth not in _RESNETS:
            raise ValueError(f"depth: got {depth}, expected one of {sorted(_RESNETS)}")
        try:
            from transformers import ResNetConfig, ResNetModel
        except ImportError as error:
            raise ImportError(
                "ResNets need transformers: pip install 'pyg-graphtheory[hf]'"
            ) from error
        sizes = _RESNETS[depth]
        self.network = ResNetModel(ResNetConfig(num_channels=in_channels, **sizes))
        stem: Any = self.network.embedder
        stem.embedder.convolution = nn.Conv2d(in_channels, 64, 3, padding=1, bias=False)
        stem.pooler = nn.Identity()
        self.out_channels = sizes["hidden_sizes"][-1]

    def forward(self, images: Tensor) -> Tensor:
        return self.network(pixel_values=images).pooler_output.flatten(1)


class ViTFeatures(nn.Module):
    """`vit_nano` without classes: the mean of its tokens, 128 features.

    Shapes: images [B, C, H, W] -> [B, 128].
    """

    def __init__(self, in_channels: int = 1, image_size: int = 28) -> None:
        super().__init__()
        self.network = vit_nano(in_channels=in_channels, image_size=image_size, readout=MeanToken)
        self.network.head = MeanToken()
        self.out_channels = 128

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images)


class GCNEncoder(nn.Module):
    """Two graph convolutions, PReLU after each.

    Shapes: x [N, in_channels], dense or sparse CSR -> [N, out_channels].

    Source: Zhu et al. (2020), GRACE: a 2-layer GCN.
    """

    def __init__(self, in_channels: int, out_channels: int = 128) -> None:
        super().__init__()
        self.conv1 = GCNConv(in_channels, 2 * out_channels)
        self.conv2 = GCNConv(2 * out_channels, out_channels)
        self.act1, self.act2 = nn.PReLU(), nn.PReLU()
        self.out_channels = out_channels

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        return self.act2(self.conv2(self.act1(self.conv1(x, neighborhood)), neighborhood))


def image_encoder(name: str, in_channels: int, image_size: int) -> nn.Module:
    """Make a backbone by its name, with `out_channels`."""
    if name == "cnn":
        return SmallCNN(in_channels)
    if name in ("resnet18", "resnet50"):
        return ResNetFeatures(int(name[6:]), in_channels)
    if name == "resnet20":
        return SmallResNet(None, in_channels, depth=3)
    if name == "vit":
        return ViTFeatures(in_channels, image_size)
    raise ValueError(f"name: unknown backbone {name!r}; known: {', '.join(ENCODERS)}")


TRANSFORMER, MLP, LINEAR, NONE, DGI = "transformer", "mlp", "linear", "none", "dgi"
UNTRAINED = "untrained"  # the backbone as drawn, for comparison
PIXELS = "raw pixels"  # no backbone at all, of images
IMAGE_HEADS, GRAPH_HEADS = (TRANSFORMER, MLP, LINEAR, NONE), (TRANSFORMER, MLP, NONE, DGI)


def make_head(recipe: ContrastiveRecipe, in_channels: int) -> nn.Module:
    """Make the head of a recipe; an MLP gets as many parameters as the transformer has."""
    if recipe.head in (NONE, DGI, UNTRAINED, PIXELS):
        return nn.Identity()
    if recipe.head == LINEAR:
        return MLPHead(in_channels, out_channels=recipe.width, depth=1)
    transformer = TransformerHead(
        in_channels, width=recipe.width, depth=recipe.depth, heads=recipe.heads,
        norm_first=recipe.norm_first,
    )  # fmt: skip
    if recipe.head == TRANSFORMER:
        return transformer
    if recipe.head != MLP:
        raise ValueError(f"head: got {recipe.head!r}, expected one of {IMAGE_HEADS}")
    depth = max(recipe.depth, 2)

    def made(hidden: int) -> int:
        ends = in_channels + recipe.width + 3 * (depth - 1)
        return hidden * ends + (depth - 2) * hidden**2 + recipe.width

    wanted = sum(p.numel() for p in transformer.parameters())
    hidden = min(range(1, 8192), key=lambda h: abs(made(h) - wanted))
    return MLPHead(in_channels, hidden, recipe.width, depth)
