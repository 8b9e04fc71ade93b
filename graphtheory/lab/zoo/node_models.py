"""Networks for nodes by name, with one set of options: only the layer differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch
from torch import Generator, Tensor, nn

from graphtheory.graph import Neighborhood
from graphtheory.models.graph_transformer import GraphTransformer
from graphtheory.models.sampled_gcn import SampledGCN
from graphtheory.models.stack import ResidualStack, Stack, StackOptions
from graphtheory.nn import GATConv, GCNConv
from graphtheory.patterns import (
    AddSelf,
    AtDistance,
    Compose,
    KHop,
    MeanNormalize,
    Pattern,
    Sample,
    SymmetricNormalize,
)

NAMES = (
    "gt", "gt-plain", "gat", "gcn", "mlp", "gat-res", "gcn-res", "gt-gcn", "sage", "sgformer",
    "sampled-gcn",
)  # fmt: skip
COMPARED = NAMES[:5]
ENCODED = ("gt", "gt-gcn")
"""Those with a bias for each distance."""
ATTENDING = ("gt-plain", *ENCODED)
"""Graph transformers, which attend to `NetworkConfig.neighbors`."""
SAMPLED = ("sampled-gcn",)
"""Those that take a neighborhood for each layer, and learn on draws of a sampler."""


@dataclass(frozen=True)
class NetworkConfig:
    """Options of a network for nodes.

    Attributes:
        hidden: Width.
        layers: Number of layers.
        heads: Attention heads (gt, gt-plain, gt-gcn, gat).
        dropout: Probability, on features.
        input_dropout: Probability, on the features of the input; None is `dropout`.
        attention_dropout: Probability, on attention weights.
        residual: Residual blocks with layer norm between two linear maps; otherwise a classic
            stack.
        ffn: A feed-forward part after each residual block's layer.
        project: A linear map before a classic stack; residual blocks always have one.
        batch_norm: Batch norm after each hidden layer of a classic stack.
        layer_norm: Layer norm there instead; residual blocks always have it.
        activation: One of elu, gelu, relu; None is elu in a classic stack, gelu in residual blocks.
        root_weight: A linear term of the node's own in every layer (gt, gt-plain, gt-gcn, -res).
        frozen_query: W_Q fixed at zero, a control in which the node's own features cannot steer
            its attention (gt, gt-plain, gt-gcn).
        num_buckets: Z (gt, gt-gcn).
        neighbors: What a node of gt, gt-plain and gt-gcn attends to: "1", "2", ... the ball of so
            many hops and itself; "2:60" 60 nodes of the ball, drawn afresh; "all:20" 20 nodes of
            the whole graph; "=3:20" 20 nodes at distance exactly 3; "=3" all of those.
    """

    hidden: int = 64
    layers: int = 2
    heads: int = 4
    dropout: float = 0.5
    input_dropout: float | None = None
    attention_dropout: float = 0.0
    residual: bool = False
    ffn: bool = False
    project: bool = False
    batch_norm: bool = False
    layer_norm: bool = False
    activation: str | None = None
    root_weight: bool = True
    frozen_query: bool = False
    num_buckets: int = 20
    neighbors: str = "1"


class NodeLinear(nn.Linear):
    """A linear layer that ignores the neighborhood."""

    def forward(self, x: Tensor, neighborhood: Neighborhood | None = None) -> Tensor:
        return super().forward(x)


class WithRoot(nn.Module):
    """layer(x, neighborhood) + W_R x: the root term that graph transformer layers have."""

    def __init__(self, layer: nn.Module, width_in: int, width_out: int) -> None:
        super().__init__()
        self.layer, self.root = layer, nn.Linear(width_in, width_out, bias=False)

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        return self.layer(x, neighborhood) + self.root(x)


@dataclass(frozen=True)
class OneHopNormalize(Pattern):
    """The same edges with the weights of the GCN on those of distance 0 and 1, and 0 on others."""

    def __call__(
        self, neighborhood: Neighborhood, *, generator: Generator | None = None
    ) -> Neighborhood:
        """Compute the weights; the neighborhood has distances, as `KHop` and `Sample` give them."""
        assert neighborhood.distance is not None
        near = (neighborhood.distance <= 1).to(torch.get_default_dtype())
        return SymmetricNormalize()(neighborhood.replace(weight=near))

    def mask(self, base: Tensor) -> Tensor:
        return base


def parse_neighbors(text: str) -> Pattern:
    """The pattern of a `NetworkConfig.neighbors` string.

    Raises:
        ValueError: If the string has another form.
    """
    where, colon, count = text.partition(":")
    try:
        if where == "all":
            return Compose(Sample(int(count), whole_graph=True), AddSelf())
        sample = [Sample(int(count))] if colon else []
        if where.startswith("="):
            return Compose(AtDistance(int(where[1:])), *sample)
        return Compose(KHop(int(where)), *sample, AddSelf())
    except ValueError as error:
        raise ValueError(
            f"neighbors: got {text!r}, expected hops such as '2', '2:60', 'all:20', '=3' or '=3:20'"
        ) from error


def pattern_of(name: str, config: NetworkConfig) -> Pattern:
    """What the layers of network `name` aggregate from, as a pattern on the data set's graph."""
    _check(name)
    if name in ATTENDING:
        pattern = parse_neighbors(config.neighbors)
        if name != "gt-gcn":
            return pattern
        if config.neighbors.startswith("="):
            raise ValueError(
                f"neighbors: got {config.neighbors!r}, expected a ball such as '2' for gt-gcn, "
                "whose convolution takes the nodes one hop away"
            )
        return Compose(pattern, OneHopNormalize())
    if name.startswith("gcn") or name in SAMPLED:
        return Compose(AddSelf(), SymmetricNormalize())
    if name == "sage":
        return MeanNormalize()
    return Compose() if name == "sgformer" else AddSelf()


def _check(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"model: got {name!r}, expected one of {', '.join(NAMES)}")


def _activation(name: str | None) -> nn.Module | None:
    known: dict[str, type[nn.Module]] = {"elu": nn.ELU, "gelu": nn.GELU, "relu": nn.ReLU}
    if name is not None and name not in known:
        raise ValueError(f"activation: got {name!r}, expected one of {', '.join(known)}")
    return None if name is None else known[name]()


def _gat(config: NetworkConfig, width_in: int, width_out: int, last: bool) -> nn.Module:
    width = width_out if last else width_out // config.heads
    rate = config.attention_dropout
    return GATConv(
        width_in, width, config.heads, concat=not last, dropout=rate, add_self_loops=False
    )


def build(name: str, config: NetworkConfig, *, num_features: int, num_classes: int) -> nn.Module:
    """A network `model(x, neighborhood) -> [N, num_classes]` for the neighborhood of `pattern_of`.

    Args:
        name: gt (graph transformer with distance encoding), gt-plain (without), gat, gcn, mlp;
            gt-gcn adds to each attention layer of gt a graph convolution over those of its
            neighbors at distance 0 and 1; gat-res and gcn-res add a linear term of the node itself
            to each layer; sage is that term and the mean of the neighbors, GraphSAGE; sgformer is
            PyG's SGFormer with `layers` graph convolutions and one layer of linear attention;
            sampled-gcn is `SampledGCN`, which also takes a sequence of neighborhoods, one for each
            of its `layers`.
        config: Options.
        num_features: Features of a node.
        num_classes: Outputs of a node.

    Raises:
        ValueError: If the name is unknown, or `heads` does not divide `hidden`.
    """
    _check(name)
    c = config
    if name == "sgformer":
        from graphtheory.lab.zoo.peers import sgformer  # PyG's models take long to import

        return sgformer(num_features, c.hidden, num_classes, layers=c.layers, dropout=c.dropout)
    if name in SAMPLED:
        if c.layers < 1:
            raise ValueError(f"num_layers: got {c.layers}, expected at least 1")
        widths = (c.hidden,) * (c.layers - 1)
        return SampledGCN(num_features, widths, num_classes, dropout=c.dropout)
    has_heads = not name.startswith(("gcn", "mlp", "sage"))
    if has_heads and (c.heads < 1 or c.hidden % c.heads):
        raise ValueError(f"heads: got {c.heads}, expected a divisor of hidden={c.hidden}")
    stack: Callable[..., nn.Module] = partial(
        Stack, project=c.project, batch_norm=c.batch_norm, layer_norm=c.layer_norm
    )
    if c.residual:
        if c.batch_norm or c.layer_norm:
            norm = "batch_norm" if c.batch_norm else "layer_norm"
            raise ValueError(f"{norm}: got True, expected False with residual=True (layer norm)")
        stack = partial(ResidualStack, ffn=c.ffn)
    options = StackOptions(c.dropout, c.input_dropout, _activation(c.activation))
    gcn = partial(GCNConv, normalize=False)
    if name in ATTENDING:
        model = GraphTransformer(
            num_features, c.hidden, num_classes, c.layers, c.heads,
            num_buckets=c.num_buckets if name in ENCODED else None,
            attention_dropout=c.attention_dropout, root_weight=c.root_weight,
            beside=gcn if name == "gt-gcn" else None, pattern=None, stack=stack, options=options,
        )  # fmt: skip
        queries = [layer.lin_query for layer in model.attention_layers()] if c.frozen_query else []
        for parameter in chain.from_iterable(query.parameters() for query in queries):
            nn.init.zeros_(parameter).requires_grad_(False)
        return model
    makers: dict[str, Callable[[int, int, bool], nn.Module]] = {
        "gat": partial(_gat, c),
        "gcn": lambda a, b, _: gcn(a, b),
        "sage": lambda a, b, _: WithRoot(gcn(a, b), a, b),
        "mlp": lambda a, b, _: NodeLinear(a, b),
    }
    make = makers[name.removesuffix("-res")]
    if name.endswith("-res") and c.root_weight:
        plain = make
        make = lambda a, b, last: WithRoot(plain(a, b, last), a, b)  # noqa: E731
    return stack(make, num_features, c.hidden, num_classes, c.layers, options)
