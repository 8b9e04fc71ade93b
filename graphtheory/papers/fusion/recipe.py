"""One run of contrastive learning: backbones and heads, data, and how well the features do."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphtheory.graph import Neighborhood
from graphtheory.lab.datasets import graphs, image_sets
from graphtheory.lab.datasets.splits import stratified
from graphtheory.lab.metrics import linear_probe, nearest_accuracy
from graphtheory.lab.train import AdamOptions
from graphtheory.modes import evaluating
from graphtheory.nn.conv import GCNConv
from graphtheory.papers.fusion.contrastive import Infomax, Pretraining, SGDOptions, SimCLR
from graphtheory.papers.fusion.views import GraphViews, ImageViews, Strengths, Unlabeled, pixels
from graphtheory.patterns.draw import derive, generator_of
from graphtheory.vision.models.resnet import SmallResNet
from graphtheory.vision.models.vit import MeanToken, vit_nano
from graphtheory.vision.nn import MLPHead, TransformerHead

ENCODERS = ("cnn", "resnet18", "resnet20", "resnet50", "vit")
"""Names of the backbones of images."""
_RESNETS: dict[int, dict[str, Any]] = {
    18: {"depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512], "layer_type": "basic"},
    50: {},  # as transformers has it
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
        config: Any = ResNetConfig(num_channels=in_channels, **_RESNETS[depth])
        self.network = ResNetModel(config)
        stem: Any = self.network.embedder
        stem.embedder.convolution = nn.Conv2d(in_channels, 64, 3, padding=1, bias=False)
        stem.pooler = nn.Identity()
        self.out_channels = config.hidden_sizes[-1]

    def forward(self, images: Tensor) -> Tensor:
        return self.network(pixel_values=images).pooler_output.flatten(1)


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
    """Make a backbone by its name, with `out_channels`; "vit" gives the mean of its tokens."""
    if name == "cnn":
        return SmallCNN(in_channels)
    if name in ("resnet18", "resnet50"):
        return ResNetFeatures(int(name[6:]), in_channels)
    if name == "resnet20":
        return SmallResNet(None, in_channels, depth=3)
    if name == "vit":
        vit: Any = vit_nano(in_channels=in_channels, image_size=image_size, readout=MeanToken)
        vit.head, vit.out_channels = MeanToken(), 128
        return vit
    raise ValueError(f"name: unknown backbone {name!r}; known: {', '.join(ENCODERS)}")


TRANSFORMER, MLP, LINEAR, NONE, DGI = "transformer", "mlp", "linear", "none", "dgi"
UNTRAINED = "untrained"  # the backbone as drawn, for comparison
PIXELS = "raw pixels"  # no backbone at all, of images
IMAGE_HEADS, GRAPH_HEADS = (TRANSFORMER, MLP, LINEAR, NONE), (TRANSFORMER, MLP, NONE, DGI)


LARGE = "facebook"  # the graph whose studies are shorter
_HELD_OUT = 0.1  # of the training images, to choose options with
_LABELED = 0.1  # of the images trained on, for the probe
_STRENGTHS = (0.01, 0.1, 1.0, 10.0)  # of a probe that has a validation set of its own
_SPLIT, _PROBE, _DRAW = 0, 1, 2  # streams of randomness


@dataclass(frozen=True)
class ContrastiveRecipe:
    """How features of a data set are learned."""

    # one of `datasets.image_sets.names`, or a folder of images by class, whose classes are for
    # scoring alone; with `graph` the name of a graph
    dataset: str = "digits"
    root: Path | None = None  # folder with the raw files
    graph: bool = False  # whether the samples are nodes of a graph and not images
    encoder: str = "cnn"  # one of `ENCODERS`; a graph has a 2-layer GCN
    head: str = TRANSFORMER  # one of `IMAGE_HEADS` or `GRAPH_HEADS`
    depth: int = 5  # blocks of a transformer head, and maps of an MLP
    width: int = 128  # features of the blocks
    heads: int = 8  # attention heads of a block
    norm_first: bool = True  # where the norms of a transformer head stand, as in `TransformerHead`
    temperature: float = 0.2  # tau
    batch_size: int = 256  # images or nodes a step; twice as many views
    epochs: int = 40  # passes over the images; steps on a graph
    lr: float = 0.1  # step size at the beginning: SGD's on images, Adam's on a graph
    weight_decay: float = 1e-3  # L2 coefficient
    limit: int | None = None  # batches an epoch, at most; None is all
    image_size: int | None = None  # rows and columns of images of a folder; None leaves them


GRAPH = ContrastiveRecipe(
    "Cora", graph=True, encoder="gcn", temperature=0.4, batch_size=512, epochs=150, lr=1e-3,
    weight_decay=1e-5, limit=1,
)  # fmt: skip
"""The recipe of graphs."""


def recipe_for(dataset: str, root: Path | None, *, size: int | None = None) -> ContrastiveRecipe:
    """Choose the recipe of a data set by its name; "digits" is images.

    An epoch of larger images is 20 batches, so that they take as many steps as "digits";
    "facebook", with eight times the nodes of Cora, has two thirds of its steps.
    """
    if image_sets.is_folder(dataset):
        return ContrastiveRecipe(dataset, root, image_size=size)
    if dataset.lower() not in image_sets.names():
        epochs = 100 if dataset.lower() == LARGE else GRAPH.epochs
        return replace(GRAPH, dataset=dataset, root=root, epochs=epochs)
    made = ContrastiveRecipe(dataset.lower(), root)
    return made if made.dataset == "digits" else replace(made, epochs=10, limit=20)


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


class Scores(NamedTuple):
    """How well frozen features do, 0..1."""

    val: float  # linear probe on validation samples; what options are chosen by
    probe: float  # linear probe on the test samples
    nearest: float  # 1-nearest neighbor among the test samples


class Prepared(NamedTuple):
    """A run before it begins: what is trained, and on what."""

    task: Pretraining
    data: Unlabeled
    score: Callable[[], Scores]  # how well the features do, now
    embed: Callable[[], tuple[Tensor, Tensor]]  # features of the test samples and their classes


def prepare(recipe: ContrastiveRecipe, seed: int) -> Prepared:
    """Make model and data of a recipe; the seed fixes the split, the parameters and the labels.

    Raises:
        ValueError: Names that are not known.
        FileNotFoundError: Raw files are missing.
        ImportError: kornia is not installed, for images.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, _DRAW))
        return _on_graph(recipe, seed) if recipe.graph else _on_images(recipe, seed)


def _on_images(recipe: ContrastiveRecipe, seed: int) -> Prepared:
    found = image_sets.load(recipe.dataset, recipe.root, size=recipe.image_size)
    images, y = found.training()
    split = stratified(y, val=_HELD_OUT, test=0.0, generator=generator_of(seed, _SPLIT))
    channels, side = images.shape[1], images.shape[2]
    encoder: Any = nn.Flatten()
    if recipe.head != PIXELS:
        encoder = image_encoder(recipe.encoder, channels, side)
    views = ImageViews(encoder, Strengths().build(channels, side))
    head = make_head(recipe, getattr(encoder, "out_channels", 0))
    options = SGDOptions(recipe.lr, weight_decay=recipe.weight_decay)
    task = SimCLR(views, head, temperature=recipe.temperature, optimizer=options)
    few = stratified(y[split.train], val=_LABELED, test=0.0, generator=generator_of(seed, _PROBE))
    labeled = split.train[few.val]

    def embed() -> tuple[Tensor, Tensor]:
        test = found.test()
        return features_of(encoder, test.pixels), test.y

    def score() -> Scores:
        known = features_of(encoder, images[labeled]), y[labeled]
        val = linear_probe(*known, features_of(encoder, images[split.val]), y[split.val])
        test = embed()
        return Scores(val, linear_probe(*known, *test), nearest_accuracy(*test))

    batches = Unlabeled(images[split.train], recipe.batch_size, seed, recipe.limit)
    return Prepared(task, batches, score, embed)


@torch.no_grad()
def features_of(encoder: nn.Module, images: Tensor, batch: int = 1024) -> Tensor:
    """Compute features of images [N, C, H, W] uint8 by a backbone in evaluation mode."""
    with evaluating(encoder):
        return torch.cat([encoder(pixels(part)) for part in images.split(batch)])


def _on_graph(recipe: ContrastiveRecipe, seed: int) -> Prepared:
    data = graphs.load(recipe.dataset, recipe.root, seed=seed)
    graph = Neighborhood.from_edge_index(data.edge_index, data.num_nodes)
    encoder = GCNEncoder(data.x.size(1), recipe.width)
    options = AdamOptions(recipe.lr, recipe.weight_decay)
    task: Pretraining
    if recipe.head == DGI:
        task = Infomax(encoder, recipe.width, data.x, graph, optimizer=options)
    else:
        views = GraphViews(encoder, data.x, data.edge_index)
        head = make_head(recipe, recipe.width)
        task = SimCLR(views, head, temperature=recipe.temperature, optimizer=options)

    @torch.no_grad()
    def embed() -> list[tuple[Tensor, Tensor]]:
        z = encoder.eval()(data.x, graph)
        masks = (data.train_mask, data.val_mask, data.test_mask)
        return [(z[mask], data.y[mask]) for mask in masks]

    def score() -> Scores:
        train, known, test = embed()
        val = {s: linear_probe(*train, *known, strength=s) for s in _STRENGTHS}
        best = max(val, key=val.__getitem__)
        probe = linear_probe(*train, *test, strength=best)
        return Scores(val[best], probe, nearest_accuracy(*test))

    batches = Unlabeled(torch.arange(data.num_nodes), recipe.batch_size, seed, recipe.limit)
    return Prepared(task, batches, score, lambda: embed()[2])
