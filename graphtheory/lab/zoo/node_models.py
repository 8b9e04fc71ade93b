"""Networks for nodes by name, with one set of options: only the layer differs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn

from graphtheory import patterns
from graphtheory.graph import Neighborhood
from graphtheory.models.graph_transformer import GraphTransformer
from graphtheory.models.sampled_gcn import SampledGCN
from graphtheory.models.stack import LinearOutputStack, ResidualStack, Stack, StackOptions
from graphtheory.nn import GATConv, GCNConv

NAMES = (
    "gt", "gt-plain", "gat", "gcn", "mlp", "gat-res", "gcn-res", "gt-gcn", "sage", "sgformer",
    "sampled-gcn",
)  # fmt: skip
COMPARED = NAMES[:5]
ENCODED = ("gt", "gt-gcn")  # with a bias for each distance
ATTENDING = ("gt-plain", *ENCODED)  # graph transformers, which attend to `neighbors`
SAMPLED = ("sampled-gcn",)  # those that learn on a sampler's draws, a neighborhood a layer
_gcn = partial(GCNConv, normalize=False)
_ACTIVATIONS = {None: None, "elu": nn.ELU, "gelu": nn.GELU, "relu": nn.ReLU}


@dataclass(frozen=True)
class NetworkConfig:
    """Options of a network for nodes."""

    hidden: int = 64  # width
    layers: int = 2  # number of layers
    heads: int = 4  # attention heads (gt, gt-plain, gt-gcn, gat)
    dropout: float = 0.5  # probability, on features
    input_dropout: float | None = None  # the same of the features of the input; None is `dropout`
    attention_dropout: float = 0.0  # probability, on attention weights
    # "conv": the last layer of a classic stack gives the outputs; "linear": a linear map behind it
    output: str = "conv"
    linear_residual: bool = False  # with a linear output: plus a linear map of each layer's input
    gate: bool = False  # there too: times a learned map of the layer's input, as in Polynormer
    bias: bool = True  # of the layers themselves (gat, gat-res)
    self_loops: bool = False  # the mean over the neighbors takes in the node itself (sage)
    residual: bool = False  # blocks with layer norm between two linear maps, or a classic stack
    ffn: bool = False  # a feed-forward part after each residual block's layer
    project: bool = False  # a linear map before a classic stack; residual blocks always have one
    batch_norm: bool = False  # after each hidden layer of a classic stack
    layer_norm: bool = False  # there instead; residual blocks always have it
    activation: str | None = None  # elu, gelu or relu; None: elu, gelu if residual, relu if linear
    # a linear term of the node's own in every layer (gt, gt-plain, gt-gcn, -res)
    root_weight: bool = True
    # W_Q fixed at zero, so that a node's features cannot steer its attention (gt, gt-plain, gt-gcn)
    frozen_query: bool = False
    num_buckets: int = 20  # Z (gt, gt-gcn)
    # what a node of gt, gt-plain and gt-gcn attends to: "1", "2", ... the ball of these hops and
    # itself; "2:60" 60 nodes of the ball, drawn afresh; "all:20" 20 nodes of the whole graph;
    # "=3:20" 20 nodes at distance exactly 3; "=3" all of those
    neighbors: str = "1"


class NodeLinear(nn.Linear):
    """A linear layer that ignores the neighborhood."""

    def forward(self, x: Tensor, neighborhood: Neighborhood | None = None) -> Tensor:
        return super().forward(x)


class OnNeighborhood(nn.Module):
    """PyG's ``network(x, edge_index, batch)`` of one graph as ``network(x, neighborhood)``."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        dense = x.to_dense() if x.layout == torch.sparse_csr else x
        one_graph = torch.zeros(len(dense), dtype=torch.int64, device=dense.device)
        return self.network(dense, neighborhood.edge_index(), one_graph)


class WithRoot(nn.Module):
    """layer(x, neighborhood) + W_R x: the root term that graph transformer layers have."""

    def __init__(self, layer: nn.Module, width_in: int, width_out: int) -> None:
        super().__init__()
        self.layer, self.root = layer, nn.Linear(width_in, width_out, bias=False)

    def forward(self, x: Tensor, neighborhood: Neighborhood) -> Tensor:
        return self.layer(x, neighborhood) + self.root(x)


@dataclass(frozen=True)
class OneHopNormalize(patterns.Pattern):
    """The same edges with the weights of the GCN on those of distance 0 and 1, and 0 on others."""

    def apply(
        self, neighborhood: Neighborhood, *, generator: Generator | None = None
    ) -> Neighborhood:
        assert neighborhood.distance is not None
        near = (neighborhood.distance <= 1).to(torch.get_default_dtype())
        return patterns.SymmetricNormalize()(neighborhood.replace(weight=near))

    def mask(self, base: Tensor) -> Tensor:
        return base


def parse_neighbors(text: str) -> patterns.Pattern:
    """Read the pattern of a `NetworkConfig.neighbors` string."""
    where, colon, count = text.partition(":")
    whole = where == "all"
    try:
        sample = [patterns.Sample(int(count), whole_graph=whole)] if colon or whole else []
        if whole:
            return patterns.Compose(*sample, patterns.AddSelf())
        if where.startswith("="):
            return patterns.Compose(patterns.AtDistance(int(where[1:])), *sample)
        return patterns.Compose(patterns.KHop(int(where)), *sample, patterns.AddSelf())
    except ValueError as error:
        expected = "hops such as '2', '2:60', 'all:20', '=3' or '=3:20'"
        raise ValueError(f"neighbors: got {text!r}, expected {expected}") from error


def pattern_of(name: str, config: NetworkConfig) -> patterns.Pattern:
    """What the layers of network `name` aggregate from, as a pattern on the data set's graph."""
    _check(name)
    if name in ATTENDING:
        pattern = parse_neighbors(config.neighbors)
        if name != "gt-gcn":
            return pattern
        if config.neighbors.startswith("="):
            reason = "for gt-gcn, whose convolution takes the nodes one hop away"
            given = f"neighbors: got {config.neighbors!r}"
            raise ValueError(f"{given}, expected a ball such as '2' {reason}")
        return patterns.Compose(pattern, OneHopNormalize())
    if name.startswith("gcn") or name in SAMPLED:
        return patterns.Compose(patterns.AddSelf(), patterns.SymmetricNormalize())
    if name == "sage":
        own = [patterns.AddSelf()] if config.self_loops else []
        return patterns.Compose(*own, patterns.MeanNormalize())
    return patterns.Compose() if name == "sgformer" else patterns.AddSelf()


def _check(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"model: got {name!r}, expected one of {', '.join(NAMES)}")


def build(name: str, config: NetworkConfig, *, num_features: int, num_classes: int) -> nn.Module:
    """Make a network `model(x, neighborhood) -> [N, num_classes]` for that of `pattern_of`."""
    _check(name)
    c = config
    if name in ("sgformer", *SAMPLED):
        if c.layers < 1:
            raise ValueError(f"num_layers: got {c.layers}, expected at least 1")
        if name == "sgformer":
            return OnNeighborhood(_sgformer(c, num_features, num_classes))
        widths = (c.hidden,) * (c.layers - 1)
        return SampledGCN(num_features, widths, num_classes, dropout=c.dropout)
    has_heads = not name.startswith(("gcn", "mlp", "sage"))
    if has_heads and (c.heads < 1 or c.hidden % c.heads):
        raise ValueError(f"heads: got {c.heads}, expected a divisor of hidden={c.hidden}")
    norms: dict[str, Any] = {"batch_norm": c.batch_norm, "layer_norm": c.layer_norm}
    stack: Callable[..., nn.Module] = partial(Stack, project=c.project, **norms)
    if c.output not in ("conv", "linear") or (c.output == "linear" and c.residual):
        expected = "'conv' or, without residual blocks, 'linear'"
        raise ValueError(f"output: got {c.output!r}, expected {expected}")
    if c.output == "linear":
        more: dict[str, Any] = {"linear_residual": c.linear_residual, "gate": c.gate}
        stack = partial(LinearOutputStack, project=c.project, **more, **norms)
    if c.residual:
        for norm in filter(norms.get, norms):
            raise ValueError(f"{norm}: got True, expected False with residual=True (layer norm)")
        stack = partial(ResidualStack, ffn=c.ffn)
    if c.activation not in _ACTIVATIONS:
        known = "elu, gelu, relu"
        raise ValueError(f"activation: got {c.activation!r}, expected one of {known}")
    activation = _ACTIVATIONS[c.activation]
    options = StackOptions(c.dropout, c.input_dropout, activation and activation())
    if name not in ATTENDING:
        make = partial(_layer, name, c)
        return stack(make, num_features, c.hidden, num_classes, c.layers, options)
    model = GraphTransformer(
        num_features, c.hidden, num_classes, c.layers, c.heads,
        num_buckets=c.num_buckets if name in ENCODED else None,
        attention_dropout=c.attention_dropout, root_weight=c.root_weight,
        beside=_gcn if name == "gt-gcn" else None, pattern=None, stack=stack, options=options,
    )  # fmt: skip
    for layer in model.attention_layers() if c.frozen_query else ():
        for parameter in layer.lin_query.parameters():
            nn.init.zeros_(parameter).requires_grad_(False)
    return model


def _layer(name: str, c: NetworkConfig, width_in: int, width_out: int, last: bool) -> nn.Module:
    kind, _, root = name.partition("-")
    layer: nn.Module
    if kind == "gat":
        layer = GATConv(
            width_in, width_out if last else width_out // c.heads, c.heads, concat=not last,
            dropout=c.attention_dropout, add_self_loops=False, bias=c.bias,
        )  # fmt: skip
    elif kind == "mlp":
        layer = NodeLinear(width_in, width_out)
    else:
        layer = _gcn(width_in, width_out)
    rooted = kind == "sage" or (root and c.root_weight)
    return WithRoot(layer, width_in, width_out) if rooted else layer


def _sgformer(c: NetworkConfig, num_features: int, num_classes: int) -> nn.Module:
    """Make PyG's SGFormer, its graph convolutions on our core; it gives log-probabilities."""
    from torch_geometric.nn import SGFormer  # PyG's models take long to import

    network = SGFormer(
        num_features, c.hidden, num_classes, trans_num_layers=1, trans_dropout=c.dropout,
        gnn_num_layers=c.layers, gnn_dropout=c.dropout,
    )  # fmt: skip
    convs = network.graph_conv.convs
    for i in range(len(convs)):
        convs[i] = GCNConv(c.hidden, c.hidden)
    return network
